from __future__ import annotations

from contextlib import aclosing
from itertools import islice
from typing import Any

import pytest

from headrace.client import JetStream
from headrace.errors import RequestTimeoutError
from headrace.groups import (
    GroupConfigurationError,
    GroupNotFoundError,
    MemberMapping,
    elastic,
)
from headrace.groups import autoscale as module
from headrace.groups.autoscale import Step, autoscale, rest_after
from headrace.groups.lag import measure
from headrace.groups.scaling import Policy, pool_of

pytestmark = pytest.mark.peer

POOL = pool_of(["w-{}"], 4)


async def make(js: JetStream, *members: str, **settings: Any) -> None:
    await js.create_stream(
        name="ORDERS", subjects=["orders.*"], storage="memory", allow_direct=True
    )
    await elastic.create(js, "ORDERS", "g", 4, members=members, **settings)


async def steps(js: JetStream, count: int, policy: Policy, **options: Any) -> list[Step]:
    found: list[Step] = []
    run = autoscale(js, "ORDERS", "g", policy, POOL, every=0.01, **options)
    async with aclosing(run):
        async for step in run:
            found.append(step)
            if len(found) == count:
                break
    return found


async def members(js: JetStream) -> tuple[str, ...]:
    return (await elastic.get(js, "ORDERS", "g")).members


async def test_what_is_decided_is_stored(js: JetStream) -> None:
    await make(js, "w-3")
    first, second = await steps(js, 2, Policy(minimum=3))
    assert first.applied
    assert first.decision is not None
    assert first.decision.added == ("w-0", "w-1")
    assert await members(js) == ("w-0", "w-1", "w-3")
    assert not second.applied
    assert second.decision is not None
    assert second.decision.before == ("w-0", "w-1", "w-3")


async def test_a_group_that_falls_behind_grows(js: JetStream) -> None:
    await make(js, "w-0")
    work = await js.stream("ORDERS-g")
    consumer = await work.create_consumer(
        name="w-0",
        filter_subjects=["0.>", "1.>", "2.>", "3.>"],
        priority_groups=["PCG"],
        priority_policy="pinned_client",
    )
    async with js.publisher() as publisher:
        for number in range(2000):
            await publisher.send(f"orders.{number}", b"x")
    policy = Policy(up_looks=2, target_seconds=0.001)
    run = autoscale(js, "ORDERS", "g", policy, POOL, every=0.01)
    async with aclosing(run):
        async for step in run:
            if step.applied:
                break
            for message in await consumer.fetch(2, group="PCG"):
                await message.ack_sync()
    assert await members(js) == ("w-0", "w-1")
    assert step.decision is not None
    assert step.decision.reasons[-1] == "too far behind for 2 looks"


async def test_a_dry_run_changes_nothing_and_says_why(js: JetStream) -> None:
    await make(js)
    found = await steps(js, 2, Policy(minimum=2), dry_run=True)
    for step in found:
        assert (step.applied, step.problem) == (False, "dry run")
        assert step.decision is not None
        assert step.decision.added == ("w-0", "w-1")
        assert step.decision.reasons[-1] == "fewer than 2 members"
    assert await members(js) == ()


async def test_only_those_are_added_who_have_an_instance(js: JetStream) -> None:
    await make(js)

    async def live() -> set[str]:
        return {"w-2"}

    (step,) = await steps(js, 1, Policy(minimum=2), live=live)
    assert step.applied
    assert await members(js) == ("w-2",)


async def test_a_decision_about_what_is_no_more_is_not_applied(
    js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(js)
    others = iter(["x", "y"])

    async def meanwhile(js: JetStream, group: Any, **options: bool) -> Any:
        look = await measure(js, group, **options)
        for name in islice(others, 1):
            await elastic.add_members(js, "ORDERS", "g", [name])
        return look

    monkeypatch.setattr(module, "measure", meanwhile)
    first, second, third = await steps(js, 3, Policy(minimum=3))
    assert not first.applied
    assert first.problem == second.problem == "somebody else changed the group meanwhile"
    assert third.applied
    assert await members(js) == ("w-0", "x", "y")  # three, and not three more


async def test_no_answer_is_a_step_and_not_the_end(
    js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(js)
    troubles = iter([RequestTimeoutError("no answer within 5 s")])

    async def troubled(js: JetStream, group: Any, **options: bool) -> Any:
        for error in troubles:
            raise error
        return await measure(js, group, **options)

    monkeypatch.setattr(module, "measure", troubled)
    first, second = await steps(js, 2, Policy(minimum=1))
    assert first == Step(None, problem="no answer within 5 s")
    assert second.applied


async def test_a_group_that_is_deleted_ends_it(js: JetStream) -> None:
    await make(js, "w-0")
    run = autoscale(js, "ORDERS", "g", Policy(), POOL, every=0.01)
    async with aclosing(run):
        await anext(run)
        await elastic.delete(js, "ORDERS", "g")
        with pytest.raises(GroupNotFoundError):
            await anext(run)


async def test_partitions_distributed_by_hand_are_left_so(js: JetStream) -> None:
    await make(js, member_mappings=[MemberMapping("a", (0, 1, 2, 3))])
    with pytest.raises(GroupConfigurationError, match="has member mappings"):
        await steps(js, 1, Policy())


def test_a_look_that_takes_long_is_followed_by_a_longer_rest() -> None:
    assert rest_after(0.5, 5.0) == 4.5
    assert rest_after(3.0, 5.0) == 12.0
