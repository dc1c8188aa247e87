"""Hostile requests to the web console and to the pages of numbers: every route, parameter, header, body."""

from __future__ import annotations

import importlib
import json
import pkgutil
import random
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote_from_bytes

import headrace.console.routes as routes
from headrace.console.guard import MARK
from jobs_requests import CHUNKS, DATES, DEEP, NUMBERS, URLS, text

__all__ = ["NAMES", "PAGES", "console_request", "page_request"]

NAMES: Final = {
    "stream": ("S", "KV_B", "OBJ_O", "KV_SCHEMAS", "none"),
    "consumer": ("C", "G-m", "none"),
    "bucket": ("B", "O", "SCHEMAS", "SCHEMAS", "none"),
    "key": ("k", "a.b", "1", "orders.1", "none"),
    "name": ("o", "a/b", "none"),
    "sequence": ("1", "2", "99999"),
    "group": ("G", "none"),
    "kind": ("static", "elastic"),
    "channel": ("c", "none"),
    "feed": ("orders", "none"),
    "job": ("1", "none"),
    "schedule": ("daily", "none"),
    "server": ("none",),
}
"""What there is, and what is not there, by the name of a part of a path."""

_PARAMETERS: Final = (
    *(
        "filter",
        "offset",
        "subject",
        "count",
        "from",
        "time",
        "before",
        "newest",
        "markers",
        "now",
        "of",
    ),
    *("next", "previous", "state", "consumer", "older_than_seconds", "message", "sort", "limit"),
)
_FIELDS: Final = (
    *(
        "confirm",
        "subject",
        "below",
        "keep",
        "value",
        "revision",
        "member",
        "group",
        "job",
        "seconds",
    ),
    *(
        "password",
        "states",
        "older_than_seconds",
        "consumer",
        "message",
        "sequence",
        "time",
        "kind",
    ),
)
PAGES: Final = (
    *("/", "/healthz", "/metrics", "/varz", "/jsz", "/connz", "/accountz", "/accstatz", "/routez"),
    *("/gatewayz", "/leafz", "/subsz", "/subscriptionsz", "/nowhere"),
)
_OF_PAGES: Final = (
    *(
        "acc",
        "accounts",
        "streams",
        "consumers",
        "config",
        "offset",
        "limit",
        "cid",
        "user",
        "sort",
    ),
    *(
        "state",
        "filter_subject",
        "subs",
        "auth",
        "unused",
        "account",
        "stream",
        "consumer",
        "details",
    ),
    *("js-enabled-only", "test"),
)
_HEADERS: Final = (
    *("Accept", "Authorization", "Cookie", "Content-Type", "Origin", "Sec-Fetch-Site", "Referer"),
    *("Range", "If-None-Match", "Accept-Encoding", "Forwarded", "Upgrade", "Expect", "TE", "Host"),
)


@dataclass(frozen=True, slots=True)
class _Route:
    method: str
    path: str


def _routes() -> tuple[_Route, ...]:
    found = []
    for module in pkgutil.iter_modules(routes.__path__, f"{routes.__name__}."):
        table = importlib.import_module(module.name).ROUTES
        found += [_Route(method, path) for method, path, _ in table]
    return tuple(found)


_ROUTES: Final = _routes()


def console_request(rng: random.Random) -> tuple[bytes, bool]:
    """One request to the console, as it goes over the wire, and whether all of it is there."""
    route = rng.choice(_ROUTES)
    path, named = _filled(rng, route.path)
    method = route.method if rng.random() < 0.95 else rng.choice(("PUT", "OPTIONS", "HEAD", "X"))
    headers = {"Host": b"127.0.0.1", "Connection": b"close", MARK: b"1"}
    body = b""
    if route.method != "GET":
        headers["Content-Type"] = b"application/json"
        body = _body(rng, named)
    for _ in range(rng.choice((0, 0, 0, 1, 3))):
        headers[rng.choice(_HEADERS)] = _line(rng)
    query = _query(rng, _PARAMETERS)
    return _request(rng, method, path + query, headers, body)


