"""What an ordered consumer reads on of a stream that was put back or made again meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace.client import JetStream, Stream

pytestmark = pytest.mark.peer


@pytest.mark.parametrize("how", ["fetch", "consume"])
@pytest.mark.parametrize("what", ["restored", "older put back", "made again"])
async def test_what_a_stream_stores_anew_is_not_skipped_for_its_sequence(
    js: JetStream, stream: Stream, tmp_path: Path, what: str, how: str
) -> None:
    async def publish(*numbers: int) -> None:
        for number in numbers:
            await js.publish(f"{stream.name}.x", b"%d" % number)

    ordered = await stream.ordered_consumer()
    await publish(1, 2, 3)
    if what == "older put back":
        await stream.backup(tmp_path / "copy")
    await publish(4, 5)
    assert len(await ordered.fetch(5)) == 5
    config = (await stream.info()).config
    if what == "restored":
        await stream.backup(tmp_path / "copy")
    await stream.delete()
    if what == "made again":
        await js.create_stream(config)
    else:
        await js.restore_stream(tmp_path / "copy")
    await publish(6, 7, 8, 9)
    came: list[bytes] = []
    if how == "fetch":
        while len(came) < 4:
            batch = await ordered.fetch(4, max_wait=5)
            assert batch, came
            came += [message.payload for message in batch]
    else:
        async with ordered.consume() as messages, asyncio.timeout(30):
            while len(came) < 4:
                came.append((await anext(messages)).payload)
    assert came == [b"6", b"7", b"8", b"9"]
    assert ordered.last_sequence == {"restored": 9, "older put back": 7, "made again": 4}[what]
