"""An instance at its consumer: what happens to its first pull."""

from __future__ import annotations

import asyncio
import re

import pytest

from chaos import ChaosProxy
from headrace.api.consumers import ConsumerConfig
from headrace.client import connect
from member_world import GROUP, STREAM, World
from peers import ServerProcess

QUEUE = f"{STREAM}-{GROUP}"
PULL = re.compile(rb"PUB \$JS\.API\.CONSUMER\.MSG\.NEXT\.%b\.(\S+) \S+ (\d+)\r\n" % QUEUE.encode())
LOOK = b"$JS.API.CONSUMER.INFO.%b." % QUEUE.encode()
LONG = ConsumerConfig(ack_wait=300.0, max_ack_pending=1)
"""Missing heartbeats would tell in a minute."""


@pytest.mark.peer
@pytest.mark.parametrize("reference_server", ["nats-server"], indirect=True)
@pytest.mark.parametrize("deleted", ["before the look", "behind the look"])
async def test_a_pull_that_nats_server_forgets_with_its_consumer_is_looked_behind(
    world: World, reference_server: ServerProcess, deleted: str
) -> None:
    """The server reads it while the consumer is being deleted, by a member that leaves; where it is busy, it
    answers the look first."""
    await world.create(members=("a",))
    forgotten: list[str] = []
    deletions: list[asyncio.Task[None]] = []

    async def delete() -> None:
        if deleted == "behind the look":
            await far.flush()
        await world.js.delete_consumer(QUEUE, forgotten[0])

    async def passed(sent: bytes) -> bytes:
        pull = PULL.search(sent)
        if pull is not None and not forgotten:
            forgotten.append(pull[1].decode())
            if deleted == "before the look":
                await delete()
            sent = sent[: pull.start()] + sent[pull.end() + int(pull[2]) + 2 :]
        if deleted == "behind the look" and forgotten and not deletions and LOOK in sent:
            deletions.append(asyncio.create_task(delete()))
        return sent

    async with (
        ChaosProxy(reference_server.host, reference_server.port, passed=passed) as proxy,
        connect(proxy.url) as far,
        world.join("a", js=far.jetstream(), config=LONG) as member,
    ):
        await world.publish(4)
        await world.until_seen()
        assert member.is_active
    assert forgotten and not world.errors
    assert len(deletions) == (deleted == "behind the look")
    world.seen.check_once_and_in_order(4)
