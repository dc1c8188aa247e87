"""Key-value buckets, and that another client sees the same bucket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import nats
import pytest

import peers
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
    if reference_server.name == "headrace":
        # Not there yet: it must be refused in words, never taken and forgotten.
        with pytest.raises(JetStreamApiError, match="message TTLs not supported"):
            await js.create_key_value("BRIEF", storage="memory", marker_ttl=1)
        return
    bucket = await js.create_key_value("BRIEF", storage="memory", marker_ttl=1)
    await bucket.put("brief", b"x", ttl=1)
    async with await bucket.watch("brief") as watch:
        assert [e.operation async for e in watch.initial()] == ["put"]
        assert (await asyncio.wait_for(anext(watch), 5)).operation == "purge"
    await js.delete_key_value("BRIEF")


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
    if reference_server.name != "headrace":  # that client lists keys over a push consumer
        assert sorted(await theirs.keys()) == ["ours", "theirs"]
    await other.close()
