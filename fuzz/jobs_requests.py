"""Hostile requests to the job service: every route, header, parameter and body, with odd values."""

from __future__ import annotations

import json
import random
import re
import types
from typing import Any, Final, get_args, get_origin
from urllib.parse import quote_from_bytes

import msgspec

from headrace.jobs.http.app import ENDPOINTS
from headrace.jobs.http.request.endpoint import Endpoint

__all__ = ["Shared", "request"]

NUMBERS: Final = (
    *(
        "0",
        "-1",
        "1",
        "2",
        "5",
        "1.5",
        "-0",
        "0x10",
        "1_000",
        " 5 ",
        "+5",
        "1e5",
        "1e999",
        "-1e999",
    ),
    *("NaN", "Infinity", "²", "９", "2147483648", "4294967296", "9223372036854775807"),
    *("9223372036854775808", "-9223372036854775809", "9" * 23, "9" * 400, "9" * 5000, ""),
)
DATES: Final = (
    *("2026-01-31T23:59:59Z", "9999-12-31T23:59:59-12:00", "9999-12-31T23:59:59.999999Z"),
    *("0001-01-01T00:00:00+14:00", "2026-13-45T99:99:99Z", "20260131T235959Z", "2026-W05-6T01Z"),
    *("2026-01-31T23:59:59", "99999999999 Jan 01 12:30", "Thu, 01 Jan 1970 00:00:00 GMT"),
    *("2026-01-31T23:59:59+99:99", "T", "2100-01-01T00:00:00.123456789Z", "2026-01-31T24:00:00Z"),
)
TEXTS: Final = (
    *(
        b"",
        b"\0",
        b"a\0b",
        b"\xed\xa0\x80",
        b"\xff\xfe",
        "é".encode(),
        "😀".encode(),
        b"\x7f",
        b"\x1b[2J",
    ),
    *(
        b"x" * 300,
        b"x" * 5000,
        b"../..",
        b"%00",
        b"%ff%fe",
        b"a/b",
        b"'; DROP TABLE job; --",
        b"{}",
    ),
    *(
        b"null",
        b"true",
        b"\xe2\x80\xae",
        b"a,b,,c",
        b";",
        b"=",
        b'"',
        b"\t",
        b"\\ud800",
        b"\xc2\x85",
    ),
)
URLS: Final = (
    *(
        "http://127.0.0.1:1/",
        "http://[::1",
        "http://[fe80::1%25eth0]/",
        "http://user:pw@h/",
        "//x",
        "x",
    ),
    *(
        "http://127.0.0.1:99999/",
        "http://127.0.0.1:-1/",
        "https://127.0.0.1:1/?" + "q" * 3000,
        "http://",
    ),
    *(
        "http://xn--\u200d.example/",
        "http://" + "a" * 300 + ".example/",
        "http://例え.テスト/",
        "http://./",
    ),
    *(
        "http://127.0.0.1:1/\u2028",
        "http://127.0.0.1:1/a b",
        "file:///etc/passwd",
        "http://0x7f.1/",
    ),
    *("http://[v1.x]/", "http://127.0.0.1:٣/", "http://\u00ad/", "http://127.0.0.1:1#\udfff"),
)
SECURE: Final = ("authorization", "host", "origin", "sec-fetch-site")
GENERAL: Final = (
    *("Accept", "Authorization", "Content-Type", "Content-Length", "Transfer-Encoding", "Expect"),
    *("If-Match", "If-Unmodified-Since", "X-Request-ID", "X-Forwarded-For", "X-Forwarded-Proto"),
    *("Upgrade", "Connection", "traceparent", "X-Broker-Signature", "Cookie", "Forwarded", "Range"),
    *("X-Broker-Message-ID", "Idempotency-Key", "X-Broker-Metadata-Headers", "Content-Encoding"),
    *("Host", "Origin", "Sec-Fetch-Site", "TE", "Via", "Accept-Encoding"),
)
DEEP: Final = (b"[" * 20_000, b'{"a":' * 20_000, b'{"settings":' + b"[" * 5000)
CHUNKS: Final = (
    *(
        b"5\r\nhello\r\n0\r\n\r\n",
        b"fffffffffffffffff\r\nx",
        b"-1\r\nx\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
    ),
    *(
        b"5;ext=" + b"y" * 2000 + b"\r\nhello\r\n0\r\n\r\n",
        b"5\nhello\n0\n\n",
        b"\r\n\r\n",
        b"1\r\nab\r\n0\r\n\r\n",
    ),
)


