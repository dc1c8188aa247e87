"""Verbs that fail at each of their calls, before the server did it or after: calling again completes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from headrace.client import JetStream
from headrace.errors import HeadraceError
from headrace.groups import GroupExistsError, GroupNotFoundError, MemberMapping, elastic, static
from portions import some

pytestmark = [
    pytest.mark.peer,
    pytest.mark.usefixtures("no_leaks"),
    # One is enough: what fails here is the client.
    pytest.mark.parametrize("reference_server", ["nats-server"], indirect=True),
]

Verb = Callable[[], Awaitable[object]]


class CutError(HeadraceError):
    """What the client raises here in the place of an answer."""


class Failing:
    """Fails the call with a number: the server never hears of it, or has done it (``answer_lost``)."""

    def __init__(self, js: JetStream, monkeypatch: pytest.MonkeyPatch) -> None:
        self._requests: Any = js.connection._session.requests
        self._ask = self._requests.ask
        self._calls = 0
        self._at = 0
        self._answer_lost = False
        monkeypatch.setattr(self._requests, "ask", self._asked)

    async def _asked(self, *args: Any) -> Any:
        self._calls += 1
        if self._calls != self._at:
            return await self._ask(*args)
        if self._answer_lost:
            await self._ask(*args)
        raise CutError(f"call {self._calls} on {args[0]!r}")

    async def at(self, number: int, verb: Verb, *, answer_lost: bool) -> bool:
        """Whether the verb failed at that call; else it needed fewer."""
        self._calls, self._at, self._answer_lost = 0, number, answer_lost
        try:
            await verb()
        except CutError:
            return True
        finally:
            self._at = 0
        return False


@pytest.fixture
def failing(js: JetStream, monkeypatch: pytest.MonkeyPatch) -> Failing:
    return Failing(js, monkeypatch)


async def everything(js: JetStream) -> dict[str, Any]:
    """What there is but for the buckets: streams, their limits, and their consumers."""
    found: dict[str, Any] = {}
    async for info in js.streams():
        name = info.config.name
        if not name.startswith("KV_"):
            consumers = {each async for each in js.consumer_names(name)}
            found[name] = (info.config.sources, info.config.max_msgs, consumers)
    return found


async def repeated(failing: Failing, verb: Verb, begin: Verb, see: Verb) -> AsyncIterator[object]:
    """What is there once the verb has failed at each of its calls, and was called again."""
    for answer_lost in (False, True):
        for number in some(range(1, 100), 2, answer_lost):
            await begin()
            failed = await failing.at(number, verb, answer_lost=answer_lost)
            if failed:
                await verb()
            yield await see()
            if not failed:
                break
        assert not failed, "it never comes to its end"
        assert number > 3, "it made no calls"  # else the fault was never there


@pytest.fixture
def clean(js: JetStream, empty: Verb) -> Verb:
    """Begin with a stream, and nothing else."""

    async def clean() -> None:
        await empty()
        await js.create_stream(name="S", subjects=["s.>", "0.a"], storage="memory")

    return clean


async def test_a_static_group_is_created_by_calling_again(
    js: JetStream, failing: Failing, clean: Verb
) -> None:
    async def create() -> None:
        await static.create(js, "S", "g", 2, filters=["a"], members=["m"])

    async def see() -> object:
        return await static.list(js, "S"), await everything(js)

    await clean()
    await create()
    expected = await see()
    async for there in repeated(failing, create, clean, see):
        assert there == expected


async def test_an_elastic_group_is_created_by_calling_again(
    js: JetStream, failing: Failing, clean: Verb
) -> None:
    async def create() -> None:
        await elastic.create(js, "S", "g", 2, max_buffered_messages=9, members=["m"])

    async def see() -> object:
        return await elastic.list(js, "S"), await everything(js)

    async def with_left_over() -> None:
        """A stream of the group's kind is there, with other limits."""
        await clean()
        await create()
        await js.update_stream((await (await js.stream("S-g")).info()).config, max_msgs=5)
        await (await js.key_value("elastic-consumer-groups")).purge("S.g")

    await clean()
    await create()
    expected = await see()
    for begin in (clean, with_left_over):
        async for there in repeated(failing, create, begin, see):
            assert there == expected


