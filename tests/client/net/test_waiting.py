"""Awaiting a message: as with a future, whether the task goes on at once or in the loop's next turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, cast

import pytest

from headrace.client.net.waiting import LANES_MIN, Outcome, TimeLimits, Waiter

who: ContextVar[str] = ContextVar("who", default="nobody")


async def in_a_callback(call: Callable[[], object]) -> object:
    """What ``call`` returns where the event loop calls it, as it does a transport's protocol."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    loop.call_soon(lambda: done.set_result(call()))
    return await done


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_task_goes_on_as_itself(at_once: bool) -> None:
    waiter = Waiter(asyncio.get_running_loop(), at_once=at_once)
    seen: list[object] = []

    async def read() -> None:
        who.set("reader")
        for _ in range(3):
            await waiter
            task = asyncio.current_task()
            seen.append((task is reader, who.get(), task is not None and task.get_name()))

    reader = asyncio.create_task(read(), name="the reader")
    while not reader.done():
        await in_a_callback(waiter.wake_now)
    assert seen == 3 * [(True, "reader", "the reader")]
    assert who.get() == "nobody"


@pytest.mark.parametrize("at_once", [True, False])
async def test_it_goes_on_within_the_call_where_that_is_wanted(at_once: bool) -> None:
    waiter = Waiter(asyncio.get_running_loop(), at_once=at_once)
    order: list[str] = []

    async def read() -> None:
        await waiter
        order.append("read")

    def receive() -> object:
        went_on = waiter.wake_now()
        order.append("received")
        return went_on

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    assert waiter.is_awaited
    assert await in_a_callback(receive) is at_once
    await reader
    assert order == (["read", "received"] if at_once else ["received", "read"])
    assert not waiter.is_awaited
    assert await in_a_callback(waiter.wake_now) is False  # nobody waits


@pytest.mark.parametrize("ending", [SystemExit, KeyboardInterrupt])
def test_what_ends_the_program_ends_the_loop_and_not_whoever_received(
    ending: type[BaseException],
) -> None:
    loop = asyncio.new_event_loop()
    waiter = Waiter(loop, at_once=True)
    received: list[bool] = []

    async def read() -> None:
        await waiter
        raise ending(3)

    reader = loop.create_task(read())
    loop.call_soon(lambda: received.append(waiter.wake_now()))
    try:
        with pytest.raises(ending):
            loop.run_until_complete(loop.create_future())
        assert received == [True]
        assert isinstance(reader.exception(), ending)
        loop.run_until_complete(asyncio.sleep(0))  # it is a loop as before
    finally:
        loop.close()


async def test_within_another_task_it_goes_on_when_that_has_come_to_an_end() -> None:
    waiter = Waiter(asyncio.get_running_loop(), at_once=True)

    async def read() -> None:
        await waiter

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    assert not waiter.wake_now()
    assert not reader.done()
    await reader


@pytest.mark.parametrize("at_once", [True, False])
async def test_what_a_task_raises_is_its_own(at_once: bool) -> None:
    waiter = Waiter(asyncio.get_running_loop(), at_once=at_once)

    async def read() -> None:
        await waiter
        raise ValueError("of the reader")

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    await in_a_callback(waiter.wake_now)
    with pytest.raises(ValueError, match="of the reader"):
        await reader


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_task_is_cancelled_and_can_wait_again(at_once: bool) -> None:
    waiter = Waiter(asyncio.get_running_loop(), at_once=at_once)
    seen: list[str] = []

    async def read() -> None:
        try:
            await waiter
        except asyncio.CancelledError as error:
            seen.append(str(error))
        await waiter
        seen.append("read")

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)

    def cancel_and_receive() -> object:
        assert reader.cancel("enough")
        return waiter.wake_now()  # what comes now finds it on its way

    assert await in_a_callback(cancel_and_receive) is False
    await asyncio.sleep(0)
    assert seen == ["enough"]
    await in_a_callback(waiter.wake_now)
    await reader
    assert seen == ["enough", "read"]


async def test_a_task_on_its_way_can_be_cancelled_still() -> None:
    waiter = Waiter(asyncio.get_running_loop(), at_once=True)

    async def read() -> None:
        await waiter

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    waiter.wake()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert not waiter.is_awaited


