"""The work queue of an elastic group where the server has left messages of a deleted one in it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import leftovers
import peers
from headrace import connect
from headrace.client.jetstream import streams
from headrace.groups import GroupError, PartitioningFilter, elastic
from waiting import until

MESSAGES = 20


@pytest.mark.peer
async def test_a_group_that_is_made_anew_with_more_members_has_the_numbers_of_those(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = peers.start_nats_server(tmp_path)
    try:
        async with connect(server.url) as connection:
            js = connection.jetstream()
            await js.create_stream(name="ORDERS", subjects=["orders.*"])
            for number in range(MESSAGES):
                await js.publish(f"orders.k{number % 3}", b"%d" % number)

            async def create(group: str, members: int) -> None:
                by_key = [PartitioningFilter("orders.*", (1,))]
                await elastic.create(js, "ORDERS", group, members, partitioning_filters=by_key)

            async def copied(group: str) -> list[str]:
                async def are_there() -> bool:
                    return (await queue.info()).state.messages >= MESSAGES

                queue = await js.stream(f"ORDERS-{group}")
                await until(are_there)
                return [message.subject async for message in queue.scan()]

            await create("mill", 4)
            numbered = await copied("mill")
            obstacle = leftovers.obstruct(tmp_path / "store", "ORDERS-mill")
            await elastic.delete(js, "ORDERS", "mill")
            with monkeypatch.context() as patch:
                patch.setattr(streams, "LEFTOVER_WAITS_S", (0.0,))
                with pytest.raises(GroupError, match="puts 20 messages of a deleted one in it"):
                    await create("mill", 8)
            assert "ORDERS-mill" not in [name async for name in js.stream_names()]
            shutil.rmtree(obstacle)
            await create("mill", 8)
            await create("loom", 8)
            assert await copied("mill") == await copied("loom") != numbered
    finally:
        server.stop()