class Shared:
    """What earlier answers told: ids, leases, cursors, which later requests use rightly or wrongly."""

    def __init__(self) -> None:
        self.jobs: list[tuple[str, str]] = []
        self.cursors: list[str] = []
        self.versions: list[str] = []

    def learn(self, answer: bytes) -> None:
        """Remember what is of use, the newest of it."""
        self.jobs += [
            (job.decode(), lease.decode())
            for job, lease in re.findall(rb'"id":"(\d+)","lease":"([^"]+)"', answer)
        ]
        self.jobs += [(job.decode(), "x") for job in re.findall(rb'"ID":"(\d+)"', answer)]
        self.cursors += [c.decode() for c in re.findall(rb"(?:next|previous)=([\w=-]+)", answer)]
        self.versions += [
            v.decode("latin-1") for v in re.findall(rb"(?i)last-modified: ([^\r]+)", answer)
        ]
        self.versions += [v.decode("latin-1") for v in re.findall(rb"(?i)etag: ([^\r]+)", answer)]
        for kept in (self.jobs, self.cursors, self.versions):
            del kept[:-50]


def text(rng: random.Random) -> bytes:
    """Any value of a stranger."""
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice(NUMBERS).encode()
    if kind == 1:
        return rng.choice(DATES).encode()
    if kind == 2:
        return rng.choice(URLS).encode("utf-8", "surrogatepass")
    if kind == 3:
        return rng.randbytes(rng.choice((1, 2, 8, 40)))
    return rng.choice(TEXTS) * rng.choice((1, 1, 1, 2))


def request(rng: random.Random, shared: Shared) -> tuple[bytes, bool]:
    """One request, as it goes over the wire, and whether it is all there: the service waits for the rest."""
    endpoint = rng.choice(ENDPOINTS)
    method = endpoint.method if rng.random() < 0.95 else rng.choice(("PUT", "OPTIONS", "HEAD", "X"))
    headers = _headers(rng, endpoint, shared)
    body, framing, whole = _framed(rng, _body(rng, endpoint, shared))
    lines = [b"%s %s HTTP/1.1" % (method.encode(), _target(rng, endpoint, shared))]
    lines += [b"%s: %s" % (name.encode(), value) for name, value in headers.items()]
    return b"\r\n".join([*lines, framing, b"", b""]) + body, whole


def _target(rng: random.Random, endpoint: Endpoint, shared: Shared) -> bytes:
    known = {
        "channelId": rng.choice(("f0", "f1", "safe")),
        "consumerId": rng.choice(("pull", "push0", "push1", "fresh")),
        "producerId": rng.choice(("p", "p2")),
        "messageId": rng.choice(("m1", "m2", "none")),
        "jobId": rng.choice(shared.jobs)[0] if shared.jobs else "1",
        "scheduleId": rng.choice(("s1", "s2")),
        "keyId": "0123456789abcdef",
        "feedId": rng.choice(("ORDERS", "none")),
    }
    path = endpoint.path
    for name in re.findall(r"{(\w+)}", path):
        value = known[name]
        if rng.random() < 0.15:
            value = quote_from_bytes(text(rng)) if rng.random() < 0.9 else "%zz%"
        elif name == "channelId" and value == "safe" and endpoint.method != "GET":
            value = "f0"  # the run ends with a look whether this channel still works
        path = path.replace(f"{{{name}}}", value or "-")
    names = [parameter.name for parameter in endpoint.parameters if parameter.where == "query"]
    pairs = []
    for name in (*names, "x") if rng.random() < 0.6 else ():
        value = quote_from_bytes(text(rng))
        if name in ("next", "previous") and shared.cursors and rng.random() < 0.5:
            value = rng.choice(shared.cursors)
        pairs.append(f"{name}={value}")
    return (path + ("?" + "&".join(pairs) if pairs else "")).encode()


