"""A reader that runs where its message was received may do anything, such as close the connection."""

from __future__ import annotations

import asyncio
from pathlib import Path

from headrace import Broker, connect
from headrace.errors import ConnectionClosedError
from headrace.wire.frames import MSG, Frame


async def test_nothing_more_is_handed_out_of_what_came_with_it(tmp_path: Path) -> None:
    seen: list[str] = []
    async with Broker(store_dir=tmp_path) as broker, connect(broker.client_url) as connection:
        js = connection.jetstream()
        await js.create_stream(name="S", subjects=["s.*"])
        readers = []
        for name in ("a", "b"):
            consumer = await js.create_consumer("S", durable_name=name)
            readers.append(consumer.consume())

        async def close_at_first() -> None:
            async for message in readers[0]:
                seen.append(message.subject)
                await connection.close()

        async def read() -> None:
            seen.extend([message.subject async for message in readers[1]])

        tasks = [asyncio.create_task(close_at_first()), asyncio.create_task(read())]
        await connection.flush()
        frames: list[Frame] = [
            (MSG, f"s.{name}".encode(), reader._feed.route.sid, b"$JS.ACK.x", b"", b"payload")
            for name, reader in zip("ab", readers, strict=True)
        ]
        link = connection._session.link
        assert link is not None
        asyncio.get_running_loop().call_soon(link.on_frames, frames)
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert seen == ["s.a"]
    assert [type(each) for each in ended] == 2 * [ConnectionClosedError]
