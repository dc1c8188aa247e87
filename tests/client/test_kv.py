"""Key-value buckets, and that another client sees the same bucket."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from datetime import timedelta

import nats
import pytest

import peers
from headrace.api.streams import Republish, StreamSource
from headrace.client import Entry, JetStream, KeyExistsError, KeyNotFoundError, KeyValue
from headrace.errors import ConfigurationError, JetStreamApiError

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]


@pytest.fixture
async def bucket(js: JetStream) -> AsyncIterator[KeyValue]:
    yield await js.create_key_value("B", history=5, storage="memory")
    await js.delete_key_value("B")


async def test_values_are_set_read_and_removed(bucket: KeyValue) -> None:
    with pytest.raises(KeyNotFoundError, match="bucket 'B' has no key 'a'"):
        await bucket.get("a")
    first = await bucket.put("a", b"1")
    second = await bucket.put("a", b"2")
    assert second == first + 1
    entry = await bucket.get("a")
    assert (entry.value, entry.revision, entry.operation) == (b"2", second, "put")
    assert (await bucket.get("a", revision=first)).value == b"1"
    await bucket.delete("a")
    with pytest.raises(KeyNotFoundError) as caught:
        await bucket.get("a")
    assert caught.value.entry is not None
    assert caught.value.entry.operation == "delete"
    assert [e.operation for e in await bucket.history("a")] == ["put", "put", "delete"]
    await bucket.purge("a")
    assert [e.operation for e in await bucket.history("a")] == ["purge"]


async def test_create_and_update_compare_the_revision(bucket: KeyValue) -> None:
    revision = await bucket.create("k", b"1")
    with pytest.raises(KeyExistsError, match="'k'"):
        await bucket.create("k", b"other")
    updated = await bucket.update("k", b"2", revision)
    with pytest.raises(KeyExistsError):
        await bucket.update("k", b"3", revision)
    with pytest.raises(KeyExistsError):
        await bucket.delete("k", revision=revision)
    await bucket.delete("k", revision=updated)
    assert (await bucket.get("k", revision=await bucket.create("k", b"again"))).value == b"again"


async def test_only_one_of_many_creates_wins(bucket: KeyValue) -> None:
    results = await asyncio.gather(
        *(bucket.create("lock", b"%d" % n) for n in range(20)), return_exceptions=True
    )
    assert sum(isinstance(result, int) for result in results) == 1
    assert sum(isinstance(result, KeyExistsError) for result in results) == 19


async def test_keys_are_listed_without_deleted_ones(bucket: KeyValue) -> None:
    assert await bucket.keys() == []
    for key in ("a.1", "a.2", "b.1"):
        await bucket.put(key, b"")
    await bucket.delete("a.2")
    assert sorted(await bucket.keys()) == ["a.1", "b.1"]
    assert await bucket.keys("a.*") == ["a.1"]


async def test_a_watch_begins_with_what_is_there_and_goes_on(bucket: KeyValue) -> None:
    await bucket.put("a", b"1")
    await bucket.put("a", b"2")
    await bucket.put("b", b"1")
    async with await bucket.watch() as watch:
        there = [(e.key, e.value) async for e in watch.initial()]
        assert there == [("a", b"2"), ("b", b"1")]
        changing: asyncio.Task[Entry] = asyncio.ensure_future(anext(watch))
        await bucket.delete("b")
        entry = await asyncio.wait_for(changing, 5)
        assert (entry.key, entry.operation) == ("b", "delete")
    async with await bucket.watch("a", updates_only=True) as watch:
        assert [e async for e in watch.initial()] == []
        await bucket.put("b", b"not this")
        await bucket.put("a", b"3")
        assert (await asyncio.wait_for(anext(watch), 5)).value == b"3"


async def test_a_key_may_have_a_lifetime_of_its_own(
    js: JetStream, reference_server: peers.ServerProcess
) -> None:
    bucket = await js.create_key_value("BRIEF", storage="memory", marker_ttl=1)
    assert (await bucket.status()).marker_ttl == 1
    other = await nats.connect(reference_server.url)
    theirs = await other.jetstream().key_value("BRIEF")
    await bucket.put("kept", b"x", ttl=60)
    await bucket.create("brief", b"x", ttl=1)
    await theirs.create("theirs", b"x", msg_ttl=1)
    await bucket.put("marked", b"x")
    await bucket.purge("marked", ttl=60)
    async with asyncio.timeout(10), await bucket.watch("brief", "marked", "theirs") as watch:
        there = {e.key: e.operation async for e in watch.initial()}
        assert there == {"brief": "put", "theirs": "put", "marked": "purge"}
        gone = [await anext(watch), await anext(watch)]
        assert {(e.key, e.operation) for e in gone} == {("brief", "purge"), ("theirs", "purge")}
    await other.close()
    with pytest.raises(KeyNotFoundError):
        await bucket.get("brief")
    await bucket.create("brief", b"again")  # the server's mark does not stand in the way
    assert await bucket.keys() == ["kept", "brief"]
    with pytest.raises(JetStreamApiError, match="TTL"):
        await bucket.put("x", b"", ttl=0.5)
    await js.delete_key_value("BRIEF")


async def test_what_was_deleted_is_purged(bucket: KeyValue) -> None:
    for key in ("a", "b", "c"):
        await bucket.put(key, b"1")
        await bucket.put(key, b"2")
    await bucket.delete("a")
    await bucket.purge("b")
    assert await bucket.purge_deletes() == 2  # the marks are young, and stay
    assert [e.operation for e in await bucket.history("a")] == ["delete"]
    assert await bucket.purge_deletes(older_than=0) == 2
    assert await bucket.history("a") == await bucket.history("b") == []
    assert [e.value for e in await bucket.history("c")] == [b"1", b"2"]
    assert await bucket.purge_deletes() == 0


async def test_a_watch_resumes_from_a_revision(bucket: KeyValue) -> None:
    for number in range(4):
        await bucket.put("a", b"%d" % number)
    second = (await bucket.history("a"))[1].revision
    async with asyncio.timeout(10), await bucket.watch("a", from_revision=second + 1) as watch:
        assert [e.value async for e in watch.initial()] == [b"2", b"3"]
        await bucket.put("a", b"4")
        assert (await anext(watch)).value == b"4"
    async with asyncio.timeout(10), await bucket.watch("a", history=True, headers_only=True) as w:
        assert [(e.value, e.pending) async for e in w.initial()] == [(b"", 4 - n) for n in range(5)]
    with pytest.raises(ConfigurationError, match="give one"):
        await bucket.watch("a", history=True, from_revision=1)


async def test_a_stopped_watch_ends(js: JetStream, bucket: KeyValue) -> None:
    async with js.publisher() as publisher:
        await publisher.send_many((f"$KV.B.{n}", b"") for n in range(2000))
    async with asyncio.timeout(10):
        watch = await bucket.watch()
        assert (await anext(watch)).key == "0"
        await watch.stop()
        rest = [entry.key async for entry in watch.initial()]
        assert rest == [str(n) for n in range(1, len(rest) + 1)]
        assert [entry async for entry in watch] == []


async def test_a_watch_of_several_patterns(bucket: KeyValue) -> None:
    for key in ("a.1", "b.1", "c.1"):
        await bucket.put(key, b"")
    assert await bucket.keys("a.*", "c.>") == ["a.1", "c.1"]
    async with asyncio.timeout(10), await bucket.watch("a.*", "b.1") as watch:
        assert [e.key async for e in watch.initial()] == ["a.1", "b.1"]


async def test_what_is_removed_while_it_is_listed_is_not_waited_for(
    js: JetStream, bucket: KeyValue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.client.jetstream.watch.SILENCE_S", 0.1)
    async with js.publisher() as publisher:
        await publisher.send_many((f"$KV.B.{n}", b"") for n in range(3000))
    async with asyncio.timeout(10), await bucket.watch() as watch:
        there = [entry async for entry in watch.initial() if await purged_at(100, entry, bucket)]
        assert 100 <= len(there) < 3000
        await bucket.put("new", b"1")
        assert (await anext(watch)).key == "new"


async def purged_at(count: int, entry: Entry, bucket: KeyValue) -> bool:
    if entry.revision == count:
        await bucket._stream.purge()
    return True


async def test_the_status_of_a_bucket(js: JetStream) -> None:
    bucket = await js.create_key_value(
        "STATUS",
        description="described",
        history=3,
        ttl=timedelta(minutes=10),
        max_value_size=100,
        max_bytes=10_000,
        storage="memory",
        metadata={"owner": "mill"},
    )
    await bucket.put("a", b"1")
    await bucket.put("a", b"2")
    status = await bucket.status()
    assert (status.bucket, status.description, status.history) == ("STATUS", "described", 3)
    assert (status.ttl, status.storage, status.values) == (600, "memory", 2)
    assert status.metadata["owner"] == "mill"
    assert (status.compressed, status.num_replicas) == (False, 1)
    assert status.size == status.stream.state.bytes > 0
    assert status.stream.config.max_msg_size == 100
    with pytest.raises(JetStreamApiError, match="size exceeds"):
        await bucket.put("a", bytes(101))
    assert "STATUS" in [status.bucket async for status in js.key_value_statuses()]
    await js.update_key_value("STATUS", history=5, storage="memory")
    await js.create_or_update_key_value("STATUS", history=6, storage="memory")
    assert (await bucket.status()).history == 6
    with pytest.raises(ConfigurationError, match="no option hist; it has"):
        await js.create_key_value("STATUS", hist=5)  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="not both"):
        await js.create_key_value(
            "STATUS", mirror=StreamSource(name="B"), sources=[StreamSource(name="B")]
        )
    await js.delete_key_value("STATUS")


async def test_a_bucket_takes_in_others(js: JetStream, bucket: KeyValue) -> None:
    await bucket.put("a", b"1")
    both = await js.create_key_value("ALL", storage="memory", sources=[StreamSource(name="B")])
    async with asyncio.timeout(10), await both.watch() as watch:
        assert (await anext(watch)).value == b"1"
        await bucket.put("b", b"2")
        assert (await anext(watch)).key == "b"
    assert sorted(await both.keys()) == ["a", "b"]
    await js.delete_key_value("ALL")


async def test_a_mirror_reads_here_and_writes_there(js: JetStream, bucket: KeyValue) -> None:
    await bucket.put("a", b"1")
    await js.create_key_value("COPY", storage="memory", mirror=StreamSource(name="B"))
    copy = await js.key_value("COPY")
    async with asyncio.timeout(10), await copy.watch() as watch:
        assert (await anext(watch)).value == b"1"
        await copy.put("b", b"2")
        assert (await anext(watch)).key == "b"
    assert (await copy.get("b")).value == (await bucket.get("b")).value == b"2"
    assert (await copy.get("b")).bucket == "COPY"
    await js.delete_key_value("COPY")


async def test_changes_are_published_again(js: JetStream) -> None:
    bucket = await js.create_key_value(
        "LOUD", storage="memory", republish=Republish(src=">", dest="loud.>")
    )
    heard = await js.connection.subscribe("loud.>")
    await bucket.put("a", b"1")
    message = await heard.next(5)
    assert (message.subject, message.payload) == ("loud.$KV.LOUD.a", b"1")
    await heard.unsubscribe()
    await js.delete_key_value("LOUD")


async def test_names_out_of_form_are_refused(js: JetStream, bucket: KeyValue) -> None:
    for key in ("", ".a", "a.", "a..b", "a b", "a*", "ä"):
        with pytest.raises(ConfigurationError, match="key"):
            await bucket.put(key, b"")
    with pytest.raises(ConfigurationError, match="bucket name"):
        await js.create_key_value("a.b")
    with pytest.raises(ConfigurationError, match="history"):
        await js.create_key_value("ab", history=65)
    with pytest.raises(JetStreamApiError, match="stream not found"):
        await js.key_value("NONE")


async def test_another_client_sees_the_same_bucket(
    js: JetStream, bucket: KeyValue, reference_server: peers.ServerProcess
) -> None:
    assert "B" in [name async for name in js.key_values()]
    other = await nats.connect(reference_server.url)
    theirs = await other.jetstream().key_value("B")
    await bucket.put("ours", b"1")
    assert (await theirs.get("ours")).value == b"1"
    await theirs.put("theirs", b"2")
    await theirs.put("gone", b"3")
    await theirs.delete("gone")
    assert (await bucket.get("theirs")).value == b"2"
    with pytest.raises(KeyNotFoundError):
        await bucket.get("gone")
    assert sorted(await bucket.keys()) == ["ours", "theirs"]
    assert sorted(await theirs.keys()) == ["ours", "theirs"]
    await other.close()


async def test_keys_that_are_there_all_the_time_are_listed_whatever_is_written_meanwhile(
    bucket: KeyValue,
) -> None:
    for key in ("a", "b", "c"):
        await bucket.put(key, b"1")
    for options in ({}, {"history": True}, {"from_revision": 1}, {"headers_only": True}):
        async with asyncio.timeout(10), await bucket.watch(**options) as watch:
            await bucket.put("x", b"new")
            for number in range(6):  # more than the history keeps
                await bucket.put("a", b"%d" % number)
            there = {entry.key: entry.revision async for entry in watch.initial()}
            assert there.keys() >= {"a", "b", "c"}, options
            there["b"] = await bucket.put("b", b"later")
            async for entry in watch:
                assert entry.revision > there["a"], "it goes back"
                if entry.key == "b":
                    assert entry.revision == there["b"]
                    break
        await bucket.purge("x")


@pytest.mark.parametrize("history", [1, 3])
async def test_a_listing_beside_busy_writers_is_whole_and_ends(js: JetStream, history: int) -> None:
    bucket = await js.create_key_value("BUSY", history=history, storage="memory")
    names = [f"key.{number}" for number in range(40)]
    for name in names:
        await bucket.put(name, b"")

    async def write(some: list[str]) -> None:
        for number in itertools.count():
            for name in some:
                await bucket.put(name, b"%d" % number)
                await bucket.put(f"new.{number % 50}", b"")

    try:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            writers = [group.create_task(write(names[n::5])) for n in range(3)]
            for _ in range(25):
                keys = await bucket.keys()
                assert len(keys) == len(set(keys))
                assert set(keys) >= set(names)
            for writer in writers:
                writer.cancel()
    finally:
        await js.delete_key_value("BUSY")


async def test_a_key_that_is_always_ahead_of_its_reader_is_looked_up(
    js: JetStream, bucket: KeyValue
) -> None:
    """Whoever takes one entry at a time, and slower than others write, comes to an end all the same."""
    one = await js.create_key_value("ONE", storage="memory")
    for key in ("a", "b", "c"):
        await one.put(key, b"1")
    try:
        async with asyncio.timeout(20), await one.watch() as watch:
            watch._messages._limits["max_messages"] = 1
            told, number = [], 0

            async def write() -> None:
                nonlocal number
                number += 1
                await one.put("b", b"%d" % number)
                await one.put("a", b"%d" % number)

            await write()
            async for entry in watch.initial():
                told.append((entry.key, entry.revision))
                await write()
            assert {key for key, _ in told} == {"a", "b", "c"}
            assert len(told) < 20
            revisions = dict(told)
            for _ in range(4):
                entry = await anext(watch)
                assert entry.revision > revisions.get(entry.key, 0), "it goes back to what it told"
                revisions[entry.key] = entry.revision
                await write()
    finally:
        await js.delete_key_value("ONE")


async def test_a_key_whose_mark_is_purged_meanwhile_is_created(
    bucket: KeyValue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark stands in the way of the first attempt, and is gone when the second one names it."""
    asked = 0
    last = bucket._last

    async def purged_before(key: str, revision: int = 0) -> Entry | None:
        nonlocal asked
        asked += 1
        if asked == 1:
            await bucket.purge_deletes(older_than=0)
            return await last(key, revision)
        return await last(key, revision)

    async def purged_behind(key: str, revision: int = 0) -> Entry | None:
        nonlocal asked
        asked += 1
        found = await last(key, revision)
        if asked == 1:
            await bucket.purge_deletes(older_than=0)
        return found

    for meanwhile in (purged_before, purged_behind):
        asked = 0
        await bucket.put("k", b"1")
        await bucket.delete("k")
        monkeypatch.setattr(bucket, "_last", meanwhile)
        revision = await bucket.create("k", b"2")
        monkeypatch.undo()
        assert (await bucket.get("k")).revision == revision
        await bucket.delete("k")


async def test_a_key_is_created_beside_whoever_purges_deletions(js: JetStream) -> None:
    bucket = await js.create_key_value("PURGED", storage="memory")

    async def purge() -> None:
        while True:
            await bucket.purge_deletes(older_than=0)

    try:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            purging = group.create_task(purge())
            for number in range(150):
                await bucket.create("k", b"%d" % number)
                with pytest.raises(KeyExistsError):
                    await bucket.create("k", b"another")
                await bucket.delete("k")
            purging.cancel()
    finally:
        await js.delete_key_value("PURGED")
