"""Spark's reads of three nats-servers: a group's partitions, and the last of each subject, while a leader is
killed in the middle of a read. Without Spark."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from headrace.client import JetStream, connect
from headrace.groups import PartitioningFilter, elastic
from headrace.spark.batches.plans import plan_batch
from headrace.spark.grouped.query import GroupQuery
from headrace.spark.links.pool import POOL
from headrace.spark.options.source import parse_options
from headrace.spark.tasks.read_slice import read_slice
from nats_cluster import Cluster, Node
from waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

KEYS, EACH, SUBJECTS = 12, 50, 1200


@pytest.fixture
async def js(cluster: Cluster) -> AsyncIterator[JetStream]:
    cluster.wait_until_ready()
    async with connect(cluster.urls) as connection:
        yield connection.jetstream()
    POOL.close()
    cluster.wait_until_ready()


class Killed:
    """Kills the server that leads a stream, once, when the first rows of a read are there."""

    def __init__(self, cluster: Cluster, stream: str) -> None:
        self._cluster, self._stream = cluster, stream
        self.node: Node | None = None

    def read(self, *task: Any) -> Iterator[dict[str, Any]]:
        for batch in read_slice(*task):
            yield from batch.to_pylist()
            if self.node is None:
                self.node = self._cluster.wait_for_leader(self._stream)
                self.node.kill()


async def publish(js: JetStream, subjects: list[str], payload: bytes) -> None:
    for at in range(0, len(subjects), 200):
        await asyncio.gather(*(js.publish(each, payload) for each in subjects[at : at + 200]))


async def test_a_query_reads_a_group_in_order_and_once_while_its_leader_is_killed(
    cluster: Cluster, js: JetStream
) -> None:
    await js.create_stream(name="LEGS", subjects=["legs.*"], num_replicas=3)
    by_key = (PartitioningFilter("legs.*", (1,)),)
    await elastic.create(js, "LEGS", "g", 6, partitioning_filters=[*by_key])
    await elastic.add_members(js, "LEGS", "g", ["spark"])
    for number in range(EACH):
        await publish(js, [f"legs.k{key}" for key in range(KEYS)], b"%d" % number)

    async def all_are_there() -> bool:
        return (await (await js.stream("LEGS-g")).info()).state.messages == KEYS * EACH

    await until(all_are_there, within=60)
    raw = {"servers": cluster.urls, "stream": "LEGS", "group": "g", "rowsPerBatch": "10"}
    raw |= {"maxOffsetsPerTrigger": "400", "maxTasks": "2", "minMessagesPerTask": "50"}
    options = parse_options(raw, streaming=True)
    killed = Killed(cluster, "LEGS-g")

    def run() -> list[tuple[str, int]]:
        """Micro-batches as Spark does them, each of them read twice."""
        query = GroupQuery(options)
        rows: list[tuple[str, int]] = []
        try:
            start = query.initial_offset()
            while len(rows) < KEYS * EACH:
                end = json.loads(json.dumps(query.latest_offset(start)))
                if end == start:
                    continue
                pieces = query.plan(start, end)
                twice = [
                    [
                        (row["subject"], int(row["data"]))
                        for piece in pieces
                        for row in killed.read(options, ("subject", "data"), piece)
                    ]
                    for _ in range(2)
                ]
                assert twice[0] == twice[1]
                rows += twice[0]
                start = end
            query.latest_offset(start)  # commits
        finally:
            query.close()
        return rows

    rows = await asyncio.to_thread(run)
    assert killed.node is not None, "nobody was killed, so this shows nothing"
    killed.node.start_again()
    found: dict[str, list[int]] = {}
    for key, number in rows:
        found.setdefault(key, []).append(number)
    assert found == {f"legs.k{key}": [*range(EACH)] for key in range(KEYS)}
    await asyncio.to_thread(cluster.wait_until_ready)
    await elastic.delete(js, "LEGS", "g")
    await js.delete_stream("LEGS")


@pytest.mark.skipif("HEADRACE_ROUNDS" not in os.environ, reason="long: make cluster")
async def test_the_last_of_each_subject_comes_once_while_the_leader_is_killed(
    cluster: Cluster, js: JetStream
) -> None:
    await js.create_stream(
        name="LATEST", subjects=["latest.*"], num_replicas=3, max_msgs_per_subject=1
    )
    subjects = [f"latest.{number}" for number in range(SUBJECTS)]
    await publish(js, subjects[::2], b"old")
    await publish(js, subjects, b"new")
    raw = {"servers": cluster.urls, "stream": "LATEST", "lastPerSubject": "true"}
    options = parse_options({**raw, "rowsPerBatch": "50"}, streaming=False)
    killed = Killed(cluster, "LATEST")

    def run() -> list[tuple[str, bytes]]:
        return [
            (row["subject"], row["data"])
            for piece in plan_batch(options)
            for row in killed.read(options, ("subject", "data"), piece)
        ]

    rows = await asyncio.to_thread(run)
    assert killed.node is not None, "nobody was killed, so this shows nothing"
    killed.node.start_again()
    assert sorted(rows) == sorted((subject, b"new") for subject in subjects)
    await asyncio.to_thread(cluster.wait_until_ready)
    await js.delete_stream("LATEST")