def _headers(rng: random.Random, endpoint: Endpoint, shared: Shared) -> dict[str, bytes]:
    right = {
        "X-Broker-Channel-Token": b"ct",
        "X-Broker-Consumer-Token": b"kt",
        "X-Broker-Producer-ID": b"p",
        "X-Broker-Producer-Token": b"pt",
    }
    headers = {"Host": b"127.0.0.1", "Connection": b"close"}
    headers |= {name: right[name] for name in endpoint.tokens}
    if endpoint.form:
        headers["Content-Type"] = b"application/x-www-form-urlencoded"
    elif endpoint.body is not None:
        headers["Content-Type"] = b"application/json"
    if shared.versions and rng.random() < 0.3:
        headers[rng.choice(("If-Match", "If-Unmodified-Since"))] = rng.choice(
            shared.versions
        ).encode()
    extra = [parameter.name for parameter in endpoint.parameters if parameter.where == "header"]
    for _ in range(rng.choice((0, 0, 1, 2, 4))):
        name = rng.choice((*GENERAL, *extra, *extra, *endpoint.tokens))
        if name.lower() in SECURE and rng.random() < 0.8:
            continue  # most of them would only be refused
        value = text(rng)
        if rng.random() < 0.97:
            value = value.replace(b"\0", b"").replace(b"\r", b"").replace(b"\n", b"")
        headers[name] = value[:8000]
    return headers


def _framed(rng: random.Random, body: bytes) -> tuple[bytes, bytes, bool]:
    """The body, the header that says where it ends, and whether that is true."""
    kind = rng.random()
    if kind < 0.85:
        return body, b"Content-Length: %d" % len(body), True
    if kind < 0.9:
        return rng.choice(CHUNKS), b"Transfer-Encoding: chunked", False
    if kind < 0.95:
        chunk = b"%x\r\n%s\r\n" % (len(body), body) if body else b""
        return chunk + b"0\r\n\r\n", b"Transfer-Encoding: chunked", True
    length = rng.choice((b"-1", b"9" * 30, b"1", b"x", b"0x5", b" 3", b"1,1"))
    return body, b"Content-Length: " + length, False


def _body(rng: random.Random, endpoint: Endpoint, shared: Shared) -> bytes:
    if rng.random() < 0.04:
        return rng.choice(DEEP)
    if rng.random() < 0.06:
        return text(rng)
    if endpoint.form:
        return _form(rng, endpoint)
    if endpoint.path.endswith("/job/{jobId}") and endpoint.method == "POST":
        return _json(
            rng, {"NextState": _state(rng), "IncrementalTimeout": rng.choice((0, 1, 10**30, -1))}
        )
    if endpoint.body is not None:
        return _json(rng, _document(rng, endpoint.body, shared))
    return rng.choice((b"", b"x", b'{"a": 1}', text(rng)))


def _state(rng: random.Random) -> Any:
    return rng.choice(("INFLIGHT", "DELIVERED", "DEAD", "QUEUED", "", "\0", None, 5, "É"))


def _form(rng: random.Random, endpoint: Endpoint) -> bytes:
    pairs = []
    for field in endpoint.form:
        if rng.random() < 0.6:
            value = text(rng)
            if field.name == "callbackUrl":
                value = rng.choice(URLS).encode("utf-8", "surrogatepass")
            elif field.name == "type":
                value = rng.choice((b"push", b"pull", b"", value))
            elif field.name == "token":
                value = rng.choice((b"kt", b"ct", value))
            pairs.append(f"{field.name}={quote_from_bytes(value)}")
    if rng.random() < 0.1:
        pairs.append(quote_from_bytes(text(rng)) + "=" + quote_from_bytes(text(rng)))
    return "&".join(pairs).encode()