def page_request(rng: random.Random) -> tuple[bytes, bool]:
    """One request to a page of numbers."""
    kind = rng.random()
    if kind < 0.1:
        return text(rng) + b"\r\n\r\n", False
    path = rng.choice(PAGES)
    if kind < 0.2:
        path = rng.choice(
            (*URLS, "//[", "http://[x", "/%zz", "*", "/varz/", "//varz", "?", "/jsz;x")
        )
    method = "GET" if rng.random() < 0.9 else rng.choice(("HEAD", "POST", "OPTIONS", "get"))
    target = re.sub(r"\s", "", path) + _query(rng, _OF_PAGES)
    headers = {"Host": b"127.0.0.1", "Connection": b"close"}
    for _ in range(rng.choice((0, 0, 1, 3))):
        headers[rng.choice(_HEADERS)] = _line(rng)
    return _request(rng, method, target, headers, b"")


def _filled(rng: random.Random, path: str) -> tuple[str, dict[str, str]]:
    """The path with names in it, some of them odd, and which."""
    named = {}
    for whole, name in re.findall(r"({(\w+)(?::path)?})", path):
        value = rng.choice(NAMES[name])
        if rng.random() < 0.2:
            odd = text(rng) if rng.random() < 0.6 else rng.choice(NUMBERS).encode()
            value = odd.decode("utf-8", "surrogateescape") or "-"
        named[name] = value
        shown = quote_from_bytes(value.encode("utf-8", "surrogateescape"), safe="/")
        path = path.replace(whole, shown if rng.random() < 0.99 else "%zz%")
    return path, named


def _query(rng: random.Random, names: tuple[str, ...]) -> str:
    if rng.random() < 0.4:
        return ""
    pairs = []
    for name in rng.choices(names, k=rng.choice((1, 1, 2, 5))):
        kind = rng.random()
        value = text(rng)
        if kind < 0.3:
            value = rng.choice((b"S", b"C", b">", b"s.*", b"1", b"true", b"overview", b"stream/S"))
        elif kind < 0.5:
            value = rng.choice((*NUMBERS, *DATES)).encode()
        pairs.append(f"{name}={quote_from_bytes(value)}")
    return "?" + "&".join(pairs)


def _body(rng: random.Random, named: dict[str, str]) -> bytes:
    kind = rng.random()
    if kind < 0.04:
        return rng.choice(DEEP)
    if kind < 0.1:
        return text(rng)
    document: dict[str, object] = {}
    for name in rng.choices(_FIELDS, k=rng.choice((0, 1, 2, 4))):
        document[name] = _value(rng)
    if named and rng.random() < 0.3:  # the name typed, without which nothing is destroyed
        document["confirm"] = rng.choice(list(named.values()))
    made = json.dumps(document).encode()
    if rng.random() < 0.1:
        at = rng.randrange(len(made) + 1)
        made = made[:at] + rng.choice((b"\xff", b"\0", b"NaN", b"1e999", b"\\ud800")) + made[at:]
    return made


def _value(rng: random.Random) -> object:
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice((None, True, [], {}, [[]], {"a": 1}))
    if kind in (1, 2):
        return rng.choice((0, -1, 1, 2**31, 2**63, 10**40, 1.5, float("inf"), float("nan")))
    return text(rng).decode("utf-8", "surrogateescape")


def _line(rng: random.Random) -> bytes:
    """The value of a header, most of the time one that stays on its line."""
    value = text(rng)
    if rng.random() < 0.97:
        value = value.replace(b"\0", b"").replace(b"\r", b"").replace(b"\n", b"")
    return value[:8000]


def _request(
    rng: random.Random, method: str, target: str, headers: dict[str, bytes], body: bytes
) -> tuple[bytes, bool]:
    framing, whole = b"Content-Length: %d" % len(body), True
    if body and rng.random() < 0.05:
        body, framing, whole = rng.choice(CHUNKS), b"Transfer-Encoding: chunked", False
    lines = [b"%s %s HTTP/1.1" % (method.encode(), target.encode("utf-8", "surrogatepass"))]
    lines += [b"%s: %s" % (name.encode(), value) for name, value in headers.items()]
    return b"\r\n".join([*lines, framing, b"", b""]) + body, whole
