"""Each option of a bucket, changed alone while there is something in it, on both servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from headrace import BucketNotFoundError, JetStreamApiError
from headrace.api.streams import Republish, StreamConfig, StreamSource
from headrace.client import (
    JetStream,
    KeyValueOptions,
    ObjectStoreOptions,
)

KEYS = [f"key.{number}" for number in range(50)]
FULL: KeyValueOptions = {
    "description": "all that can be set",
    "history": 10,
    "ttl": 3600,
    "marker_ttl": 60,
    "max_value_size": 1000,
    "max_bytes": 1 << 20,
    "storage": "memory",
    "direct": True,
    "metadata": {"team": "a"},
}
CHANGES: dict[str, tuple[Any, dict[str, Any], int]] = {
    # option: its new value, what it makes of the stream, how many values are left of 112
    "description": ("other", {"description": "other"}, 112),
    "history": (5, {"max_msgs_per_subject": 5}, 78),
    "ttl": (60, {"max_age": 60.0, "duplicate_window": 60.0}, 112),
    "marker_ttl": (5, {"subject_delete_marker_ttl": 5.0}, 112),
    "max_value_size": (10, {"max_msg_size": 10}, 112),
    "max_bytes": (500, {"max_bytes": 500}, 112),
    "storage": ("memory", {}, 112),
    "num_replicas": (1, {}, 112),
    "placement": (None, {}, 112),
    "republish": (
        Republish(src=">", dest="again.>"),
        {"republish": Republish(src=">", dest="again.>")},
        112,
    ),
    "mirror": (None, {}, 112),
    "sources": (
        (StreamSource(name="NONE"),),
        {"sources": "NONE", "duplicate_window": 0.0},
        112,
    ),
    "compression": (False, {}, 112),
    "direct": (False, {"allow_direct": False}, 112),
    "message_ttl": (True, {}, 112),
    "metadata": ({"team": "b"}, {"metadata": {"team": "b"}}, 112),
}


@pytest.fixture(autouse=True)
async def nothing_left(js: JetStream) -> AsyncIterator[None]:
    yield
    async for name in js.key_values():
        await js.delete_key_value(name)
    async for name in js.object_stores():
        await js.delete_object_store(name)


def shown(config: StreamConfig) -> dict[str, Any]:
    found = msgspec.structs.asdict(config)
    names = [name for name in found["metadata"] if name.startswith("_nats.")]
    found["metadata"] = {k: v for k, v in found["metadata"].items() if k not in names}
    found["sources"] = "".join(each.name.removeprefix("KV_") for each in found["sources"])
    return found


async def configured(js: JetStream) -> dict[str, Any]:
    return shown((await (await js.key_value("B")).info()).config)


def test_every_option_is_changed() -> None:
    assert {*CHANGES} == {*KeyValueOptions.__annotations__}


@pytest.mark.parametrize("option", CHANGES)
async def test_an_update_changes_what_it_names_and_nothing_else(js: JetStream, option: str) -> None:
    bucket = await js.create_key_value("B", **FULL)
    await asyncio.gather(*(bucket.put(key, b"a value") for key in KEYS))
    await asyncio.gather(*(bucket.put(KEYS[n % 7], b"one more") for n in range(62)))
    before = await configured(js)
    value, changed, left = CHANGES[option]
    made = await js.update_key_value("B", **{option: value})
    assert await configured(js) == {**before, **changed}
    assert (await made.status()).values == left
    assert sorted(await made.keys()) == sorted(KEYS)
    assert (await made.get("key.49")).value == b"a value"


async def test_a_change_undoes_no_change_before_it(js: JetStream) -> None:
    bucket = await js.create_key_value("B", history=10)
    for number in range(12):
        await bucket.put("key", b"%d" % number)
    await js.update_key_value("B", ttl=3600)
    await js.update_key_value("B", max_bytes=1 << 20)
    await js.create_or_update_key_value("B", description="kept")
    status = await bucket.status()
    assert (status.history, status.ttl, status.values) == (10, 3600.0, 10)
    assert status.stream.config.max_bytes == 1 << 20
    assert status.description == "kept"


async def test_the_memory_of_message_ids_follows_the_ttl(js: JetStream) -> None:
    bucket = await js.create_key_value("B", ttl=10)
    for ttl, window in ((3600, 120.0), (30, 30.0), (0, 120.0)):
        await js.update_key_value("B", ttl=ttl)
        config = (await bucket.info()).config
        assert (config.max_age, config.duplicate_window) == (ttl, window)


async def test_a_smaller_bucket_keeps_its_keys_and_refuses_new_ones(js: JetStream) -> None:
    bucket = await js.create_key_value("B")
    for key in KEYS:
        await bucket.put(key, b"a value")
    await js.update_key_value("B", max_bytes=500)
    assert sorted(await bucket.keys()) == sorted(KEYS)
    with pytest.raises(JetStreamApiError, match="maximum bytes exceeded"):
        await bucket.put("new", b"a value")
    await bucket.put("key.1", b"a valu3")  # in the place of another
    with pytest.raises(JetStreamApiError, match="maximum bytes exceeded"):
        await bucket.put("key.2", b"a larger value")
    assert sorted(await bucket.keys()) == sorted(KEYS)


async def test_a_smaller_store_keeps_its_objects_whole(js: JetStream) -> None:
    store = await js.create_object_store("B", metadata={"team": "a"}, description="first")
    content = {f"object-{number}": bytes([number]) * 200_000 for number in range(4)}
    for name, data in content.items():
        await store.put(name, data)
    await js.update_object_store("B", max_bytes=300_000)
    for name, data in content.items():
        assert await store.get(name) == data
    with pytest.raises(JetStreamApiError, match="maximum bytes exceeded"):
        await store.put("another", b"x" * 1000)
    changes: list[ObjectStoreOptions] = [
        {"ttl": 3600},
        {"description": "second"},
        {"max_bytes": -1},
    ]
    for options in changes:
        await js.update_object_store("B", **options)
    await js.create_or_update_object_store("B", compression=False)
    status = await store.status()
    assert (status.ttl, status.description, status.metadata["team"]) == (3600.0, "second", "a")
    assert await store.get("object-3") == content["object-3"]
    with pytest.raises(BucketNotFoundError):
        await js.update_object_store("NONE", ttl=5)
