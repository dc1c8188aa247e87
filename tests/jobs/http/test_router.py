"""Requests are answered as by Starlette's own routing, which is the measure here."""

from __future__ import annotations

import dataclasses
import importlib
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from headrace.host_names import LOOPBACK_NAMES, Names
from headrace.jobs.errors import JobsError
from headrace.jobs.http import app as app_module
from headrace.jobs.http import create_app
from headrace.jobs.http.asgi import RequestId, VisitorGuard, problem_response
from headrace.jobs.http.request.endpoint import Endpoint, reply
from headrace.jobs.http.request.incoming import read_body
from headrace.jobs.models import Options
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.store import open_database
from portions import portion

FUZZ = Path(__file__).resolve().parents[3] / "fuzz"
sys.path.insert(0, str(FUZZ))
requests: Any = importlib.import_module("jobs_requests")
sys.path.remove(str(FUZZ))

ERRORS: dict[str, Exception] = {
    "refused": JobsError(409, "no", "not now", "x", retry_after_s=3.0),
    "defect": RuntimeError("sesame"),
}
ASKED = ["host", "Host", "accept", "x-twice", "x-broker-channel-token", "content-length", "none"]


def echo(endpoint: Endpoint) -> Any:
    """A handler that tells what it was asked, or fails as the request wants."""

    async def handle(runtime: Runtime, request: Request) -> Response:
        del runtime
        body = await read_body(request, 100_000)
        if (error := ERRORS.get(request.headers.get("x-fail", ""))) is not None:
            raise error
        told = {
            "endpoint": [endpoint.method, endpoint.path],
            "names": request.path_params,
            "query": sorted(request.query_params.multi_items()),
            "headers": {name: request.headers.get(name, "-") for name in ASKED},
            "there": [name in request.headers for name in ASKED],
            "all": request.headers.getlist("x-twice"),
            "body": body.decode("latin-1"),
        }
        return reply(told, headers={"x-url": request.url.path.encode().hex()})

    return handle


async def refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, JobsError)
    return problem_response(error, request.scope)


async def missed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    codes = {404: "no_such_route", 405: "method_not_allowed"}
    code = codes[error.status_code]
    response = problem_response(
        JobsError(error.status_code, code, error.detail, "path"), request.scope
    )
    response.headers.update(error.headers or {})
    return response


async def failed(request: Request, error: Exception) -> Response:
    return app_module._unexpected(request, error)


@pytest.fixture
def apps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """The application, and one of Starlette's with the same routes."""
    echoing = [dataclasses.replace(each, handler=echo(each)) for each in app_module.ENDPOINTS]
    monkeypatch.setattr(app_module, "ENDPOINTS", tuple(echoing))
    runtime = Runtime(open_database(f"sqlite:///{tmp_path}/jobs.db", threads=1), Options())
    names = Names(LOOPBACK_NAMES)
    app: Any = create_app(runtime, None, names)
    routes = [
        StarletteRoute(each.path, each.handle, methods=[each.method])
        for each in app._app._app.routes
    ]
    answers: dict[Any, Any] = {JobsError: refused, HTTPException: missed, Exception: failed}
    plain = Starlette(routes=routes, exception_handlers=answers)
    return [app, RequestId(VisitorGuard(plain, names))]


async def answer(app: Any, scope: dict[str, Any], body: bytes) -> tuple[Any, ...]:
    """Status, headers but the request's id, body, and what the server would be told."""
    sent: list[Any] = []
    half = len(body) // 2
    parts = [(body[:half], True), (body[half:], False)]

    async def receive() -> Any:
        if not parts:
            return {"type": "http.disconnect"}
        part, more = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": more}

    async def send(message: Any) -> None:
        sent.append(message)

    raised = ""
    try:
        await app({**scope, "headers": list(scope["headers"])}, receive, send)
    except RuntimeError as error:
        raised = str(error)
    # Starlette names the methods of one route of a path, and not of the others.
    headers = [pair for pair in sent[0]["headers"] if pair[0] not in (b"x-request-id", b"allow")]
    content = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], sorted(headers), content, raised


def scope_of(method: str, target: str, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    from urllib.parse import unquote

    path, _, query = target.partition("?")
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path, "latin-1"),
        "raw_path": path.encode("latin-1", "replace"),
        "query_string": query.encode("latin-1", "replace"),
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }


