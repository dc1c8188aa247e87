"""Key-value buckets and object stores of nats-py, unmodified, on our broker and on nats-server."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from typing import Any

import nats.js.errors
import pytest
from nats.aio.client import Client
from nats.js.api import (
    KeyValueConfig,
    ObjectInfo,
    ObjectLink,
    ObjectMeta,
    ObjectMetaOptions,
    ObjectStoreConfig,
    StorageType,
)
from nats.js.kv import KeyValue
from nats.js.object_store import ObjectStore

from conformance.nats_py import listed, told, watching
from waiting import until

BOTH = pytest.mark.parametrize("storage", [StorageType.FILE, StorageType.MEMORY])


async def bucket(connection: Client, storage: StorageType, **config: Any) -> KeyValue:
    settings = KeyValueConfig(bucket="B", storage=storage, **{"history": 5, **config})
    return await connection.jetstream().create_key_value(settings)


async def store(connection: Client, storage: StorageType, **config: Any) -> ObjectStore:
    settings = ObjectStoreConfig(storage=storage, **config)
    return await connection.jetstream().create_object_store("O", config=settings)


@BOTH
async def test_values_are_put_read_updated_and_deleted(
    connection: Client, storage: StorageType
) -> None:
    kv = await bucket(connection, storage)
    assert await kv.put("a.b", b"one") == 1
    assert await kv.create("c", b"two") == 2
    with pytest.raises(nats.js.errors.KeyWrongLastSequenceError):
        await kv.create("c", b"again")
    assert await kv.update("c", b"three", last=2) == 3
    with pytest.raises(nats.js.errors.KeyWrongLastSequenceError):
        await kv.update("c", b"four", last=2)
    entry = await kv.get("c")
    assert (entry.key, entry.value, entry.revision) == ("c", b"three", 3)
    assert (await kv.get("c", revision=2)).value == b"two"
    with pytest.raises(nats.js.errors.KeyNotFoundError):
        await kv.get("missing")
    await kv.delete("c")
    with pytest.raises(nats.js.errors.KeyNotFoundError):
        await kv.get("c")
    assert await kv.create("c", b"anew") == 5
    await kv.purge("c")
    with pytest.raises(nats.js.errors.KeyNotFoundError):
        await kv.get("c")
    status = await kv.status()
    assert (status.bucket, status.values, status.history) == ("B", 2, 5)
    assert await connection.jetstream().delete_key_value("B")
    with pytest.raises(nats.js.errors.BucketNotFoundError):
        await connection.jetstream().key_value("B")


@BOTH
async def test_keys_and_history_are_listed(connection: Client, storage: StorageType) -> None:
    kv = await bucket(connection, storage)
    with pytest.raises(nats.js.errors.NoKeysError):
        await kv.keys()
    for number in range(8):
        await kv.put("counted", str(number).encode())
    await kv.put("other", b"x")
    await kv.put("gone", b"x")
    await kv.delete("gone")
    assert sorted(await listed(kv.keys)) == ["counted", "other"]
    assert await listed(lambda: kv.keys(filters=["oth"])) == ["other"]
    history = await listed(lambda: kv.history("counted"))
    assert [entry.value for entry in history] == [b"3", b"4", b"5", b"6", b"7"]
    assert [entry.delta for entry in history] == [4, 3, 2, 1, 0]
    assert [entry.operation for entry in await listed(lambda: kv.history("gone"))] == [None, "DEL"]
    await kv.purge_deletes(olderthan=0)
    with pytest.raises(nats.js.errors.NoKeysError):
        await kv.history("gone")


@BOTH
async def test_watchers_see_what_is_there_and_what_comes(
    connection: Client, storage: StorageType
) -> None:
    kv = await bucket(connection, storage)
    empty = await kv.watch("later")
    assert await told(empty, 1) == [None]
    for number in range(3):
        await kv.put(f"k.{number}", b"old")
    everything, found = await watching(kv.watchall, 3)
    assert [entry and entry.key for entry in found] == ["k.0", "k.1", "k.2", None]
    some, found = await watching(lambda: kv.watch("k.*", include_history=True), 3)
    assert [entry and entry.key for entry in found] == ["k.0", "k.1", "k.2", None]
    await kv.put("k.1", b"new")
    await kv.delete("k.2")
    await kv.put("later", b"now")
    changes = await told(everything, 3)
    assert [(entry.key, entry.value, entry.operation) for entry in changes] == [
        ("k.1", b"new", None),
        ("k.2", b"", "DEL"),
        ("later", b"now", None),
    ]
    assert [entry.key for entry in await told(some, 2)] == ["k.1", "k.2"]
    assert [entry.key for entry in await told(empty, 1)] == ["later"]
    silent, found = await watching(lambda: kv.watch("k.>", ignore_deletes=True, meta_only=True), 2)
    assert [entry and entry.key for entry in found] == ["k.0", "k.1", None]
    for watcher in (empty, everything, some, silent):
        await watcher.stop()


@BOTH
async def test_a_watcher_of_thousands_misses_nothing(
    connection: Client, storage: StorageType
) -> None:
    kv = await bucket(connection, storage, history=1)
    js = connection.jetstream()
    value = b"x" * 2_000
    acks = [await js.publish_async(f"$KV.B.k{number}", value) for number in range(3_000)]
    await asyncio.gather(*acks)
    watcher = await kv.watchall()
    keys = []
    while (entry := await watcher.updates(timeout=10)) is not None:
        keys.append(entry.key)
    assert keys == [f"k{number}" for number in range(3_000)]
    await watcher.stop()


@BOTH
async def test_a_bucket_with_a_time_to_live_forgets(
    connection: Client, storage: StorageType
) -> None:
    kv = await bucket(connection, storage, ttl=0.5)
    assert (await kv.status()).ttl == 0.5
    watcher = await kv.watch("brief")
    assert await told(watcher, 1) == [None]
    await kv.put("brief", b"x")
    (entry,) = await told(watcher, 1)
    assert entry.value == b"x"
    await watcher.stop()

    async def is_gone() -> bool:
        try:
            await kv.get("brief")
        except nats.js.errors.KeyNotFoundError:
            return True
        return False

    await until(is_gone, "it has outlived its time")


@BOTH
async def test_objects_are_put_read_listed_and_deleted(
    connection: Client, storage: StorageType
) -> None:
    objects = await store(connection, storage, description="things")
    large = bytes(range(256)) * 2_000
    options = ObjectMetaOptions(max_chunk_size=10_000)
    info = await objects.put("large", large, meta=ObjectMeta(name="large", options=options))
    assert (info.size, info.chunks) == (512_000, 52)
    await objects.put("empty", b"")
    found = await objects.get("large")
    assert found.data == large
    assert (await objects.get("empty")).data in (b"", None)
    sink = io.BytesIO()
    await objects.get("large", writeinto=sink)
    assert sink.getvalue() == large
    again = await objects.put("large", io.BytesIO(b"small now"))
    assert (await objects.get("large")).data == b"small now"
    assert again.nuid != info.nuid
    assert sorted(entry.name for entry in await objects.list()) == ["empty", "large"]
    await objects.delete("large")
    assert (await objects.get_info("large", show_deleted=True)).deleted
    with pytest.raises(nats.js.errors.ObjectNotFoundError):
        await objects.get("large")
    assert [entry.name for entry in await objects.list(ignore_deletes=True)] == ["empty"]
    status = await objects.status()
    assert (status.bucket, status.sealed, status.description) == ("O", False, "things")
    assert await connection.jetstream().delete_object_store("O")


@BOTH
async def test_object_watchers_links_names_and_seals(
    connection: Client, storage: StorageType
) -> None:
    objects = await store(connection, storage)
    watcher = await objects.watch()
    assert await told(watcher, 1) == [None]
    await objects.put("one", b"1")
    await objects.put("two", b"2")
    await objects.update_meta("one", ObjectMeta(name="one", description="the first"))
    await objects.delete("two")
    seen = await told(watcher, 4)
    assert [(entry.name, bool(entry.deleted)) for entry in seen] == [
        ("one", False),
        ("two", False),
        ("one", False),
        ("two", True),
    ]
    assert (await objects.get_info("one")).description == "the first"
    await watcher.stop()
    await link(connection, "alias", "one")
    assert (await objects.get_info("alias")).is_link()
    assert (await objects.get("alias")).data == b"1"
    await objects.seal()
    assert (await objects.status()).sealed
    with pytest.raises(nats.js.errors.APIError):
        await objects.put("three", b"3")
    assert (await objects.get("one")).data == b"1"


async def link(connection: Client, name: str, to: str) -> None:
    """nats-py follows links and has no call that makes one."""
    options = ObjectMetaOptions(link=ObjectLink(bucket="O", name=to))
    info = ObjectInfo(name=name, bucket="O", nuid="link", options=options)
    encoded = base64.urlsafe_b64encode(name.encode()).decode()
    document = json.dumps(info.as_dict()).encode()
    headers = {"Nats-Rollup": "sub"}
    await connection.jetstream().publish(f"$O.O.M.{encoded}", document, headers=headers)
