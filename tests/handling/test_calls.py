"""A lane: what it hands on when it is cancelled, or ended by its handler, on the loop and on threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest

from headrace.handling.callbacks import RaisedError
from headrace.handling.calls import Calls, Single
from headrace.handling.threads import Threads, lane_here
from headrace.handling.waiting import Waiting


class Odd(BaseException):
    """Ends whatever it is said to end."""


class Seen:
    """What a lane has handed on."""

    def __init__(self) -> None:
        self.failed: list[Exception] = []
        self.dropped: list[str] = []

    async def fail(
        self, message: str, error: Exception, again: Callable[[], Awaitable[None]]
    ) -> None:
        self.failed.append(error)


class Several(Single[str]):
    """Messages of one lane."""

    def __init__(self, *messages: str) -> None:
        self._left = list(reversed(messages))


@pytest.fixture
async def threads() -> AsyncIterator[Threads]:
    made = Threads(2, "test")
    yield made
    made.close()


async def test_a_lane_that_is_cancelled_drops_its_message() -> None:
    seen, begun = Seen(), asyncio.Event()

    async def handler(message: str) -> None:
        begun.set()
        await asyncio.Event().wait()

    calls = Calls(handler, seen.fail, dropped=seen.dropped.append)
    lane = asyncio.create_task(calls.work(Single("m")))
    await begun.wait()
    lane.cancel()
    with pytest.raises(asyncio.CancelledError):
        await lane
    assert (seen.failed, seen.dropped) == ([], ["m"])


async def test_a_lane_that_is_cancelled_drops_what_failed_on_its_thread_meanwhile(
    threads: Threads,
) -> None:
    seen, begun, go_on = Seen(), threading.Event(), threading.Event()

    def handler(message: str) -> None:
        begun.set()
        assert go_on.wait(20)
        raise ValueError(message)

    calls = Calls(handler, seen.fail, threads=threads, dropped=seen.dropped.append)
    lane = asyncio.create_task(calls.work(Single("m")))
    await asyncio.to_thread(begun.wait, 20)
    lane.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await lane
    assert (seen.failed, seen.dropped) == ([], ["m"])


async def test_a_lane_that_is_cancelled_while_a_failure_is_seen_to_drops_its_message() -> None:
    seen, begun = Seen(), asyncio.Event()

    async def fail(message: str, error: Exception, again: Callable[[], Awaitable[None]]) -> None:
        begun.set()
        await asyncio.Event().wait()

    def handler(message: str) -> None:
        raise ValueError(message)

    lane = asyncio.create_task(Calls(handler, fail, dropped=seen.dropped.append).work(Single("m")))
    await begun.wait()
    lane.cancel()
    with pytest.raises(asyncio.CancelledError):
        await lane
    assert seen.dropped == ["m"]


async def test_what_is_said_to_end_a_lane_does_and_what_is_not_fails_its_message() -> None:
    seen = Seen()

    async def handler(message: str) -> None:
        raise Odd

    ended = Calls(handler, seen.fail, dropped=seen.dropped.append, endings=(Odd,))
    with pytest.raises(Odd):
        await ended.work(Single("first"))
    assert (seen.failed, seen.dropped) == ([], ["first"])
    await Calls(handler, seen.fail, dropped=seen.dropped.append).work(Single("second"))
    (error,) = seen.failed
    assert isinstance(error, RaisedError)
    assert isinstance(error.__cause__, Odd)
    assert seen.dropped == ["first"]


async def test_a_further_call_is_known_by_its_lane_whichever_thread_makes_it(
    threads: Threads,
) -> None:
    """Who ends its own work inside a handler is not waited for, and is known by that."""
    lanes: list[object] = []
    here: list[int] = []
    busy, go_on = threading.Event(), threading.Event()

    def handler(message: str) -> None:
        lanes.append(lane_here())
        here.append(threading.get_ident())
        if len(lanes) == 1:
            raise ValueError(message)

    def keep() -> None:
        busy.set()
        assert go_on.wait(20)

    async def fail(message: str, error: Exception, again: Callable[[], Awaitable[None]]) -> None:
        kept = asyncio.create_task(threads.run(keep))
        await asyncio.to_thread(busy.wait, 20)
        await again()
        go_on.set()
        await kept

    lane = asyncio.create_task(Calls(handler, fail, threads=threads).work(Single("m")))
    await lane
    assert lanes == [lane, lane]
    assert len(set(here)) == 2


async def test_a_check_comes_before_a_further_call_and_fails_as_the_handler_would(
    threads: Threads,
) -> None:
    for where in (None, threads):
        calls: list[str] = []

        def check(message: str) -> None:
            raise LookupError(message)

        async def fail(
            message: str, error: Exception, again: Callable[[], Awaitable[None]]
        ) -> None:
            with pytest.raises(LookupError):
                await again()

        def handler(message: str, calls: list[str] = calls) -> None:
            calls.append(message)
            raise ValueError(message)

        await Calls(handler, fail, threads=where, check=check).work(Single("m"))
        assert calls == ["m"]


class Later:
    until = 1.0


def test_a_turn_that_is_closed_lets_the_next_of_the_key_begin() -> None:
    waiting: Waiting[str] = Waiting()
    waiting.add([("k", "a"), ("k", "b"), ("other", "c")])
    turn = waiting.turn(lambda: 0.0, Later(), 10)
    assert next(turn) == "a"
    assert waiting.next() == "c"
    assert waiting.next() is None
    turn.close()
    assert waiting.next() == "b"
    assert sorted(waiting.handled()) == ["b", "c"]


def test_a_turn_ends_when_its_time_is_over_and_says_which_was_late() -> None:
    now = 0.0
    waiting: Waiting[str] = Waiting(in_turn=True, notes_late=True)
    waiting.add([(None, each) for each in "abc"])
    turn = waiting.turn(lambda: now, Later(), 10, skips=lambda each: each == "a")
    assert next(turn) == "b"
    now = 1.0
    assert next(turn, None) is None
    assert list(waiting.late or ()) == ["b"]
    assert waiting.waiting() == ["c"]


async def cancelled_future() -> None:
    """What waits for something that was cancelled."""
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


@pytest.mark.parametrize("raises", [False, True])
async def test_a_cancellation_that_a_handler_has_kept_to_itself_ends_no_lane_later(
    raises: bool,
) -> None:
    seen, handled = Seen(), []

    async def handler(message: str) -> None:
        handled.append(message)
        if message == "kept":  # as a time limit made by hand
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_soon(task.cancel)
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            if raises:
                raise ValueError(message)
        elif message == "cancelled":
            await cancelled_future()

    await Calls(handler, seen.fail, dropped=seen.dropped.append).work(
        Several("kept", "cancelled", "kept", "cancelled", "last")
    )
    assert handled == ["kept", "cancelled", "kept", "cancelled", "last"]
    kinds = [ValueError, RaisedError] if raises else [RaisedError]
    assert ([type(each) for each in seen.failed], seen.dropped) == (2 * kinds, [])


@pytest.mark.parametrize("raises", [False, True])
async def test_a_cancellation_that_has_not_arrived_when_a_handler_returns_ends_the_lane(
    raises: bool,
) -> None:
    seen, handled = Seen(), []

    def handler(message: str) -> None:
        handled.append(message)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if raises:
            raise ValueError(message)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(
            Calls(handler, seen.fail, dropped=seen.dropped.append).work(Several("a", "b"))
        )
    assert (handled, seen.failed, seen.dropped) == (["a"], [], ["a"] if raises else [])


async def test_what_is_called_again_after_a_kept_cancellation_may_wait_for_something_cancelled() -> (
    None
):
    seen = Seen()
    calls_made = 0

    async def handler(message: str) -> None:
        nonlocal calls_made
        calls_made += 1
        if calls_made > 1:
            await cancelled_future()
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        raise ValueError(message)

    async def fail(message: str, error: Exception, again: Callable[[], Awaitable[None]]) -> None:
        seen.failed.append(error)
        await again()

    with pytest.raises(asyncio.CancelledError):  # of the future: ``failed`` lets it through
        await Calls(handler, fail, dropped=seen.dropped.append).work(Single("m"))
    assert ([type(each) for each in seen.failed], seen.dropped) == ([ValueError], [])