def odd_requests(rng: random.Random) -> tuple[dict[str, Any], bytes]:
    """A request of the fuzzer's, or one that is nearly another endpoint's."""
    data, _ = requests.request(rng, requests.Shared())
    head, _, body = data.partition(b"\r\n\r\n")
    method, target = head.split(b"\r\n")[0].decode("latin-1").split(" ")[:2]
    accident = rng.randrange(12)
    path, mark, query = target.partition("?")
    if accident == 0:
        path += "/"
    elif accident == 1:
        path = path.rpartition("/")[0] or "/"
    elif accident == 2:
        path = path.replace("/", "//", rng.randrange(3))
    elif accident == 3:
        path += rng.choice(("%0Ax", "%2F", "/x", "%00", ";a"))
    elif accident == 4:
        parts = path.split("/")
        rng.shuffle(parts)
        path = "/" + "/".join(parts)
    if accident == 5:
        method = rng.choice(("GET", "POST", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "get"))
    headers = [(b"host", rng.choice((b"127.0.0.1", b"127.0.0.1:80", b"evil.example")))]
    headers += [(b"x-twice", b"1"), (b"x-twice", b"2")] * rng.randrange(2)
    if rng.random() < 0.4:
        headers.append((b"accept", b"application/json"))
    if rng.random() < 0.3:
        headers.append((b"x-fail", rng.choice((b"refused", b"defect"))))
    if rng.random() < 0.2:
        headers.append((b"content-length", rng.choice((b"5", b"999999", b"9" * 30, "²".encode()))))
    return scope_of(method, path + mark + query, headers), body


async def test_every_request_is_answered_as_by_starlette(apps: list[Any]) -> None:
    rng = random.Random(1)
    seen: set[int] = set()
    for _ in range(portion(1_500, few=400)):
        scope, body = odd_requests(rng)
        ours, plain = [await answer(app, scope, body) for app in apps]
        assert ours == plain, (scope["method"], scope["path"])
        seen.add(ours[0])
    assert seen == {200, 307, 404, 405, 409, 413, 421, 500}


async def test_a_line_end_is_part_of_a_path(apps: list[Any]) -> None:
    host = [(b"host", b"127.0.0.1")]
    assert (await answer(apps[0], scope_of("GET", "/channels", host), b""))[0] == 200
    assert (await answer(apps[0], scope_of("GET", "/channels%0A", host), b""))[0] == 404


async def test_each_endpoint_is_found_and_the_first_of_two_that_fit(apps: list[Any]) -> None:
    host = [(b"host", b"127.0.0.1")]
    for endpoint in app_module.ENDPOINTS:
        path = endpoint.path.replace("{", "").replace("}", "")
        ours, plain = [
            await answer(app, scope_of(endpoint.method, path, host), b"x") for app in apps
        ]
        assert ours == plain
        assert json.loads(ours[2])["endpoint"][0] == endpoint.method


async def test_ids_of_requests_differ_from_each_other_and_between_processes(
    apps: list[Any],
) -> None:
    found = set()
    for app in apps * 50:
        sent: list[Any] = []

        async def send(message: Any, sent: list[Any] = sent) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "http.request"}

        await app(scope_of("GET", "/health/live", []), receive, send)
        found.add(dict(sent[0]["headers"])[b"x-request-id"])
    assert len(found) == 100
    assert {len(each) for each in found} == {20}


async def test_a_method_that_a_path_has_not_is_refused_with_all_that_it_has(
    apps: list[Any],
) -> None:
    for path in {endpoint.path for endpoint in app_module.ENDPOINTS}:
        sent: list[Any] = []

        async def send(message: Any, sent: list[Any] = sent) -> None:
            sent.append(message)

        async def receive() -> Any:
            raise AssertionError("nothing is read")

        await apps[0](
            scope_of("BREW", path.replace("{", "").replace("}", ""), [(b"host", b"127.0.0.1")]),
            receive,
            send,
        )
        allowed = {each.method for each in app_module.ENDPOINTS if each.path == path}
        named = dict(sent[0]["headers"])[b"allow"].decode().split(", ")
        assert sent[0]["status"] == 405
        assert set(named) == allowed | ({"HEAD"} if "GET" in allowed else set())
