from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.groups import NotOwnedError
from headrace.groups.member.handlers.handling import Handling
from headrace.groups.member.lease import Generation, Lease
from headrace.handling.failure_policy import DeadLetter


class Held:
    """A message that is not answered."""

    is_answered = False

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        about = SimpleNamespace(stream="S", stream_seq=5, delivered=1)
        self._message = SimpleNamespace(metadata=about, subject="s")

    @property
    def is_owned(self) -> bool:
        return self._generation.is_owned


class Renewals:
    """Whether the lease is to be renewed first; ``becomes`` says what the renewal makes of it."""

    def __init__(self) -> None:
        self.overdue = False
        self.waited = 0
        self.becomes: Any = None

    def is_overdue(self) -> bool:
        return self.overdue

    async def until_renewed(self) -> None:
        self.overdue = False
        self.waited += 1
        if self.becomes is not None:
            self.becomes()


class Owner:
    """A partition, its message, and whom failures are told to."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self.reported: list[Exception] = []
        self.calls = 0
        self.loses_at = 0
        self._outcomes = list(outcomes)
        self.generation = Generation(17, (3,), Lease(2.5, since=0.0), lambda: 1.0)
        self.message: Any = Held(self.generation)
        shared: Any = SimpleNamespace(
            label="g/m",
            key=lambda message: "k",
            js=SimpleNamespace(connection=SimpleNamespace(is_closed=False)),
            on_failure=DeadLetter("dead", after=2, backoff=(0.0,)),
            random=SimpleNamespace(random=lambda: 0.5),
            report=self._report,
        )
        self.renewals = Renewals()
        intake: Any = self.renewals
        self.handling = Handling(shared, self.generation, intake)

    def _report(self, error: Exception, about: str) -> None:
        self.reported.append(error)
        assert (
            about == "the handler of g/m on stream 'S', subject s, sequence 5, delivery 1, key 'k'"
        )

    async def again(self) -> None:
        self.calls += 1
        if self.calls == self.loses_at:
            self.generation.lease.end()
        if (outcome := self._outcomes.pop(0)) is not None:
            raise outcome

    async def failed(self, error: Exception) -> None:
        async with asyncio.timeout(5):
            await self.handling.failed(self.message, error, self.again)


@pytest.mark.parametrize("again", [NotOwnedError("taken"), ValueError("again")])
async def test_a_message_that_is_taken_from_us_between_two_attempts_is_no_dead_letter(
    again: Exception,
) -> None:
    """It is another owner's by then, and was published as one that cannot be handled."""
    owner = Owner(again)
    owner.loses_at = 1
    first = ValueError("first")
    await owner.failed(first)
    assert owner.reported == [first, again]


async def test_an_attempt_waits_for_a_renewal_that_is_overdue() -> None:
    """Handlers have kept the loop; if this one does, too, it would end when the pin is another's."""
    owner = Owner(None)
    owner.renewals.overdue = True
    await owner.failed(ValueError("first"))
    assert (owner.renewals.waited, owner.calls) == (1, 1)


@pytest.mark.parametrize("ends", ["lease", "stopping"])
async def test_no_attempt_follows_a_renewal_in_vain(ends: str) -> None:
    owner = Owner(None)
    owner.renewals.overdue = True
    owner.renewals.becomes = (
        owner.generation.lease.end if ends == "lease" else owner.handling.stopping.set
    )
    first = ValueError("first")
    await owner.failed(first)
    assert (owner.calls, owner.reported) == (0, [first])


async def test_a_message_that_is_ours_is_handled_again() -> None:
    owner = Owner(None)
    first = ValueError("first")
    await owner.failed(first)
    assert (owner.calls, owner.reported) == (1, [first])