async def test_limits_are_changed_by_calling_again(
    js: JetStream, failing: Failing, clean: Verb
) -> None:
    async def begin() -> None:
        await clean()
        await elastic.create(js, "S", "g", 2, max_buffered_messages=9, members=["m"])

    async def update() -> None:
        await elastic.update(js, "S", "g", max_buffered_messages=5)

    async def see() -> object:
        return await elastic.list(js, "S"), await everything(js)

    await begin()
    await update()
    expected = await see()
    async for there in repeated(failing, update, begin, see):
        assert there == expected


@pytest.mark.parametrize("layout", ["interoperable", "per_partition"])
async def test_a_static_group_is_deleted_by_calling_again(
    js: JetStream, failing: Failing, clean: Verb, layout: Any
) -> None:
    async def begin() -> None:
        await clean()
        for group in ("g", "g-h"):
            await static.create(js, "S", group, 2, members=["a", "b"], layout=layout)
            for end in ("-a", "-b", "=0", "=1"):
                await js.create_consumer(
                    "S",
                    durable_name=group + end,
                    priority_policy="pinned_client",
                    priority_groups=["PCG"],
                )

    async def delete() -> None:
        try:
            await static.delete(js, "S", "g")
        except GroupNotFoundError:  # it was complete but for its answer
            assert deleted

    async def see() -> object:
        with pytest.raises(GroupNotFoundError):
            await static.delete(js, "S", "g")
        return await static.list(js, "S"), await everything(js)

    deleted = False
    await begin()
    await delete()
    deleted = True
    expected = await see()
    async for there in repeated(failing, delete, begin, see):
        assert there == expected


async def test_an_elastic_group_is_deleted_by_calling_again(
    js: JetStream, failing: Failing, clean: Verb
) -> None:
    async def begin() -> None:
        await clean()
        for group in ("g", "g-h"):
            await elastic.create(js, "S", group, 2, members=["a", "b"])

    async def delete() -> None:
        try:
            await elastic.delete(js, "S", "g")
        except GroupNotFoundError:
            assert deleted

    async def see() -> object:
        with pytest.raises(GroupNotFoundError):
            await elastic.delete(js, "S", "g")
        return await elastic.list(js, "S"), await everything(js)

    deleted = False
    await begin()
    await delete()
    deleted = True
    expected = await see()
    async for there in repeated(failing, delete, begin, see):
        assert there == expected


async def test_a_deletion_that_failed_is_completed_by_creating_anew(
    js: JetStream, failing: Failing, clean: Verb
) -> None:
    """Whoever does not call ``delete`` again, but ``create``, does not find old consumers."""

    async def begin() -> None:
        await clean()
        await static.create(js, "S", "g", 2, members=["a", "b"])
        pinned: dict[str, Any] = {
            "priority_policy": "pinned_client",
            "priority_groups": ["PCG"],
        }
        for name in ("g-a", "g-b"):
            await js.create_consumer("S", durable_name=name, **pinned)
        await elastic.create(js, "S", "e", 2)

    async def delete() -> None:
        for verb, group in ((static.delete, "g"), (elastic.delete, "e")):
            await verb(js, "S", group)

    for number in range(1, 30):
        await begin()
        failed = await failing.at(number, delete, answer_lost=False)
        try:
            await static.create(js, "S", "g", 3, members=["b", "c"])
        except GroupExistsError:
            assert (await static.get(js, "S", "g")).max_members == 2  # not begun
            continue
        assert (await everything(js))["S"][2] == set()
        try:
            made = await elastic.create(js, "S", "e", 3)
        except GroupExistsError:
            assert (await elastic.get(js, "S", "e")).max_members == 2
            continue
        assert "Partition(3)" in str((await everything(js))["S-e"][0])
        assert made == await elastic.get(js, "S", "e")
        if not failed:
            break
    assert number > 10


@pytest.mark.parametrize(
    ("verb", "argument"),
    [
        (elastic.add_members, ["c", "d"]),
        (elastic.drop_members, ["a"]),
        (elastic.set_mappings, [MemberMapping("x", (1, 0))]),
    ],
)
async def test_a_change_that_failed_is_made_by_calling_again(
    js: JetStream, failing: Failing, clean: Verb, verb: Any, argument: Any
) -> None:
    async def begin() -> None:
        await clean()
        await elastic.create(js, "S", "g", 2, members=["a", "b"])

    async def change() -> None:
        await verb(js, "S", "g", argument)

    async def see() -> object:
        return await elastic.list(js, "S")

    await begin()
    await change()
    expected = await see()
    for answer_lost in (False, True):
        for number in (1, 2, 3):
            await begin()
            assert await failing.at(number, change, answer_lost=answer_lost)
            await change()
            assert await see() == expected
