"""``Nats-Request-Info``: only the server says who asks, however a client writes that it were another."""

from __future__ import annotations

import email.parser
import json
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import machine
from headrace.broker.core import server_headers
from headrace.broker.core.server_headers import (
    with_own_places,
    with_place,
    with_places,
    with_requester,
    without_requester,
)

WHO = {"acc": "TOWN"}
TRUE = b'Nats-Request-Info: {"acc":"TOWN"}\r\n\r\n'
LIE = b'Nats-Request-Info: {"acc":"MILL"}'


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        (b"", b"NATS/1.0\r\n" + TRUE),
        (b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\n" + TRUE),
        (b"NATS/1.0\r\nA: b\r\n\r\n", b"NATS/1.0\r\nA: b\r\n" + TRUE),
        (b"NATS/1.0\r\n%b\r\nA: b\r\n\r\n" % LIE, b"NATS/1.0\r\nA: b\r\n" + TRUE),
        (b"NATS/1.0\r\nA: b\r\n%b\r\nC: d\r\n%b\r\n\r\n" % (LIE, LIE),
         b"NATS/1.0\r\nA: b\r\nC: d\r\n" + TRUE),
        (b"NATS/1.0 503 Gone\r\n%b\r\n\r\n" % LIE, b"NATS/1.0 503 Gone\r\n" + TRUE),
        # What a reader less strict than the wire would take for a line of its own.
        (b"NATS/1.0\r\nA: b\n%b\r\n\r\n" % LIE, b"NATS/1.0\r\nA: b\r\n" + TRUE),
        (b"NATS/1.0\r\nA: b\r%b\r\n\r\n" % LIE, b"NATS/1.0\r\nA: b\r\n" + TRUE),
        (b"NATS/1.0\r\n%b\r\n\r\n" % LIE.lower(), b"NATS/1.0\r\n" + TRUE),
        (b"NATS/1.0\r\n%b\r\n\r\n" % LIE.upper(), b"NATS/1.0\r\n" + TRUE),
        (b"NATS/1.0\r\n%b\r\n\r\n" % LIE.replace(b":", b" \t:", 1), b"NATS/1.0\r\n" + TRUE),
        (b"NATS/1.0\r\n \t%b\r\n\r\n" % LIE, b"NATS/1.0\r\n" + TRUE),
        (b"NATS/1.0\r\nNats-Request-Info:\r\n {}\r\n\t\r\nA: b\r\n\r\n", b"NATS/1.0\r\nA: b\r\n" + TRUE),
        # The truth must be seen: not behind an empty line, nor as the tail of another.
        (b"NATS/1.0\r\n\r\nA: b\r\n\r\n", b"NATS/1.0\r\n" + TRUE),
        (b"NATS/1.0\r\nA: b\n\nC: d\r\n\r\n", b"NATS/1.0\r\nA: b\r\n" + TRUE),
        (b"NATS/1.0\r\nA: b\r\rC: d\r\n\r\n", b"NATS/1.0\r\nA: b\r\n" + TRUE),
        (b"NATS/1.0\r\nA: b", b"NATS/1.0\r\nA: b\r\n" + TRUE),
        (b"NATS/1.0\r\nA: b\r\n", b"NATS/1.0\r\nA: b\r\n" + TRUE),
        # What only looks like it is somebody's own.
        (b"NATS/1.0\r\nX-Nats-Request-Info: 1\r\n\r\n",
         b"NATS/1.0\r\nX-Nats-Request-Info: 1\r\n" + TRUE),
        (b"NATS/1.0\r\nNats-Request-Info-2: 1\r\n\r\n",
         b"NATS/1.0\r\nNats-Request-Info-2: 1\r\n" + TRUE),
        (b"NATS/1.0\r\nA: Nats-Request-Info: 1\r\n\r\n",
         b"NATS/1.0\r\nA: Nats-Request-Info: 1\r\n" + TRUE),
    ],
)  # fmt: skip
def test_the_server_has_the_only_word(said: bytes, heard: bytes) -> None:
    found = with_requester(said, WHO)
    assert found == heard
    read = email.parser.BytesParser().parsebytes(found.partition(b"\r\n")[2])  # as nats-py reads it
    assert [json.loads(value) for value in read.get_all("nats-request-info", [])] == [WHO]


