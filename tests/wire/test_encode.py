"""Frames out: the exact bytes. That they parse back is in test_parser."""

from __future__ import annotations

from headrace.wire import encode

BLOCK = b"NATS/1.0\r\nA: b\r\n\r\n"


def test_pub_is_hpub_with_headers() -> None:
    assert encode.pub(b"a", b"", b"", b"hi") == b"PUB a 2\r\nhi\r\n"
    assert encode.pub(b"a", b"r", b"", b"") == b"PUB a r 0\r\n\r\n"
    assert encode.pub(b"a", b"", BLOCK, b"hi") == b"HPUB a 18 20\r\n" + BLOCK + b"hi\r\n"
    assert encode.pub(b"a", b"r", BLOCK, b"") == b"HPUB a r 18 18\r\n" + BLOCK + b"\r\n"


def test_subscriptions() -> None:
    assert encode.sub(b"a.>", b"", b"1") == b"SUB a.> 1\r\n"
    assert encode.sub(b"a.>", b"q", b"1") == b"SUB a.> q 1\r\n"
    assert encode.unsub(b"1") == b"UNSUB 1\r\n"
    assert encode.unsub(b"1", 5) == b"UNSUB 1 5\r\n"


def test_the_rest() -> None:
    assert encode.connect(b"{}") == b"CONNECT {}\r\n"
    assert encode.info(b"{}") == b"INFO {}\r\n"
    assert encode.ping() + encode.pong() + encode.ok() == b"PING\r\nPONG\r\n+OK\r\n"
    assert encode.err("Stale Connection") == b"-ERR 'Stale Connection'\r\n"


def test_an_error_text_cannot_smuggle_a_line() -> None:
    assert encode.err("no\r\nPING") == b"-ERR 'no PING'\r\n"
