"""What may differ between two servers without being a difference: identities, times, ports, versions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

ZERO_TIME = "0001-01-01T00:00:00Z"
TIMES = {"created", "ts", "first_ts", "last_ts", "last_active", "time", "timestamp"}
TIMES |= {"pinned_ts", "pause_until"}
IDENTITIES = {"_nats.ver", "_nats.level", "id", "server_id", "server_name", "version", "go"}
IDENTITIES |= {
    "api_lvl",
    "git_commit",
    "nonce",
    "xkey",
    "client_id",
    "client_ip",
    "host",
    "port",
    "domain",
}
IDENTITIES |= {"server", "start"}
IDENTITIES |= {"active"}
IDENTITIES |= {"pinned_client_id", "pinned_id", "pause_remaining", "ack_time"}
MACHINE = {"api", "max_memory", "max_storage", "reserved_memory", "reserved_storage"}
# A single server may say who leads; clients must live without it.
OPTIONAL = {"headrace", "cluster", "git_commit", "xkey", "nonce", "connect_urls", "rtt"}

_ACK = re.compile(r"(\$JS\.ACK\.[^.]+\.)([^.]+)(\.\d+\.\d+\.\d+\.)\d+(\.\d+)")
_FLOW = re.compile(r"(\$JS\.FC\.[^.]+\.[^.]+\.)\w+")
_SOURCE = re.compile(r"^(Nats-Stream-Source: (?:[^ ]+ ){5})\S+")
_PIN = re.compile(r"^(Nats-Pin-Id: )\S+")
_VIOLATED = re.compile(r"^(change to limits violates consumers: )(.*)$")
_ANSWER = re.compile(r"^(H?MSG .* reply=_R_\.)\S+")
_REQUESTER = re.compile(r'^(Nats-Request-Info: .*),"rtt":\d+')
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def mask_json(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {
            key: _mask_field(key, item, names) for key, item in value.items() if key not in OPTIONAL
        }
    if isinstance(value, list):
        return [mask_json(item, names) for item in value]
    if isinstance(value, str):
        return mask_text(value, names)
    return value


def _mask_field(key: str, value: Any, names: Mapping[str, str]) -> Any:
    if key in TIMES and isinstance(value, str):
        return value if value == ZERO_TIME else "<time>"
    if key in IDENTITIES:
        return f"<{key}>"
    if key in ("request", "response") and isinstance(value, str) and value.startswith("{"):
        return mask_json(json.loads(value), names)
    if key in MACHINE:
        return f"<{key}>"
    masked = mask_json(value, names)
    if key == "sources" and isinstance(masked, list):
        masked.sort(key=_as_it_stands)
    return masked


def _as_it_stands(source: Any) -> str:
    """What to sort by; where sources tell of their lag they come in any order, else in their own."""
    return (
        json.dumps(source, sort_keys=True) if isinstance(source, dict) and "lag" in source else ""
    )


def mask_text(text: str, names: Mapping[str, str]) -> str:
    for mask, name in names.items():
        text = text.replace(name, mask)
    text = _VIOLATED.sub(lambda found: found[1] + ", ".join(sorted(found[2].split(", "))), text)
    text = _FLOW.sub(r"\1<id>", text)
    text = _SOURCE.sub(r"\1<identity>", text)
    text = _ANSWER.sub(r"\1<id>", text)
    text = _REQUESTER.sub(r"\1", text)
    text = _PIN.sub(r"\1<pin>", text)
    text = _ACK.sub(r"\1\2\3<ns>\4", text)
    return _TIME.sub(lambda found: found[0] if found[0] == ZERO_TIME else "<time>", text)


def render(frame: tuple[bytes, ...], names: Mapping[str, str]) -> list[str]:
    """A frame as transcript lines; JSON is spread, so that a difference shows as one line."""
    kind = frame[0].decode()
    if kind == "INFO":
        return ["INFO", *_spread(json.loads(frame[1]), names)]
    if kind not in ("MSG", "HMSG"):
        return [mask_text(f"{kind} {frame[1].decode()}".rstrip(), names)]
    _, subject, sid, reply, headers, payload = frame
    head = f"{kind} {subject.decode()} sid={sid.decode()}"
    if reply:
        head += f" reply={reply.decode()}"
    lines = [mask_text(head, names)]
    block = headers.decode("utf-8", "replace").split("\r\n")
    lines.extend("  | " + mask_text(line, names) for line in block if line)
    if payload.startswith(b"{") and payload.endswith(b"}"):
        try:
            document = json.loads(payload)
        except ValueError:
            document = None
        if isinstance(document, dict):
            return [*lines, *_spread(document, names)]
    if payload:
        text = payload.decode("utf-8", "backslashreplace")
        lines.append("  > " + (text if len(text) < 200 else f"{text[:40]}… ({len(payload)} bytes)"))
    return lines


def _spread(document: dict[str, Any], names: Mapping[str, str]) -> list[str]:
    masked = mask_json(document, names)
    return ["  " + line for line in json.dumps(masked, indent=1, sort_keys=True).splitlines()]