@pytest.mark.parametrize(
    "unit", [b"\r\n", b"\n", b"\r", b"\r\n ", b" ", b"\r\nnats-request-info", b"\r\n\t:"]
)
def test_a_large_block_takes_no_longer_than_its_size(unit: bytes) -> None:
    said = b"NATS/1.0\r\nnats-request-info: 1" + unit * (1_000_000 // len(unit)) + b"\r\n\r\n"
    before = time.process_time()
    with_requester(said, WHO)
    assert machine.pieces(time.process_time() - before) < 800  # some few; squared, it were millions


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (b"", b""),
        (b"NATS/1.0\r\nA: b\r\n\r\n", b"NATS/1.0\r\nA: b\r\n\r\n"),
        (b"NATS/1.0\r\n%b\r\n\r\n" % LIE, b""),
        (b"NATS/1.0\r\n%b\r\nA: b\r\n%b\r\n\r\n" % (LIE, LIE), b"NATS/1.0\r\nA: b\r\n\r\n"),
    ],
)
def test_nobody_asked_who_is_read_later(said: bytes, kept: bytes) -> None:
    assert without_requester(said) == kept


PIN = b"Nats-Pin-Id: one\r\n"
PIECES = [
    b"\r\n",
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b"A: b",
    b"nats-pin-id: mine",
    b"Nats-Pin-Id:",
    b"x",
]
pieces = st.lists(st.sampled_from(PIECES), max_size=6).map(b"".join)
orderly = st.sampled_from(
    [b"", b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\nA: b\r\n\r\n", b"NATS/1.0\r\nNats-Pin: b\r\n\r\n"]
)
odd = st.builds(b"%b%b%b".__mod__, st.tuples(
    st.sampled_from([b"", b"NATS/1.0", b"NATS/1.0\r\n"]), pieces,
    st.sampled_from([b"", b"\r\n", b"\r\n\r\n", b"\r\n\r\n"]),
))  # fmt: skip


@given(st.lists(orderly | odd, min_size=1, max_size=5))
@example([b"\r\n\r\n", b"NATS/1.0\r\n\r\n"])
@example([b"NATS/1.0\r\n\r\n\r\n", b"NATS/1.0\r\n\r\n"])
@example([b"NATS/1.0\r\nA: b\r\n\r\nB: c\r\n\r\n", b"NATS/1.0\r\nA: b"])
@example([b"NATS/1.0\r\nA: b\n", b"\r\n\r\n"])
def test_many_are_told_their_place_as_each_alone(blocks: list[bytes]) -> None:
    expected = [
        server_headers._with(block, PIN) if block else b"NATS/1.0\r\n%b\r\n" % PIN
        for block in blocks
    ]
    assert with_places(blocks, PIN) == expected
    assert [with_place(block, PIN) for block in blocks] == expected


@given(st.lists(orderly | odd, min_size=1, max_size=5))
@example([b"NATS/1.0\r\nA: b\r\n\r\n", b"", b"NATS/1.0\r\nB: c\r\n\r\n"])
@example([b"\r\n\r\n", b"NATS/1.0\r\n\r\n"])
def test_many_are_told_places_of_their_own_as_each_alone(blocks: list[bytes]) -> None:
    form = b"Nats-Pin: %d\r\n"
    lines = [form % number for number in range(len(blocks))]
    expected = [with_place(block, each, form) for block, each in zip(blocks, lines, strict=True)]
    assert with_own_places(blocks, lines, form) == expected


def test_an_orderly_block_is_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken_apart(*args: object) -> bytes:
        raise AssertionError(args)

    monkeypatch.setattr(server_headers, "_with", taken_apart)
    block = b"NATS/1.0\r\nNats-Stream-Source: O 1 > > a\r\n\r\n"
    told = block[:-2] + PIN + b"\r\n"
    assert with_place(block, PIN) == told
    bare = b"NATS/1.0\r\n%b\r\n" % PIN
    assert with_places([block, b"", block], PIN) == [told, bare, told]


def test_where_a_message_came_from_is_not_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message of an elastic group has such a header: the quick way has to take it."""
    block = b"NATS/1.0\r\nNats-Stream-Source: S 1 > > s.a\r\n\r\n"
    form = b"Nats-Stream: %b\r\nNats-Sequence: %d\r\n"
    lines = [form % (b"S", number) for number in range(100)]
    slowly = [server_headers._with(block, line) for line in lines]
    monkeypatch.setattr(server_headers, "_with", None)
    server_headers._names_in.cache_clear()
    assert [with_place(block, line, form) for line in lines] == slowly
    assert server_headers._names_in.cache_info().misses == 1
