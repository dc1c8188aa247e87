"""Messages of one shape in a row are read like any others, only faster."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire import Parser
from headrace.wire.frames import BAD, MSG, PUB, Frame
from headrace.wire.repeats import REPEATED_PAYLOAD_BYTES_MAX, repeat_pattern

from .runs import check_damaged, encoded

SIZES = st.sampled_from([0, 1, 3, 3, 3])
WORDS = st.sampled_from([b"a", b"a.b", b"$JS.ACK.x", b"x" * 9, b"\x01\x7f", b"\xc3\xbc\xff"])
REPLIES = st.sampled_from([b"", b"r", b"_INBOX.a.1"])
HEADERS = st.sampled_from(
    [
        b"",
        b"",
        b"NATS/1.0\r\n\r\n",
        b"NATS/1.0\r\nNats-Msg-Id: a\r\n\r\n",
        b"NATS/1.0\r\nNats-Msg-Id: b\r\n\r\n",
    ]
)
FILLS = st.sampled_from([b"x", b"\n", b"\r", b" "])

PUBLISHES = st.builds(
    lambda word, reply, headers, size, fill: (PUB, word, reply, headers, fill * size),
    WORDS, REPLIES, HEADERS, SIZES, FILLS,
)  # fmt: skip
DELIVERIES = st.builds(
    lambda word, sid, reply, headers, size, fill: (MSG, word, sid, reply, headers, fill * size),
    WORDS, WORDS, REPLIES, HEADERS, SIZES, FILLS,
)  # fmt: skip


@given(st.lists(PUBLISHES, max_size=12))
def test_publishes_in_runs_come_back(frames: list[Frame]) -> None:
    assert Parser.for_server().feed(encoded(frames)) == frames


@given(st.lists(DELIVERIES, max_size=12))
def test_deliveries_in_runs_come_back(frames: list[Frame]) -> None:
    assert Parser.for_client().feed(encoded(frames)) == frames


@given(st.lists(PUBLISHES, min_size=4, max_size=10), st.integers(0, 500), st.binary(max_size=3))
def test_a_damaged_run_is_read_and_refused_as_without_runs(
    frames: list[Frame], at: int, damage: bytes
) -> None:
    check_damaged(frames, at, damage)


def test_a_run_does_not_lift_the_limit_of_a_line() -> None:
    line = b"PUB %b 1\r\nx\r\n"
    short, long = line % (b"s" * 30), line % (b"s" * 41)
    frames = Parser.for_server(max_control_line=40).feed(short * 3 + long)
    assert [frame[0] for frame in frames] == [PUB, PUB, PUB, BAD]


def test_an_incomplete_message_at_the_end_of_a_run_waits_for_its_rest() -> None:
    data = encoded([(PUB, b"a", b"", b"", b"xyz")] * 5)
    parser = Parser.for_server()
    assert len(parser.feed(data[:-3])) == 4
    assert len(parser.feed(data[-3:])) == 1
    assert parser.held_bytes == 0


def test_a_run_does_not_lift_the_limit_of_a_line_with_headers() -> None:
    line = b"HPUB %b 12 13\r\nNATS/1.0\r\n\r\nx\r\n"
    short, long = line % (b"s" * 30), line % (b"s" * 41)
    frames = Parser.for_server(max_control_line=40).feed(short * 3 + long)
    assert [frame[0] for frame in frames] == [PUB, PUB, PUB, BAD]


@given(st.lists(PUBLISHES, max_size=12), st.lists(st.integers(0, 400), max_size=4))
def test_runs_cut_anywhere_are_read_as_whole_ones(frames: list[Frame], cuts: list[int]) -> None:
    data = encoded(frames)
    parser = Parser.for_server()
    edges = [0, *sorted(cuts), len(data)]
    parts = [data[start:stop] for start, stop in itertools.pairwise(edges)]
    assert [frame for part in parts for frame in parser.feed(part)] == frames


def test_messages_of_one_size_whose_headers_differ_in_size_are_no_run() -> None:
    long, short = b"NATS/1.0\r\nA: bc\r\n\r\n", b"NATS/1.0\r\nA: b\r\n\r\n"
    frames: list[Frame] = [(PUB, b"a", b"", long, b"x"), (PUB, b"a", b"", short, b"xy")] * 4
    frames += [(PUB, b"a", b"", b"", b"x" * (len(long) + 1))] * 3
    assert Parser.for_server().feed(encoded(frames)) == frames


def test_a_peer_cannot_make_the_parser_compile_forever() -> None:
    repeat_pattern.cache_clear()
    parser = Parser.for_server()
    for size in range(200):
        frames = [(PUB, b"a", b"", b"", b"x" * size)] * 4
        assert parser.feed(encoded(frames)) == frames
    assert repeat_pattern.cache_info().misses <= 32


@pytest.mark.parametrize("size", [REPEATED_PAYLOAD_BYTES_MAX, REPEATED_PAYLOAD_BYTES_MAX + 1])
def test_large_messages_are_read_with_and_without_runs(size: int) -> None:
    frames = [(PUB, b"a", b"r", b"", b"x" * size)] * 4
    assert Parser.for_server().feed(encoded(frames)) == frames
