"""The payloads of a subscription's messages are those that the parser finds, only faster."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deliveries import msg
from headrace.wire import Parser, PayloadReader, encode
from headrace.wire.frames import MSG, Frame

SID = b"7"
BLOCK = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n"
REPLIES = st.sampled_from([b"$JS.ACK.S.c.1.9.9.1.0", b"$JS.ACK.S.c.1.10.10.1.0", b"r", b""])
SUBJECTS = st.sampled_from([b"a", b"a.b", b"7", b"x" * 9, b"\x01", b"\xc3\xbc"])
PAYLOADS = st.one_of(
    st.integers(0, 30).map(lambda size: b"x" * size),
    st.just(b"y" * 12),
    st.sampled_from(
        [
            b"\r",
            b"\n",
            b"\r\n",
            b"x\r\n",
            b"ab\r\nMSG a 7 r 2\r\nxy",
            b"\r\nMSG ",
            b"MSG a 7 r 0\r\n",
        ]
    ),
)
BLOCKS = st.sampled_from([b"", b"", b"", BLOCK % 1, BLOCK % 1, BLOCK % 22, b"NATS/1.0 100\r\n\r\n"])
SIDS = st.sampled_from([SID] * 9 + [b"77"])
DELIVERIES = st.builds(lambda *fields: (MSG, *fields), SUBJECTS, SIDS, REPLIES, BLOCKS, PAYLOADS)
RUNS = st.lists(st.tuples(DELIVERIES, st.integers(1, 6)), max_size=8).map(
    lambda runs: [frame for frame, times in runs for _ in range(times)]
)


def encoded(frames: list[Frame]) -> bytes:
    return b"".join([msg(*frame[1:]) for frame in frames])


def ack(number: int) -> bytes:
    return b"$JS.ACK.STREAM.consumer.1.%d.%d.1763800000000000000.%d" % (number, number, 9 - number)


def check_equal(data: bytes) -> int:
    """Check against the parser; how many messages were read as payloads."""
    payloads, end, reply, has_headers = PayloadReader(SID).read(data)
    plain = Parser.for_client().feed(data)
    rest = Parser.for_client().feed(data[end:])
    count = len(payloads)
    assert payloads == [frame[5] for frame in plain[:count]]
    assert all(frame[2] == SID and frame[3] for frame in plain[:count])
    assert has_headers == any(frame[4] for frame in plain[:count])
    assert [repr(frame) for frame in rest] == [repr(frame) for frame in plain[count:]]
    assert reply == (plain[count - 1][3] if count else b"")
    return count


@given(RUNS, st.integers(0, 60))
@example([(MSG, b"a", SID, b"r", b"", b"")] * 5, 0)
def test_the_payloads_and_the_rest_are_those_of_the_parser(frames: list[Frame], cut: int) -> None:
    data = encoded(frames)
    check_equal(data[: len(data) - cut])


@given(RUNS, st.integers(0, 2000), st.binary(max_size=3))
def test_damage_is_left_to_the_parser(frames: list[Frame], at: int, damage: bytes) -> None:
    data = encoded(frames)
    at %= len(data) + 1
    check_equal(data[:at] + damage + data[at + 1 :])


def rows(payloads: list[bytes], block: bytes = b"") -> bytes:
    frames: list[Any] = [
        (MSG, b"s.%d" % (n % 11), SID, ack(n), block, payload)
        for n, payload in enumerate(payloads, 1)
    ]
    return encoded(frames)


@pytest.mark.parametrize(
    ("what", "data"),
    [
        ("of one size, with line ends in them", rows([b"a\r\nb\r\n%05d" % n for n in range(3000)])),
        ("of many sizes", rows([b'{"n": %d}' % n for n in range(3000)])),
        ("of many sizes, some empty", rows([b"x" * (n % 5) for n in range(3000)])),
        ("empty", rows([b""] * 3000)),
        ("of one size, with headers", rows([b"%05d" % n for n in range(3000)], BLOCK % 123456)),
    ],
)
def test_usual_messages_are_all_read_as_payloads(what: str, data: bytes) -> None:
    assert check_equal(data) == 3000
    # … and of a part of the bytes, all but the message that is cut.
    half = data[: len(data) // 2]
    assert check_equal(half) == len(Parser.for_client().feed(half))


def test_a_message_inside_a_payload_is_part_of_it() -> None:
    inner = msg(b"a", SID, ack(1), b"", b"inner")[:-2]
    assert check_equal(rows([b"before", inner, b"after" * 9])) == 0
    assert check_equal(rows([inner] * 5)) == 5


def test_payloads_that_end_as_they_should_not_are_left_to_the_parser() -> None:
    data = rows([b"12345"] * 4) + b"MSG a 7 %b 5\r\n12345678\r\n" % ack(5)
    assert check_equal(data) == 0


def test_the_messages_of_others_end_it() -> None:
    mine, other = rows([b"mine"] * 600), msg(b"a", b"8", b"r", b"", b"mine")
    assert check_equal(other + mine) == 0
    assert check_equal(mine * 4 + other + mine) >= 600


def test_more_sizes_than_there_are_expressions_for_are_read_as_if_they_differed() -> None:
    reader = PayloadReader(SID, shapes_max=1)
    for size in (5, 6):
        data = rows([b"x" * size] * 40)
        assert reader.read(data).each == [b"x" * size] * 40
    binary = rows([b"\r" * 6] * 40)
    assert reader.read(binary).each == []
    assert PayloadReader(SID).read(binary).each == [b"\r" * 6] * 40


def test_large_messages_are_left_to_the_parser() -> None:
    large = PayloadReader.MESSAGE_BYTES_MAX + 1
    assert check_equal(rows([b"x" * large] * 3)) == 0
    assert check_equal(rows([b"x" * (large - 1)] * 3)) == 3


def test_frames_that_are_not_messages_are_left_to_the_parser() -> None:
    assert check_equal(encode.ping() + rows([b"x"] * 9)) == 0
