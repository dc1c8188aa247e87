"""An instance at its consumer: what happens to its first pull."""

from __future__ import annotations

import re

import pytest

from chaos import ChaosProxy
from headrace.api.consumers import ConsumerConfig
from headrace.client import connect
from member_world import GROUP, STREAM, World
from peers import ServerProcess

QUEUE = f"{STREAM}-{GROUP}"
PULL = re.compile(rb"PUB \$JS\.API\.CONSUMER\.MSG\.NEXT\.%b\.(\S+) \S+ (\d+)\r\n" % QUEUE.encode())
LONG = ConsumerConfig(ack_wait=300.0, max_ack_pending=1)
"""Missing heartbeats would tell in a minute."""


@pytest.mark.peer
@pytest.mark.parametrize("reference_server", ["nats-server"], indirect=True)
async def test_a_pull_that_nats_server_forgets_with_its_consumer_is_looked_behind(
    world: World, reference_server: ServerProcess
) -> None:
    """The server reads it while the consumer is being deleted, by a member that leaves."""
    await world.create(members=("a",))
    forgotten: list[str] = []

    async def passed(sent: bytes) -> bytes:
        pull = PULL.search(sent)
        if pull is None or forgotten:
            return sent
        forgotten.append(pull[1].decode())
        await world.js.delete_consumer(QUEUE, forgotten[0])
        return sent[: pull.start()] + sent[pull.end() + int(pull[2]) + 2 :]

    async with (
        ChaosProxy(reference_server.host, reference_server.port, passed=passed) as proxy,
        connect(proxy.url) as far,
        world.join("a", js=far.jetstream(), config=LONG) as member,
    ):
        await world.publish(4)
        await world.until_seen()
        assert member.is_active
    assert forgotten and not world.errors
    world.seen.check_once_and_in_order(4)
