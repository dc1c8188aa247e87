"""What an ordered consumer and a watch must not miss when they begin anew."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from headrace.api.consumers import DeliverPolicy
from headrace.client import Connection, JetStream, Stream
from headrace.client.jetstream.watch import Watch
from headrace.errors import ConsumerNotFoundError
from waiting import elapse, until, until_pulling

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]


async def lose(connection: Connection) -> None:
    """Break the link, and wait for the next one."""
    before = connection.reconnects
    link = connection._session.link
    assert link is not None
    link.abort(ConnectionResetError("by the test"))
    await until(lambda: connection.reconnects != before, within=5)


@pytest.mark.parametrize("policy", ["new", "last"])
async def test_what_came_before_the_first_message_was_read_is_not_skipped(
    connection: Connection, js: JetStream, stream: Stream, policy: DeliverPolicy
) -> None:
    await js.publish(f"{stream.name}.x", b"before")
    ordered = await stream.ordered_consumer(deliver_policy=policy)
    async with ordered.consume() as messages:
        first = asyncio.ensure_future(anext(messages))
        if policy == "last":
            assert (await asyncio.wait_for(first, 5)).payload == b"before"
            first = asyncio.ensure_future(anext(messages))
        assert ordered._consumer is not None
        await until_pulling(ordered._consumer)
        await ordered._consumer.delete()  # so that nothing comes until it begins anew
        await js.publish(f"{stream.name}.x", b"one")
        await js.publish(f"{stream.name}.x", b"two")
        assert (await asyncio.wait_for(first, 5)).payload == b"one"
        assert (await asyncio.wait_for(anext(messages), 5)).payload == b"two"


async def test_a_fetch_of_what_is_new_goes_on_where_it_began(js: JetStream, stream: Stream) -> None:
    ordered = await stream.ordered_consumer(deliver_policy="new")
    assert ordered._consumer is not None
    await ordered._consumer.delete()
    await js.publish(f"{stream.name}.x", b"one")
    assert (await ordered.next(5)).payload == b"one"


async def test_a_watch_of_updates_misses_none_over_a_lost_connection(
    connection: Connection, js: JetStream
) -> None:
    bucket = await js.create_or_update_key_value("RESETS", storage="memory")
    async with await bucket.watch(updates_only=True) as watch:
        await lose(connection)
        await bucket.put("a", b"1")
        await bucket.put("b", b"2")
        async with asyncio.timeout(5):
            assert [(await anext(watch)).key for _ in range(2)] == ["a", "b"]
    await js.delete_key_value("RESETS")


async def test_a_watch_that_begins_anew_counts_anew_what_is_there(
    connection: Connection, js: JetStream
) -> None:
    """With history the second consumer delivers every revision, not only the last of each key."""
    bucket = await js.create_or_update_key_value("RESETS", history=5, storage="memory")
    names = [f"k{number:02}" for number in range(20)]
    for name in names:
        for value in (b"1", b"2", b"3"):
            await bucket.put(name, value)
    for name in names[10:12]:
        await bucket.delete(name)
    async with await bucket.watch() as watch:
        seen = {}
        async for entry in watch.initial():
            seen[entry.key] = entry.operation, entry.value
            if len(seen) == 3:
                watch._held.clear()  # as if these had been lost on the way
                watch._ordered.last_sequence = entry.revision
                watch._messages._restart()
        assert sorted(seen) == names
        assert seen[names[10]][0] == "delete"
        assert {seen[name] for name in names if name not in names[10:12]} == {("put", b"3")}
    await js.delete_key_value("RESETS")


async def test_keys_are_those_with_a_value_also_when_it_begins_anew(
    connection: Connection, js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = await js.create_or_update_key_value("RESETS", history=5, storage="memory")
    for name in ("a", "b", "c", "d"):
        for value in (b"1", b"2"):
            await bucket.put(name, value)
    await bucket.delete("c")
    taken = Watch._receive
    takes = 0

    async def lossy(watch: Watch[object]) -> None:
        nonlocal takes
        await taken(watch)
        takes += 1
        if takes == 1:  # only the first was received before the link broke
            while len(watch._held) > 1:
                watch._held.pop()
            watch._ordered.last_sequence = watch._held[0].metadata.stream_seq
            watch._messages._restart()

    monkeypatch.setattr(Watch, "_receive", lossy)
    assert sorted(await bucket.keys()) == ["a", "b", "d"]
    await js.delete_key_value("RESETS")


async def test_a_consumer_that_is_gone_time_and_again_is_not_made_in_a_hurry(
    connection: Connection, js: JetStream, stream: Stream
) -> None:
    ordered = await stream.ordered_consumer()
    errors: list[Exception] = []

    async def delete() -> None:
        while True:
            await elapse(0.03, "nats-server says nothing to a pull that meets a deletion")
            if ordered._consumer is not None:
                with contextlib.suppress(ConsumerNotFoundError):
                    await ordered._consumer.delete()

    deleting = asyncio.ensure_future(delete())
    async with ordered.consume(on_error=errors.append) as messages:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.7):
                await anext(messages)
        deleting.cancel()
        await js.publish(f"{stream.name}.x", b"at last")
        assert (await asyncio.wait_for(anext(messages), 5)).payload == b"at last"
    assert ordered.resets <= 4
    assert len(errors) <= 8
