"""Questions that are asked again before their answer is there, in virtual time."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

import virtual_time
from headrace.groups.server.asking import Asking, together


class Far:
    """A server that answers after a while how long ago it was begun, as it was when it was asked."""

    def __init__(self, answers_after_s: float) -> None:
        self._way_s = answers_after_s / 2
        self.asked: list[float] = []
        self.cancelled = 0

    async def ask(self) -> float:
        time = asyncio.get_running_loop().time
        self.asked.append(round(time(), 6))
        try:
            await asyncio.sleep(self._way_s)
            seen = round(time(), 6)
            await asyncio.sleep(self._way_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return seen


def test_a_far_server_is_asked_again_before_it_has_answered() -> None:
    async def main() -> None:
        far = Far(0.2)
        asking = Asking(far.ask, 0.025)
        assert [await asking.next() for _ in range(4)] == [0.1, 0.125, 0.175, 0.3]
        assert asyncio.get_running_loop().time() == pytest.approx(0.4)
        await asking.end()

    virtual_time.run(main())


def test_no_more_than_three_questions_are_under_way_to_a_server_that_is_slow() -> None:
    async def main() -> None:
        slow = Far(10.0)
        asking = Asking(slow.ask, 0.025)
        await asking.next()
        assert slow.asked == [0.0, 0.025, 0.075]
        await asking.next()
        assert slow.asked[3:] == [10.0]
        await asking.end()

    virtual_time.run(main())


def test_a_near_server_is_asked_after_each_answer_at_growing_intervals() -> None:
    async def main() -> None:
        near = Far(0.002)
        asking = Asking(near.ask, 0.025, 0.1)
        for _ in range(5):
            await asking.next()
            assert not asking.is_under_way
        assert near.asked == [0.0, 0.025, 0.075, 0.175, 0.275]

    virtual_time.run(main())


def test_who_ends_waits_for_no_answer_and_who_settles_for_all() -> None:
    async def main() -> None:
        far = Far(0.2)
        asking = Asking(far.ask, 0.025)
        await asking.next()
        assert asking.is_under_way
        await asking.settle()
        assert (far.cancelled, asking.is_under_way) == (0, False)
        assert asyncio.get_running_loop().time() == pytest.approx(0.275)
        asking = Asking(far.ask, 0.025)
        await asking.next()
        await asking.end()
        assert (far.cancelled, asking.is_under_way) == (2, False)
        assert asyncio.get_running_loop().time() == pytest.approx(0.475)

    virtual_time.run(main())


def test_a_refusal_is_raised_in_its_turn() -> None:
    far, refused = Far(0.1), iter([True, False])

    async def ask() -> str:
        await far.ask()
        if next(refused):
            raise LookupError("in the way")
        return "made"

    async def main() -> None:
        asking = Asking(ask, 0.05)
        with pytest.raises(LookupError):
            await asking.next()
        assert asking.is_under_way
        assert await asking.next() == "made"
        await asking.end()

    virtual_time.run(main())


def test_nothing_is_said_of_a_refusal_that_nobody_waits_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    far = Far(0.1)
    answers: Iterator[str | Exception] = iter(["made", *[LookupError("too late")] * 3])

    async def ask() -> str:
        answer = next(answers)
        await far.ask()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def main() -> None:
        asking = Asking(ask, 0.025)
        assert await asking.next() == "made"
        await asking.settle()
        gc.collect()

    virtual_time.run(main())
    assert "never retrieved" not in caplog.text


def test_two_questions_are_asked_at_once_and_the_first_error_is_raised_when_both_have_ended() -> (
    None
):
    async def main() -> None:
        far = Far(0.2)
        assert await together(far.ask(), far.ask()) == (0.1, 0.1)

        async def fail() -> None:
            raise LookupError("refused")

        with pytest.raises(LookupError):
            await together(fail(), far.ask())
        assert asyncio.get_running_loop().time() == pytest.approx(0.4)

    virtual_time.run(main())
