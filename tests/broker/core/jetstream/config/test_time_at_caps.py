"""The event loop: how long one request of each shape, at the caps or beyond them, holds it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from headrace.limits import API_REQUEST_BYTES_MAX
from jetstream_world import Client, World
from machine import pieces

from ..stream.test_listening import TURN_MAX, asked

STREAM, CONSUMER, LISTING = "STREAM.CREATE.T", "CONSUMER.CREATE.S.C", "STREAM.LIST"


def listed(field: str, value: str, count: int) -> bytes:
    """A request with so many of a value, as large as one may be."""
    body = '{"name":"T","%s":[%s]}' % (field, ",".join([value] * count))  # noqa: UP031
    return body.encode().ljust(API_REQUEST_BYTES_MAX)


def rules(count: int, tokens: int, *, each: bool) -> dict[str, Any]:
    """A stream with so many transforms, of one source or of one source each."""
    found = []
    for number in range(count):
        source = ".".join([f"a{number}", *["*"] * (tokens - 1)])
        names = [f"{{{{wildcard({place})}}}}" for place in range(2, tokens)]
        function = f"b{number}.{{{{partition(10,1)}}}}"
        found.append({"src": source, "dest": ".".join([function, *names])})
    if each:
        sources = [
            {"name": f"S{number}", "subject_transforms": [rule]}
            for number, rule in enumerate(found)
        ]
    else:
        sources = [{"name": "X", "subject_transforms": found}]
    return {"name": "T", "sources": sources}


def external(number: int) -> dict[str, Any]:
    return {
        "name": f"S{number}",
        "external": {"api": f"A{number}.API", "deliver": f"D{number}.x"},
        "opt_start_seq": 5,
    }


REQUESTS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "blanks": (LISTING, lambda: b'{"offset":0}'.ljust(API_REQUEST_BYTES_MAX)),
    "escapes": (LISTING, lambda: b'{"more":"%b"}' % (rb"\u0041" * 170_000)),
    "lists in lists": (LISTING, lambda: listed("more", "[[[[]]]]", 49_000)),
    "objects in objects": (LISTING, lambda: listed("more", '{"a":{"b":{}}}', 49_000)),
    "lists in lists, fewer": (LISTING, lambda: listed("more", "[[[[]]]]", 3_900)),
    "sources without end": (STREAM, lambda: listed("sources", '{"name":"S"}', 49_000)),
    "ten thousand sources": (STREAM, lambda: listed("sources", '{"name":"S"}', 9_900)),
    "texts without end": (STREAM, lambda: listed("subjects", r'"\u0061.b"', 19_900)),
    "transforms of one source": (STREAM, lambda: dumped(rules(400, 3, each=False))),
    "transforms of a source each": (STREAM, lambda: dumped(rules(400, 3, each=True))),
    "a thousand sources": (
        STREAM,
        lambda: dumped({"name": "T", "sources": [external(number) for number in range(1_000)]}),
    ),
    "steps of backoff": (
        CONSUMER,
        lambda: (
            b'{"stream_name":"S","config":{"name":"C","backoff":[%b]}}'
            % b",".join([b"1000000000"] * 19_900)
        ),
    ),
}


def dumped(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


@pytest.fixture
def client() -> Client:
    client = World().client()
    client.stream("S")
    return client


@pytest.mark.parametrize("name", REQUESTS)
def test_no_request_holds_the_loop_for_long(name: str, client: Client) -> None:
    verb, made = REQUESTS[name]
    body = made()
    assert len(body) <= API_REQUEST_BYTES_MAX
    took, _ = asked(client, verb, body)
    assert pieces(took) < TURN_MAX


def test_what_is_at_the_caps_is_made_and_shown(client: Client) -> None:
    for number, name in enumerate(
        ("transforms of one source", "transforms of a source each", "a thousand sources")
    ):
        stream = f"STREAM.CREATE.T{number}"
        body = REQUESTS[name][1]().replace(b'"name":"T"', b'"name":"T%d"' % number)
        took, answer = asked(client, stream, body)
        assert "error" not in answer
        shown, _ = asked(client, f"STREAM.INFO.T{number}", b"")
        assert pieces(max(took, shown)) < TURN_MAX