def _json(rng: random.Random, document: Any) -> bytes:
    """JSON, at times with what no JSON may have in it."""
    made = json.dumps(document).encode()
    if rng.random() < 0.1:
        at = rng.randrange(len(made) + 1)
        made = (
            made[:at]
            + rng.choice((b"\xff", b"\0", b"NaN", b"1e999", b"\\ud800", b",", b"}"))
            + made[at:]
        )
    return made


def _document(rng: random.Random, kind: Any, shared: Shared) -> Any:
    """A value of ``kind``, or something else in its place."""
    if rng.random() < 0.12:
        return _anything(rng, 0)
    origin = get_origin(kind)
    if origin in (types.UnionType,) or str(origin) == "typing.Union":
        return _document(rng, rng.choice(get_args(kind)), shared)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(rng, kind, shared)
    if origin in (list, tuple):
        return [
            _document(rng, get_args(kind)[0], shared) for _ in range(rng.choice((0, 1, 1, 2, 30)))
        ]
    if kind is int:
        return rng.choice((0, 1, 5, 500, 501, -1, 2**31, 2**63, 10**40))
    if kind is float:
        return rng.choice(
            (0, 1, 2.5, 30, 3600, 1e308, -1, 10**400, float("nan"), float("inf"), 5e-324)
        )
    if kind is bool:
        return rng.choice((True, False))
    if kind is type(None):
        return None
    if kind is str:
        return text(rng).decode("utf-8", "surrogateescape")
    return _anything(rng, 0)


def _struct(rng: random.Random, kind: type[msgspec.Struct], shared: Shared) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if not field.required and rng.random() < 0.5:
            continue
        made[field.encode_name] = _document(rng, field.type, shared)
    if "lease" in made and shared.jobs and rng.random() < 0.8:
        made["id"], made["lease"] = rng.choice(shared.jobs)
    if "wait_seconds" in made:
        made["wait_seconds"] = rng.choice((0, 0.01, -1, "1", 10**400, 61))
    if "cron" in made and rng.random() < 0.7:
        made["cron"] = rng.choice(
            ("* * * * * *", "@daily", "0 0 29 2 *", "*/0 * * * *", "1-0 * * * *")
        )
    if "time_zone" in made and rng.random() < 0.7:
        made["time_zone"] = rng.choice(("UTC", "Europe/Berlin", "../zone", "\0", ".", "/"))
    if "settings" in made and rng.random() < 0.7:
        made["settings"] = {
            rng.choice(
                (
                    "retry",
                    "breaker",
                    "timeout_s",
                    "concurrency",
                    "rate_per_s",
                    "sign",
                    "filter",
                    "no",
                )
            ): (_anything(rng, 0))
        }
    return made


def _anything(rng: random.Random, depth: int) -> Any:
    kind = rng.randrange(9 if depth < 4 else 6)
    if kind == 0:
        return rng.choice((None, True, False))
    if kind == 1:
        return rng.choice((0, -1, 10**18, 2**63, 10**40, 1.5, float("nan"), float("-inf"), 1e-320))
    if kind in (2, 3):
        return text(rng).decode("utf-8", "surrogateescape")
    if kind in (4, 5):
        return rng.choice(NUMBERS)
    if kind == 6:
        return [_anything(rng, depth + 1) for _ in range(rng.randrange(4))]
    names = (
        "delays_s",
        "base_s",
        "cap_s",
        "jitter",
        "kind",
        "failures",
        "open_s",
        "disable_after_s",
        "subjects",
        "headers",
        "a",
    )
    return {rng.choice(names): _anything(rng, depth + 1) for _ in range(rng.randrange(4))}
