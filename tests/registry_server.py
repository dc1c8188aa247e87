"""A schema registry over HTTP that answers as Confluent's does, and fails as it is told."""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

POLL_S: Final = 0.01  # how long its end may take, in each test
_TYPE: Final = "application/vnd.schemaregistry.v1+json"


class RegistryServer:
    """Schemas are registered from the test.

    Attributes:
        asked: the paths of all requests.
        faults: what the next requests are answered with instead: a status, or (status, body, headers).
        login: ``user:password`` that requests need; "" for none.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.faults: list[Any] = []
        self.login = ""
        self._by_id: dict[int, dict[str, Any]] = {}
        self._subjects: dict[str, list[int]] = {}
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry._respond(self)

            def log_message(self, *told: object) -> None:
                """Nothing is printed."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        serve = self._server.serve_forever
        threading.Thread(target=serve, args=(POLL_S,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def register(
        self,
        subject: str,
        schema: str,
        *,
        number: int,
        kind: str = "AVRO",
        references: tuple[tuple[str, str, int], ...] = (),
        serialized: bytes = b"",
    ) -> None:
        """Add a version to a subject, under this id."""
        document: dict[str, Any] = {"schema": schema, "serialized": serialized}
        if kind != "AVRO":  # which is not said
            document["schemaType"] = kind
        if references:
            document["references"] = [
                {"name": name, "subject": where, "version": version}
                for name, where, version in references
            ]
        self._by_id[number] = document
        self._subjects.setdefault(subject, []).append(number)

    def _respond(self, handler: BaseHTTPRequestHandler) -> None:
        self.asked.append(handler.path)
        status, body, headers = self._answer(handler)
        handler.send_response(status)
        for name, value in {"Content-Type": _TYPE, **headers}.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def _answer(self, handler: BaseHTTPRequestHandler) -> tuple[int, bytes, dict[str, str]]:
        if self.faults:
            fault = self.faults.pop(0)
            return fault if isinstance(fault, tuple) else (fault, b"{}", {})
        wanted = f"Basic {base64.b64encode(self.login.encode()).decode()}"
        if self.login and handler.headers.get("Authorization") != wanted:
            return 401, json.dumps({"error_code": 401, "message": "Unauthorized"}).encode(), {}
        address = urlsplit(handler.path)
        serialized = parse_qs(address.query).get("format") == ["serialized"]
        found = self._find([unquote(part) for part in address.path.split("/")[1:]], serialized)
        if isinstance(found, int):
            text = {
                40401: "Subject not found.",
                40402: "Version not found.",
                40403: "Schema not found",
            }
            said = {"error_code": found, "message": text[found]}
            return 404, json.dumps(said).encode(), {}
        return 200, json.dumps(found).encode(), {}

    def _find(self, parts: list[str], serialized: bool) -> dict[str, Any] | int:
        match parts:
            case ["schemas", "ids", number]:
                if not number.isdigit() or int(number) not in self._by_id:
                    return 40403
                return self._shown(int(number), serialized)
            case ["subjects", subject, "versions", version]:
                ids = self._subjects.get(subject)
                if ids is None:
                    return 40401
                at = len(ids) if version == "latest" else int(version)
                if not 1 <= at <= len(ids):
                    return 40402
                shown = self._shown(ids[at - 1], serialized)
                return {"subject": subject, "version": at, "id": ids[at - 1], **shown}
        return 40401

    def _shown(self, number: int, serialized: bool) -> dict[str, Any]:
        document = dict(self._by_id[number])
        form = document.pop("serialized")
        if serialized and form:
            document["schema"] = base64.b64encode(form).decode()
        return document
