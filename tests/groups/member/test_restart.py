"""How long a group stands still when its broker is restarted: in virtual time, and on real servers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import peers
from headrace.client import JetStream, connect
from headrace.errors import HeadraceError
from headrace.groups import GroupMessage, PartitioningFilter, elastic
from sim.groups import client
from sim.groups.world import World
from waiting import until

DOWN_S = 0.7
GAP_S = 1.5
CAST: dict[str, Any] = {
    "genre": "wild",
    "kind": "elastic",
    "partitions": 4,
    "members": 2,
    "instances": 1,
    "keys": 6,
    "backlog": 0,
    "ack_wait": 2.0,
    "max_ack_pending": 50,
    "concurrency": 1,
    "handler": "awaits",
    "handler_seconds": 0.01,
    "slow_share": 0.0,
    "failing_share": 0.0,
    "sync_share": 0.0,
    "delay": 0.0005,
    "faults": ("restart",),
}


@pytest.fixture(autouse=True)
def usual_reconnects(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As a connection waits where nothing is said."""
    options = replace(client.OPTIONS, reconnect_wait=0.1, reconnect_wait_max=5.0)
    monkeypatch.setattr(client, "OPTIONS", options)
    yield


@pytest.mark.parametrize("layout", ["interoperable", "per_partition"])
def test_a_group_goes_on_within_a_second_and_a_half_of_a_kill(layout: str) -> None:
    took = {seed: _gap(seed, layout) for seed in range(10)}
    assert max(took.values()) <= GAP_S, took


def _gap(seed: int, layout: str) -> float:
    """From the kill until all that was published meanwhile is handled."""
    world = World(seed, **CAST, layout=layout)
    try:
        world.host.boot()
        world.admin.do("make", world.admin.make)
        assert world.run(5.0, lambda: world.is_made.is_set)
        for member in world.members:
            world.add(member)
        world.publisher.want_of_each()
        assert world.run(3.0, lambda: world.publisher.is_idle and world.ledger.is_done)
        world.run(0.5)
        killed = world.universe.now
        world.host.kill(power=False)
        world.publisher.want_of_each()
        world.run(DOWN_S)
        world.host.boot()
        assert world.run(15.0, lambda: world.publisher.is_idle and world.ledger.is_done)
        return world.universe.now - killed
    finally:
        world.universe.bury()


@pytest.mark.peer
@pytest.mark.parametrize("start", ["headrace_server", "nats_server"])
async def test_so_it_is_with_a_server_that_is_killed_and_default_options(
    request: pytest.FixtureRequest, start: str
) -> None:
    server: peers.ServerProcess = request.getfixturevalue(start)()
    handled: dict[bytes, float] = {}

    async def handle(message: GroupMessage) -> None:
        await message.ack_sync()
        handled[message.payload] = time.monotonic()

    async with (
        connect(server.url) as admin,
        connect(server.url) as first,
        connect(server.url) as other,
    ):
        js = admin.jetstream()
        await js.create_stream(name="ORDERS", subjects=["orders.*"])
        filters = [PartitioningFilter("orders.*", (1,))]
        await elastic.create(js, "ORDERS", "g", 4, partitioning_filters=filters, members=["a", "b"])
        async with (
            elastic.join(first.jetstream(), "ORDERS", "g", "a", handle),
            elastic.join(other.jetstream(), "ORDERS", "g", "b", handle),
        ):
            await asyncio.gather(*(_publish(js, number) for number in range(16)))
            await until(lambda: len(handled) == 16)
            server.kill()
            await asyncio.to_thread(server.start_again)
            # A busy machine starts it slowly; how long the links wait then before they try again is theirs.
            links = (admin, first, other)
            await until(
                lambda: all(each.reconnects and each.is_connected for each in links), within=60
            )
            linked = time.monotonic()
            await asyncio.gather(*(_publish(js, number) for number in range(16, 48)))
            await until(lambda: len(handled) == 48, within=60)
    gap = max(handled.values()) - linked
    assert gap <= GAP_S, f"{gap:.2f} s after all had their links again"


async def _publish(js: JetStream, number: int) -> None:
    """As one who tries until it is stored."""
    while True:
        try:
            await js.publish(f"orders.k{number % 16}", b"%d" % number, msg_id=f"{number}")
        except (HeadraceError, TimeoutError):
            continue
        return
