"""Ordered consumers when the server they read from goes and comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from headrace.broker.server import Broker
from headrace.client import connect
from waiting import until


async def test_a_restart_of_the_server_is_not_seen_in_what_is_read(
    tmp_path: Path, free_port: int
) -> None:
    url = f"nats://127.0.0.1:{free_port}"
    settings: dict[str, Any] = {"store_dir": tmp_path, "port": free_port}
    async with Broker(**settings):
        connection = await connect(url, reconnect_wait=0.02, reconnect_wait_max=0.05)
        js = connection.jetstream()
        stream = await js.create_stream(name="S", subjects=["s"])
        for number in range(10):
            await js.publish("s", b"%d" % number)
        fetched, consumed = await stream.ordered_consumer(), await stream.ordered_consumer()
        assert len(await fetched.fetch(5)) == 5
        messages = consumed.consume(on_error=lambda error: None)
        got = [int((await anext(messages)).payload) for _ in range(5)]
    async with Broker(**settings):
        await until(lambda: connection.is_connected, within=5)
        for number in range(10, 20):
            await js.publish("s", b"%d" % number)
        async with asyncio.timeout(5):
            got += [int((await anext(messages)).payload) for _ in range(15)]
        assert got == list(range(20))
        assert [int(p) for p in (await fetched.fetch(15)).payloads] == list(range(5, 20))
        await messages.stop()
        await connection.close()
