"""What a pinned instance takes: deliveries without a gap as they come, the others when all has come."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from headrace.client.seam import ManagedConsumption
from headrace.groups.member.intake import Intake


def batch(*deliveries: int) -> list[Any]:
    return [SimpleNamespace(metadata=SimpleNamespace(consumer_seq=number)) for number in deliveries]


class Scripted:
    """Gives batches one after the other, then the end; and gathers what it is told to."""

    def __init__(self, *batches: list[Any], gathered: list[Any] | None = None) -> None:
        self.batches = [*batches]
        self.gathered = gathered
        self.gaps: list[list[Any]] = []
        self.intake = Intake(cast(ManagedConsumption, self), self.gather, may_overtake=True)
        self.intake.follow(3)

    async def next_batch(self, max_messages: int = 0) -> list[Any]:
        return self.batches.pop(0) if self.batches else []

    async def gather(self, messages: list[Any]) -> list[Any] | None:
        self.gaps.append(messages)
        self.intake.follow(max(message.metadata.consumer_seq for message in messages))
        return self.gathered


async def test_deliveries_without_a_gap_are_taken_as_they_come() -> None:
    scripted = Scripted(batch(4, 5), batch(6))
    assert len(await scripted.intake.next_batch()) == 2
    assert len(await scripted.intake.next_batch()) == 1
    assert await scripted.intake.next_batch() == []
    assert scripted.gaps == []


async def test_after_a_gap_all_that_is_under_way_is_gathered() -> None:
    both = batch(4, 5)
    scripted = Scripted(batch(5), batch(6), gathered=both)
    assert await scripted.intake.next_batch() == both
    assert len(await scripted.intake.next_batch()) == 1
    assert len(scripted.gaps) == 1


async def test_what_was_acknowledged_before_it_came_is_passed_over() -> None:
    after = batch(6)
    scripted = Scripted(batch(5), after, gathered=[])
    assert await scripted.intake.next_batch() == after
    assert len(scripted.gaps) == 1


async def test_nothing_is_taken_once_it_is_over() -> None:
    scripted = Scripted(batch(5), batch(6), gathered=None)
    assert await scripted.intake.next_batch() == []
