"""Blocking methods made of asyncio ones: where they run, and what Python and type checkers say of them."""

from __future__ import annotations

import asyncio
import inspect
import threading
import typing
from collections.abc import AsyncIterator, Iterator
from typing import assert_type

import pytest

from headrace import sync
from headrace.api.streams import StreamInfo
from headrace.blocking import (
    Blocking,
    CallingThread,
    anywhere,
    blocking,
    calling,
    iterating,
    returning,
    wrapping,
)
from headrace.client.blocking.loop_thread import LoopThread


class AioThing:
    async def slow(self, number: int, /, *, more: int = 0) -> int:
        """A number."""
        return number + more

    def where(self) -> int:
        """The thread."""
        return threading.get_ident()

    async def numbers(self, count: int) -> AsyncIterator[int]:
        """Numbers."""
        for number in range(count):
            yield number

    async def part(self, name: str = "a", /, **options: str) -> str:
        """A part."""
        return name + options["self"]

    def whole(self) -> str:
        """The whole: ``async with whole()``."""
        return "whole"


class Part(Blocking):
    _inner: str


class Thing(Blocking):
    slow = blocking(AioThing.slow)
    where = calling(AioThing.where)
    here = anywhere(AioThing.where)
    numbers = iterating(AioThing.numbers)
    part = returning(Part, AioThing.part)
    whole = wrapping(Part, anywhere(AioThing.whole))


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.stop()


def test_each_kind_is_done_where_it_has_to_be(thread: LoopThread) -> None:
    thing = Thing(thread, AioThing())
    assert thing.slow(1, more=2) == 3
    assert thing.where() == thread.call(threading.get_ident)
    assert thing.here() == threading.get_ident()
    assert list(thing.numbers(3)) == [0, 1, 2]
    part = thing.part("b", self="c")  # an option may have any name
    assert (type(part), part._inner, part._thread) == (Part, "bc", thread)
    assert type(thing.whole()) is Part
    with pytest.raises(TypeError, match="slow"):
        thing.slow(number=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("method", "shown", "result"),
    [
        (Thing.slow, "(self, number: 'int', /, *, more: 'int' = 0) -> 'int'", int),
        (Thing.numbers, "(self, count: 'int') -> 'Iterator[int]'", Iterator[int]),
        (Thing.part, "(self, name: 'str' = 'a', /, **options: 'str') -> 'str'", Part),
    ],
)
def test_signature_and_types_are_those_of_the_asyncio_method(
    method: typing.Any, shown: str, result: object
) -> None:
    assert str(inspect.signature(method)) == shown
    assert typing.get_type_hints(method)["return"] == result
    assert not inspect.iscoroutinefunction(method)
    assert method.__doc__ == vars(AioThing)[method.__name__].__doc__
    assert Thing.whole.__doc__ == "The whole: ``with whole()``."


def test_a_function_that_is_given_an_asyncio_object_is_given_that_of_the_facade(
    thread: LoopThread,
) -> None:
    async def doubled(thing: AioThing, number: int) -> int:
        """Twice the number."""
        return 2 * await thing.slow(number)

    function = blocking(doubled)
    assert function(Thing(thread, AioThing()), 3) == 6
    assert function.__doc__ == "Twice the number."


def test_on_the_calling_thread_each_kind_runs_there() -> None:
    thing = Thing(CallingThread(), AioThing())
    assert thing.slow(1, more=2) == 3
    assert thing.where() == thing.here() == threading.get_ident()
    assert list(thing.numbers(3)) == [0, 1, 2]


def test_what_a_loop_would_have_to_bring_about_is_refused_and_ended() -> None:
    ended: list[bool] = []

    async def wait() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            ended.append(True)

    with pytest.raises(RuntimeError, match=r"wait.* waits for a loop, and there is none"):
        CallingThread().run(wait())
    assert ended == [True]


async def test_a_listing_outlives_the_loop_of_the_thread_that_began_it() -> None:
    def begun() -> Iterator[int]:
        async def begin() -> Iterator[int]:
            numbers = Thing(CallingThread(), AioThing()).numbers(3)
            assert next(numbers) == 0
            return numbers

        return asyncio.run(begin())

    assert list(await asyncio.to_thread(begun)) == [1, 2]


def types_are_inferred(js: sync.JetStream) -> None:
    """Never called: mypy reads it."""
    stream = js.create_stream(name="A", subjects=["a"])
    assert_type(stream, sync.Stream)
    assert_type(stream.info(deleted=True), StreamInfo)
    assert_type(stream.consumer("C").fetch(1, group="a", max_wait=1.0), sync.Batch)
    assert_type(js.stream_names(subject="a"), Iterator[str])
    assert_type(js.publisher(10), sync.Publisher)
    stream.info(1)  # type: ignore[call-arg, arg-type]
    js.create_key_value("B", nothing=1)  # type: ignore[call-arg]
    js.publish(subject=1)  # type: ignore[arg-type]
