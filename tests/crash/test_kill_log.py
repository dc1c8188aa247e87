"""A broker is killed with its commit log in use: what it had acknowledged is there, streams and metadata."""

from __future__ import annotations

import asyncio
from pathlib import Path

import peers
from headrace.client import connect

STREAMS = 8
EACH = 40


async def test_what_was_acknowledged_is_there_after_a_kill_with_the_log_in_use(
    tmp_path: Path,
) -> None:
    server = peers.start_headrace(tmp_path)
    acked: list[int] = []
    try:
        async with await connect(server.url) as client:
            js = client.jetstream()
            for number in range(STREAMS):
                await js.create_stream(name=f"S{number}", subjects=[f"s{number}.>"])
            consumer = await js.create_consumer("S0", name="C")
            for turn in range(EACH):
                publishing = [js.publish(f"s{n}.x", b"%d" % turn) for n in range(STREAMS)]
                await asyncio.gather(*publishing)
            for message in await consumer.fetch(EACH // 2, max_wait=10):
                await message.ack_sync()
                acked.append(message.metadata.stream_seq)
    finally:
        server.kill()
    assert (server.store_dir / "commit-log" / "0.log").read_bytes().strip(b"\0")
    server = peers.start_headrace(tmp_path)
    try:
        async with await connect(server.url) as client:
            js = client.jetstream()
            for number in range(STREAMS):
                stream = await js.stream(f"S{number}")
                assert (await stream.info()).state.last_seq == EACH
            consumer = await js.consumer("S0", "C")
            assert (await consumer.info()).ack_floor.stream_seq == max(acked)
    finally:
        assert server.stop() == 0, server.log_text()
    assert not [*(server.store_dir / "commit-log").iterdir()]
    assert b"format 1" in (server.store_dir / "format").read_bytes()
