"""Awaiting a message: as with a future, whether the task goes on at once or in the loop's next turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar

import pytest

from headrace.client.jetstream.consuming.feed import Waiter

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
