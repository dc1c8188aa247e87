"""Messages of one kind and many sizes in a row are read like any others, only faster."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire import Parser, parser
from headrace.wire import repeats as varied
from headrace.wire.frames import BAD, MSG, PUB, Frame

from .runs import byte_by_byte, check_damaged, encoded, told

REPLIES = st.sampled_from([b"", b"r", b"r", b"_INBOX.a.1", b"12"])
SUBJECTS = st.sampled_from([b"a", b"a.b", b"7", b"x" * 9, b"\x01\x7f", b"\xc3\xbc\xff"])
PAYLOADS = st.one_of(
    st.integers(0, 40).map(lambda size: b"x" * size),
    st.sampled_from([b"\r", b"\n", b"\r\n", b"a\r\nPUB a 1\r\nx", b"x\r\n", b"\nMSG"]),
)
BLOCKS = st.sampled_from([b""] * 6 + [b"NATS/1.0\r\nA: b\r\n\r\n"])
PUBLISHES = st.builds(lambda *fields: (PUB, *fields), SUBJECTS, REPLIES, BLOCKS, PAYLOADS)
DELIVERIES = st.builds(
    lambda *fields: (MSG, *fields), SUBJECTS, SUBJECTS, REPLIES, BLOCKS, PAYLOADS
)


@given(st.lists(PUBLISHES, max_size=20))
def test_publishes_of_many_sizes_come_back(frames: list[Frame]) -> None:
    assert Parser.for_server().feed(encoded(frames)) == frames


@given(st.lists(DELIVERIES, max_size=20))
def test_deliveries_of_many_sizes_come_back(frames: list[Frame]) -> None:
    assert Parser.for_client().feed(encoded(frames)) == frames


@given(st.lists(PUBLISHES, min_size=4, max_size=12), st.integers(0, 500), st.binary(max_size=3))
def test_damage_is_read_and_refused_as_without_runs(
    frames: list[Frame], at: int, damage: bytes
) -> None:
    check_damaged(frames, at, damage)


@given(st.lists(DELIVERIES, max_size=12), st.lists(st.integers(0, 800), max_size=6))
def test_runs_cut_anywhere_are_read_as_whole_ones(frames: list[Frame], cuts: list[int]) -> None:
    data = encoded(frames)
    bounds = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    reader = Parser.for_client()
    found = [f for a, b in itertools.pairwise(bounds) for f in reader.feed(data[a:b])]
    assert found == frames
    assert reader.held_bytes == 0


@pytest.mark.parametrize("reply", [b"", b"$JS.ACK.S.c.1.2.3.4.5"])
@pytest.mark.parametrize("odd", [None, b"a\r\nb", b"\r", b"\n" * 50])
def test_a_long_run_is_read_by_the_expression(
    reply: bytes, odd: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = 0
    read_varied = varied.read_varied

    def counted(*arguments: Any) -> int:
        nonlocal read
        before = len(arguments[-1])
        end = read_varied(*arguments)
        read += len(arguments[-1]) - before
        return end

    monkeypatch.setattr(parser, "read_varied", counted)
    frames: list[Frame] = [
        (MSG, b"bench.%d" % n, b"2", reply, b"", b"y" * (n * 37 % 211)) for n in range(3000)
    ]
    if odd is not None:
        frames[1500] = (*frames[1500][:5], odd)
    assert Parser.for_client().feed(encoded(frames)) == frames
    assert read > 2900


def test_a_size_that_is_wrong_is_refused_as_without_runs() -> None:
    good = encoded([(PUB, b"a", b"", b"", b"x" * n) for n in range(2, 9)])
    for wrong in (
        b"PUB a 3\r\nxxxx\r\n",
        b"PUB a 5\r\nxx\r\nPUB a 1\r\nx\r\n",
        b"PUB a 999\r\nx\r\n",
    ):
        data = good + wrong + good
        whole = Parser.for_server(max_payload=100).feed(data)
        assert told(whole) == told(byte_by_byte(Parser.for_server(max_payload=100), data))
        assert whole[-1][0] == BAD


def test_a_run_does_not_lift_the_limit_of_a_payload() -> None:
    frames: list[Frame] = [(PUB, b"a", b"", b"", b"x" * n) for n in range(2, 30)]
    found = Parser.for_server(max_payload=20).feed(encoded(frames))
    assert found[:-1] == frames[:19]
    assert found[-1][1].wire_text == "Maximum Payload Violation"
