from __future__ import annotations

import pytest

from deliveries import msg
from headrace.spark.frames import Frames, Messages, PayloadChunk, Run, RunReader, sequence_of, up_to
from headrace.wire import Parser

SID = b"3"


def sent(first: int, last: int, payload: bytes = b"%04d", block: bytes = b"") -> bytes:
    ack = b"$JS.ACK.S.c.1.%d.%d.1763800000000000000.0"
    return b"".join(
        [msg(b"s", SID, ack % (n, n), block, payload % n) for n in range(first, last + 1)]
    )


def both(data: bytes) -> tuple[Run, Frames]:
    run, rest = RunReader(SID).read(data)
    assert run is not None
    assert rest == b""
    return run, Frames(Parser.for_client().feed(data))


def seen(messages: Messages) -> tuple[object, ...]:
    rows = range(len(messages))
    return (
        messages.payloads(),
        messages.payload_bytes,
        messages.payload_sizes(),
        messages.frames(),
        [messages.reply(row) for row in rows],
        [sequence_of(messages, row) for row in rows],
    )


@pytest.mark.parametrize("block", [b"", b"NATS/1.0\r\nA: b\r\n\r\n"])
def test_a_run_and_its_parts_tell_the_same_as_frames(block: bytes) -> None:
    run, frames = both(sent(1, 200, block=block))
    assert seen(run) == seen(frames)
    for begin, end in [(0, 200), (0, 7), (7, 200), (50, 60), (60, 60)]:
        part, plain = run.part(begin, end), frames.part(begin, end)
        assert seen(part) == seen(plain)
        assert seen(part.part(0, len(part) // 2)) == seen(plain.part(0, len(part) // 2))


def test_messages_end_at_a_sequence() -> None:
    run, frames = both(sent(1001, 1200))
    for sequence in (1000, 1001, 1100, 1199, 1200, 9999):
        assert seen(up_to(run, sequence)) == seen(up_to(frames, sequence))
        assert len(up_to(run, sequence)) == min(200, sequence - 1000)


def test_rows_of_a_chunk_are_made_from_all_its_parts() -> None:
    run, frames = both(sent(1, 200))
    chunk = PayloadChunk((frames.part(0, 20), run.part(20, 150), run.part(150, 200)))
    assert chunk.payloads().to_pylist() == run.payloads()
    assert chunk.as_rows() == PayloadChunk((frames,)).as_rows()


def test_a_few_bytes_are_left_to_the_parser() -> None:
    assert RunReader(SID).read(sent(1, 3)) == (None, sent(1, 3))


def test_where_runs_do_not_pay_they_are_looked_for_less_and_less_often() -> None:
    good = sent(1, 300)
    bad = msg(b"s", SID, b"$JS.ACK.S.c.1.1.1.1.0", b"", b"\r") + good
    mixed = sent(1, 1300) + bad * 8
    looked = [RunReader(SID), RunReader(SID)]
    # One that begins with a run shows when it is looked for; it is less than half of what came.
    found = [looked[0].read(mixed)[0] is not None for _ in range(200)]
    assert [number for number, one in enumerate(found) if one] == [
        0,
        2,
        5,
        10,
        19,
        36,
        69,
        134,
        199,
    ]
    while looked[0].read(good)[0] is None:
        pass
    assert looked[0].read(good)[0] is not None
    assert looked[1].read(bad) == (None, bad)
