"""Who publishes to a leader that is cut off from the other servers, and does not know it yet.

With ``make cluster``; what the publisher does is proved in ``tests/client/publish/test_settling.py``.
"""

from __future__ import annotations

import asyncio
import os

import pytest

from headrace.client import JetStream, connect
from nats_cluster import Cluster, Clusters, Node, SickServersError
from waiting import until_here

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(300),
    pytest.mark.skipif("HEADRACE_ROUNDS" not in os.environ, reason="HEADRACE_ROUNDS: make cluster"),
]

ACK_TIMEOUT_S = 1.0  # that a leader is cut off, the others notice after 4 to 9 s
ELECTED_S = 40.0  # votes that are split take another 4 to 9 seconds
ATTEMPTS = 3
BEFORE, BEHIND = 100, 50


@pytest.mark.parametrize("fast", [True, False])
async def test_what_a_leader_alone_has_taken_is_not_acknowledged(
    clusters: Clusters, fast: bool
) -> None:
    for attempt in range(ATTEMPTS):
        try:
            await play(await asyncio.to_thread(clusters.whole), f"CUT{attempt}{fast:d}", fast)
            return
        except SickServersError as error:  # of the servers, whatever the client does
            print(f"{error}; once more on other servers")
            await asyncio.to_thread(clusters.give_up)
    pytest.fail("no cluster elected another leader")


async def play(cluster: Cluster, name: str, fast: bool) -> None:
    async with connect(cluster.urls) as connection:
        js = connection.jetstream()
        await js.create_stream(
            name=name, subjects=[f"{name}.>"], num_replicas=3, allow_batched=fast
        )
        leader = await asyncio.to_thread(cluster.wait_for_leader, name)
        async with connect(leader.server.url) as alone:
            await publish(cluster, leader, alone.jetstream(), name, fast)
        await asyncio.to_thread(cluster.wait_until_ready)
        stream = await js.stream(name)
        last = (await stream.info()).state.last_seq
        found = [await stream.get_message(sequence) for sequence in range(1, last + 1)]
        numbers = [int(message.payload) for message in found]
        assert numbers == [*range(BEFORE + BEHIND)], [
            (each.sequence, each.payload, str(each.headers), each.timestamp_ns) for each in found
        ]
        await js.delete_stream(name)


async def publish(cluster: Cluster, leader: Node, js: JetStream, name: str, fast: bool) -> None:
    """Some before, and some behind the cut, which is mended when the others have another leader: until then
    these are sent again to the one that is cut off, which has time to say whatever it says of them."""
    async with js.publisher(deduplicate=True, fast=fast, ack_timeout=ACK_TIMEOUT_S) as publisher:
        for number in range(BEFORE):
            await publisher.send(f"{name}.a", b"%d" % number)
        await publisher.flush()
        await asyncio.to_thread(cluster.cut_off, leader)
        for number in range(BEFORE, BEFORE + BEHIND):
            await publisher.send(f"{name}.a", b"%d" % number)
        await asyncio.to_thread(wait_for_another, cluster, leader, name)
        acked = publisher.acked
        await asyncio.to_thread(cluster.mend)
        await publisher.flush()
    assert acked == BEFORE
    assert (publisher.acked, publisher.failed) == (BEFORE + BEHIND, 0)


def wait_for_another(cluster: Cluster, leader: Node, name: str) -> None:
    try:
        until_here(
            lambda: any(node.leads(name) for node in cluster.others(leader)),
            "nobody else leads",
            within=ELECTED_S,
        )
    except AssertionError as error:
        raise SickServersError(str(error)) from error
