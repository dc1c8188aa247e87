"""Members of natsio-pcgroups, alone and beside ours in one group: planned changes, step-downs and kills.

Alone they show that our broker gives them what nats-server does. ``ack_wait`` is 2 s: with 1 s the pulls of
the other implementation last as long as its pins, which then change hands without anybody's wish.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import peers
from group_processes.crowd import Crowd, PeerRefusalError, PeerVerbs, Publisher
from group_processes.strangers import Stranger
from group_processes.worklog import Task
from headrace.api.streams import SubjectTransformConfig
from headrace.client import Connection, JetStream
from headrace.errors import JetStreamApiError
from headrace.groups import (
    MemberMapping,
    MemberNotActiveError,
    PartitioningFilter,
    elastic,
    static,
)
from waiting import until

KEYS = [f"k{number}" for number in range(6)]
PARTITIONS = 4
STREAM, GROUP = "ORDERS", "g"
ACK_WAIT = 2.0
FILTERS = [PartitioningFilter("orders.*", (1,))]
SOME = 20  # messages between two events
THOROUGH = "HEADRACE_GROUP_EVENTS" in os.environ

Instances = list[tuple[str, bool]]  # of which member, and whether of the other implementation
THEIRS: Instances = [("a", True), ("a", True), ("b", True)]
BOTH: Instances = [("a", False), ("a", True), ("b", True), ("b", False), ("c", False)]


@pytest.fixture
def task(server: peers.ServerProcess) -> Task:
    return Task(server.url, "elastic", STREAM, GROUP, "", "", "", ack_wait=ACK_WAIT)


def differences(crowd: Crowd) -> list[str]:
    """What a member was told about a consumer of another configuration (10148)."""
    return [
        f"{line}"
        for line in crowd.lines
        if any("10148" in word or "already_exists" in word for word in line.details)
    ]


async def obeyed(change: Callable[[], Awaitable[object]]) -> None:
    """Do it as soon as it can be done: nobody steps down while the member's consumer is being made."""

    async def done() -> bool:
        try:
            await change()
        except (PeerRefusalError, MemberNotActiveError, JetStreamApiError):
            return False
        return True

    await until(done, "it was refused")


async def elastic_changes(
    js: JetStream, verb: PeerVerbs, crowd: Crowd, members: list[str]
) -> list[Callable[[], Awaitable[object]]]:
    """What happens to the group, in this order, by the verbs of both."""

    async def kill() -> None:
        owner = crowd.owner()
        assert owner is not None
        crowd.kill(owner)
        crowd.start(owner.task.member, peer=owner.is_peer)

    first, second, third = (members * 3)[:3]
    mappings = [MemberMapping(second, (0, 1, 2)), MemberMapping(first, (3,))]
    return [
        lambda: verb("add_members", STREAM, GROUP, [second]),
        lambda: elastic.step_down(js, STREAM, GROUP, first),
        lambda: verb("elastic_member_step_down", STREAM, GROUP, second),
        lambda: elastic.add_members(js, STREAM, GROUP, [third]),
        kill,
        lambda: elastic.drop_members(js, STREAM, GROUP, [first]),
        lambda: elastic.set_mappings(js, STREAM, GROUP, mappings),
    ]


@pytest.mark.parametrize(
    "who",
    [
        pytest.param(THEIRS, marks=pytest.mark.skipif(not THOROUGH, reason="long: make groups")),
        BOTH,
    ],
    ids=["theirs", "both"],
)
async def test_an_elastic_group(
    who: Instances,
    task: Task,
    connection: Connection,
    verb: PeerVerbs,
    stranger: Stranger,
    tmp_path: Path,
) -> None:
    js = connection.jetstream()
    await js.create_stream(name=STREAM, subjects=["orders.*"])
    await elastic.create(js, STREAM, GROUP, PARTITIONS, partitioning_filters=FILTERS, members=["a"])
    with Crowd(tmp_path, task, stranger) as crowd:
        started = [crowd.start(member, peer=peer) for member, peer in who]
        await crowd.until_joined(*started)
        members = sorted({member for member, _ in who})
        async with Publisher(js, crowd, KEYS) as publisher:
            await crowd.until_handled(SOME)
            for change in await elastic_changes(js, verb, crowd, members):
                await obeyed(change)
                await crowd.until_handled(SOME)
            published = await publisher.finish()
        await crowd.until_all_handled(published)
        for worker in crowd.alive:
            await crowd.stop(worker)
        verdict = crowd.judge(published)
        stranger.forgive(verdict, "elastic")
        assert not verdict.faults, verdict
        assert not differences(crowd)
        if who is BOTH:
            assert {
                line.worker.partition("-")[0] for line in crowd.lines if line.what == "done"
            } == {
                "ours",
                "peer",
            }


