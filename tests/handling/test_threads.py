"""Threads for plain handlers: as many as are needed, and what they have begun is waited for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from headrace.handling.threads import Threads
from waiting import until_here


async def test_a_call_that_has_begun_is_waited_for_when_it_is_cancelled() -> None:
    threads = Threads(1, "test")
    begun, go_on = threading.Event(), threading.Event()
    ended: list[str] = []

    def work() -> None:
        begun.set()
        assert go_on.wait(20)
        ended.append("first")

    try:
        first = asyncio.create_task(threads.run(work))
        await asyncio.to_thread(begun.wait, 20)
        second = asyncio.create_task(threads.run(lambda: ended.append("second")))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second  # it has not begun, and never does
        first.cancel()
        await asyncio.sleep(0)
        assert not first.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await first
        await threads.run(lambda: ended.append("third"))
        assert ended == ["first", "third"]
    finally:
        go_on.set()
        threads.close()


async def test_threads_that_wait_for_nothing_leave_a_call_that_has_begun_to_itself() -> None:
    threads = Threads(2, "test", waits=False)
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert go_on.wait(20)
        ended.set()

    try:
        first = asyncio.create_task(threads.run(work))
        await asyncio.to_thread(begun.wait, 20)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert not ended.is_set()
        go_on.set()
        assert await asyncio.to_thread(ended.wait, 20)
        assert await threads.run(lambda: threads.is_here)
    finally:
        go_on.set()
        threads.close()


async def test_threads_begin_as_they_are_needed_and_end() -> None:
    before = threading.active_count()
    threads = Threads(3, "test")
    here: list[bool] = []
    for _ in range(5):
        await threads.run(lambda: here.append(threads.is_here))
    assert threading.active_count() == before + 1  # one was enough
    together = threading.Barrier(3)
    await asyncio.gather(*(threads.run(lambda: together.wait(20)) for _ in range(3)))
    assert threading.active_count() == before + 3
    assert here == [True] * 5
    assert not threads.is_here
    failing: Callable[[], object] = lambda: 1 / 0  # noqa: E731
    with pytest.raises(ZeroDivisionError):
        await threads.run(failing)
    threads.close()
    threads.close()
    await asyncio.to_thread(until_here, lambda: threading.active_count() <= before + 1)