@pytest.mark.parametrize("at_once", [True, False])
async def test_waiting_ends_in_time(at_once: bool) -> None:
    waiter = Waiter(asyncio.get_running_loop(), at_once=at_once)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await waiter
    assert not waiter.is_awaited


async def test_a_task_cancelled_before_it_waits_does_not_wait() -> None:
    waiter = Waiter(asyncio.get_running_loop(), at_once=True)

    async def read() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await waiter

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(read())


class Timer:
    """One of a clock."""

    def __init__(self, timers: list[Timer], when: float, call: Callable[[], object]) -> None:
        self.when = when
        self.call = call
        self._timers = timers
        timers.append(self)

    def cancel(self) -> None:
        self._timers.remove(self)


class Clock:
    """An event loop's clock and timers."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[..., object], *args: Any) -> Timer:
        return self.call_at(self.now + seconds, call, *args)

    def call_at(self, when: float, call: Callable[..., object], *args: Any) -> Timer:
        return Timer(self.timers, when, partial(call, *args))

    def advance(self, seconds: float) -> None:
        """Ring what is due, when it is."""
        until = self.now + seconds
        while due := [timer for timer in self.timers if timer.when <= until]:
            timer = min(due, key=lambda each: each.when)
            timer.cancel()
            self.now = timer.when
            timer.call()
        self.now = until


class Limited:
    """Outcomes under limits of time, and when they were late."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.late: list[tuple[str, float]] = []
        self.limits = TimeLimits(cast(asyncio.AbstractEventLoop, self.clock))

    def begin(self, name: str, seconds: float) -> Callable[[], object]:
        """What ends it in time."""
        outcome = Noted(self, name)
        until = self.limits.begin(outcome, seconds)
        return lambda: until.pop(outcome)


class Noted(Outcome):
    """Notes when its time was over."""

    def __init__(self, limited: Limited, name: str) -> None:
        super().__init__(cast(asyncio.AbstractEventLoop, limited.clock), at_once=True)
        self._limited = limited
        self._name = name

    def late(self, seconds: float) -> None:
        self._limited.late.append((self._name, self._limited.clock.now))


def test_those_that_may_wait_equally_long_share_a_timer() -> None:
    limited = Limited()
    for number in range(100):
        limited.begin(str(number), 60.0)()
    limited.begin("longer", 61.0)
    assert len(limited.clock.timers) == 2


def test_lengths_that_nobody_waits_for_any_more_are_forgotten() -> None:
    limited = Limited()
    limited.begin("first", 100.0)
    for number in range(1_000):
        limited.begin(str(number), 60.0 + number / 1_000)()
    assert len(limited.clock.timers) <= LANES_MIN
    limited.clock.advance(200.0)
    assert limited.late == [("first", 100.0)]


def test_each_is_late_after_its_own_time_and_not_if_it_came() -> None:
    limited = Limited()
    limited.begin("slow", 5.0)
    limited.begin("came", 2.0)()
    limited.begin("first", 2.0)
    limited.clock.advance(1.0)
    limited.begin("second", 2.0)
    limited.clock.advance(9.0)
    limited.begin("anew", 2.0)
    limited.clock.advance(9.0)
    assert limited.late == [("first", 2.0), ("second", 3.0), ("slow", 5.0), ("anew", 12.0)]
    assert limited.clock.timers == []


def test_nobody_is_late_once_the_limits_are_closed() -> None:
    limited = Limited()
    limited.begin("never", 1.0)
    limited.limits.close()
    limited.clock.advance(2.0)
    assert limited.late == []


def test_a_length_that_is_none_leaves_nothing_behind() -> None:
    limited = Limited()
    for _ in range(2):
        with pytest.raises(TypeError):
            limited.begin("never", cast(float, "5"))
    assert limited.clock.timers == []


def test_an_outcome_has_the_first_error_it_was_given() -> None:
    outcome = Noted(Limited(), "failed")
    outcome.end(ValueError("the first"))
    outcome.end(ValueError("the second"))
    assert outcome.is_over
    assert str(outcome.error) == "the first"
