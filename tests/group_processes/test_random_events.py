"""Members of ours as processes, while they, the servers and the group's record suffer random events.

Here a few events are played on each server. ``make groups`` plays HEADRACE_GROUP_EVENTS (200) on our broker,
on nats-server, and on three nats-servers with replicated streams. HEADRACE_SEED names the events.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import peers
from group_processes.crowd import Crowd, Publisher
from group_processes.places import OneServer, Place, ThreeServers
from group_processes.trouble import Trouble, events_of
from group_processes.worklog import Task
from headrace.api.streams import SubjectTransformConfig
from headrace.client import JetStream, connect
from headrace.groups import Layout, PartitioningFilter, elastic, static
from nats_cluster import Cluster

pytestmark = [pytest.mark.timeout(3600)]

EVENTS = int(os.environ.get("HEADRACE_GROUP_EVENTS", "0"))
SEED = int(os.environ.get("HEADRACE_SEED", "20121215"))
EVENTS_IN_SHORT = 12
KEYS = [f"k{number}" for number in range(8)]
PARTITIONS = 4
STREAM, GROUP = "ORDERS", "g"
MEMBERS = ["a", "b", "c"]


@dataclass(frozen=True)
class Setup:
    """A kind of group, and how its members consume."""

    kind: str
    layout: Layout
    max_ack_pending: int
    concurrency: int = 1

    def __str__(self) -> str:
        return f"{self.kind}-{self.layout}-{self.max_ack_pending}"


SETUPS = [
    Setup("elastic", "interoperable", 1),
    Setup("elastic", "per_partition", 16, 2),
    Setup("elastic", "interoperable", 16, 2),
    Setup("static", "interoperable", 1),
    Setup("static", "per_partition", 16),
]


async def create(js: JetStream, setup: Setup, replicas: int) -> None:
    """The stream and the group on it; an elastic one begins with its first member."""
    numbered = SubjectTransformConfig(
        src="orders.*", dest=f"{{{{partition({PARTITIONS},1)}}}}.orders.{{{{wildcard(1)}}}}"
    )
    await js.create_stream(
        name=STREAM,
        subjects=["orders.*"],
        num_replicas=replicas,
        subject_transform=numbered if setup.kind == "static" else None,
    )
    if setup.kind == "static":
        await static.create(js, STREAM, GROUP, PARTITIONS, members=MEMBERS, layout=setup.layout)
        return
    await elastic.create(
        js,
        STREAM,
        GROUP,
        PARTITIONS,
        partitioning_filters=[PartitioningFilter("orders.*", (1,))],
        members=MEMBERS[:1],
        layout=setup.layout,
    )


async def play(setup: Setup, place: Place, directory: Path, seed: int, events: int) -> None:
    task = Task(
        place.urls,
        setup.kind,
        STREAM,
        GROUP,
        "",
        "",
        "",
        max_ack_pending=setup.max_ack_pending,
        concurrency=setup.concurrency,
    )
    async with connect(place.urls, ping_interval=0.5, reconnect_wait=0.05) as connection:
        js = connection.jetstream(timeout=2)
        try:
            await create(js, setup, place.replicas)
            with Crowd(directory, task) as crowd:
                await live(crowd, js, setup, place, seed, events)
            if setup.kind == "elastic":
                queue = await js.stream(f"{STREAM}-{GROUP}")
                assert (await queue.info()).state.messages == 0
                await elastic.delete(js, STREAM, GROUP)
            else:
                await static.delete(js, STREAM, GROUP)
        finally:
            for name in [name async for name in js.stream_names()]:
                await js.delete_stream(name)


async def live(
    crowd: Crowd, js: JetStream, setup: Setup, place: Place, seed: int, events: int
) -> None:
    """The members' life, from their start to the judgement."""
    trouble = Trouble(seed, js, crowd, place, GROUP, MEMBERS)
    try:
        await trouble.begin()
        async with Publisher(js, crowd, KEYS) as publisher:
            await crowd.until_handled(20)
            await trouble.play(events, events_of(setup.kind))
            published = await publisher.finish()
        await trouble.end()
        await crowd.until_all_handled(published)
        await trouble.stop()
    finally:
        trouble.close()
        print(f"{setup}, seed {seed}: {dict(Counter(trouble.played))}")
    verdict = crowd.judge(published)
    print(verdict)
    faults = {name for name in verdict.faults if name not in place.tolerated}
    assert not faults, f"seed {seed}:\n{verdict}"


def short() -> list[Setup]:
    return SETUPS if EVENTS else SETUPS[:1]


@pytest.mark.parametrize("setup", short(), ids=str)
async def test_order_and_exclusion_survive_random_events(
    setup: Setup, server: peers.ServerProcess, tmp_path: Path
) -> None:
    seed = SEED + SETUPS.index(setup)
    events = EVENTS // len(SETUPS) or EVENTS_IN_SHORT
    await play(setup, OneServer(server), tmp_path, seed, events)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.mark.peer
@pytest.mark.skipif(not EVENTS, reason="minutes long: make groups")
@pytest.mark.parametrize("setup", SETUPS, ids=str)
async def test_order_and_exclusion_survive_random_events_in_a_cluster(
    setup: Setup, cluster: Cluster, tmp_path: Path
) -> None:
    await asyncio.to_thread(cluster.wait_until_ready)
    seed = SEED + len(SETUPS) + SETUPS.index(setup)
    await play(setup, ThreeServers(cluster), tmp_path, seed, EVENTS // len(SETUPS))