@pytest.mark.parametrize(
    "server",
    [
        "headrace",
        pytest.param(
            "nats-server",
            marks=pytest.mark.slow(
                "tests/group_processes/test_strangers_members.py::test_an_elastic_group"
            ),
        ),
    ],
    indirect=True,
)
async def test_a_static_group_of_both(
    task: Task, connection: Connection, verb: PeerVerbs, stranger: Stranger, tmp_path: Path
) -> None:
    js = connection.jetstream()
    numbered = SubjectTransformConfig(
        src="orders.*", dest=f"{{{{partition({PARTITIONS},1)}}}}.orders.{{{{wildcard(1)}}}}"
    )
    await js.create_stream(name=STREAM, subjects=["orders.*"], subject_transform=numbered)
    await static.create(js, STREAM, GROUP, PARTITIONS, filters=["orders.*"], members=["a", "b"])
    task = Task(task.url, "static", STREAM, GROUP, "", "", "", ack_wait=ACK_WAIT)
    with Crowd(tmp_path, task, stranger) as crowd:
        started = [crowd.start(member, peer=peer) for member, peer in BOTH[:4]]
        await crowd.until_joined(*started)
        async with Publisher(js, crowd, KEYS) as publisher:
            await crowd.until_handled(SOME)
            for member in ("a", "b"):
                await obeyed(partial(static.step_down, js, STREAM, GROUP, member))
                await crowd.until_handled(SOME)
                await obeyed(partial(verb, "static_member_step_down", STREAM, GROUP, member))
                await crowd.until_handled(SOME)
            owner = crowd.owner()
            assert owner is not None
            crowd.kill(owner)
            crowd.start(owner.task.member, peer=owner.is_peer)
            await crowd.until_handled(SOME)
            published = await publisher.finish()
        await crowd.until_all_handled(published)
        for worker in crowd.alive:
            await crowd.stop(worker)
        verdict = crowd.judge(published)
        assert not verdict.faults, verdict
        assert not differences(crowd)
        await static.delete(js, STREAM, GROUP)


@pytest.mark.parametrize("by", ["ours", "theirs"])
@pytest.mark.parametrize("kind", ["elastic", "static"])
async def test_who_deletes_a_group_ends_the_members_of_both(
    kind: str,
    by: str,
    task: Task,
    connection: Connection,
    stranger: Stranger,
    verb: PeerVerbs,
    tmp_path: Path,
) -> None:
    if stranger.name != "go" and not THOROUGH:
        pytest.skip("long: make groups")
    js = connection.jetstream()
    await js.create_stream(name=STREAM, subjects=["orders.*"])
    if kind == "static":
        await static.create(js, STREAM, GROUP, PARTITIONS, members=["a", "b"])
    else:
        await elastic.create(js, STREAM, GROUP, PARTITIONS, members=["a", "b"])
    with Crowd(tmp_path, replace(task, kind=kind, again=60.0), stranger) as crowd:
        started = [crowd.start(member, peer=peer) for member, peer in BOTH[:4]]
        await crowd.until_joined(*started)
        if by == "theirs":
            await verb(f"delete_{kind}", STREAM, GROUP)
        else:
            await {"static": static, "elastic": elastic}[kind].delete(js, STREAM, GROUP)

        def have_left() -> set[str]:
            crowd.read()
            return {line.worker for line in crowd.lines if line.what == "left"}

        names = {worker.name for worker in started}
        await until(lambda: have_left() == names, "not all have left")
        assert not [line for line in crowd.lines if line.what == "ended"]
