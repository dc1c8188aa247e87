"""The buckets of the records: as others make them, made with the first group, read through the leader."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from headrace.client import JetStream, KeyExistsError
from headrace.groups import (
    ElasticGroup,
    GroupConfigurationError,
    GroupNotFoundError,
    GroupRecordError,
    StaticGroup,
)
from headrace.groups.server.bucket import Records

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]


def group(name: str = "g", *members: str) -> StaticGroup:
    return StaticGroup("S", name, 3, ("foo.*",), members or ("m1", "m2"))


async def test_the_bucket_is_made_as_others_make_it(js: JetStream) -> None:
    records = Records(js, StaticGroup)
    with pytest.raises(
        GroupNotFoundError, match=r"the static consumer group KV bucket doesn't exist: stream not f"
    ):
        await records.open()
    assert await records.list("S") == ([], {})
    await records.make(1)
    config = (await (await js.stream("KV_static-consumer-groups")).info()).config
    assert (config.subjects, config.max_msgs_per_subject) == (("$KV.static-consumer-groups.>",), 1)
    assert (config.storage, config.num_replicas, config.discard) == ("file", 1, "new")
    assert config.allow_direct and config.allow_rollup_hdrs and config.deny_delete
    assert config.duplicate_window == 120
    assert (config.max_msgs, config.max_bytes, config.max_msg_size) == (-1, -1, -1)
    assert (config.max_age, config.max_consumers, config.retention) == (0, -1, "limits")
    await records.make(1)  # what is there is taken


async def test_a_bucket_that_somebody_made_otherwise_is_taken(js: JetStream) -> None:
    await js.create_key_value("elastic-consumer-groups", history=3)
    records = Records(js, ElasticGroup)
    await asyncio.gather(*(Records(js, ElasticGroup).make(1) for _ in range(5)))
    await records.create(ElasticGroup("S", "g", 3))
    assert await records.get("S", "g") == ElasticGroup("S", "g", 3)


async def test_a_record_is_created_read_changed_and_removed(js: JetStream) -> None:
    records = Records(js, StaticGroup)
    await records.make(1)
    created = await records.create(group())
    assert created.revision == 1
    found = await records.get("S", "g")
    assert (found, found.revision) == (group(), 1)
    with pytest.raises(KeyExistsError):
        await records.create(group())
    updated = await records.update(group("g", "other"), 1)
    assert updated.revision == 2
    with pytest.raises(KeyExistsError):
        await records.update(group(), 1)
    assert (await records.put(group())).revision == 3
    with pytest.raises(KeyExistsError):
        await records.delete("S", "g", revision=2)
    await records.delete("S", "g", revision=3)
    with pytest.raises(GroupNotFoundError, match=r"config: not found \(group 'g' of stream 'S'\)"):
        await records.get("S", "g")
    assert (await records.create(group())).revision > 4


async def test_a_bucket_that_goes_takes_its_groups_along(js: JetStream) -> None:
    records = Records(js, StaticGroup)
    await records.make(1)
    await records.create(group())
    await js.delete_key_value("static-consumer-groups")
    for _ in range(2):
        with pytest.raises(GroupNotFoundError, match="KV bucket doesn't exist: stream not found"):
            await records.get("S", "g")


async def test_the_groups_of_a_stream_are_listed_beside_damaged_ones(js: JetStream) -> None:
    records = Records(js, StaticGroup)
    bucket = await records.make(1)
    for name in ("b", "a", "a-b"):
        await records.create(group(name))
    await records.create(dataclasses.replace(group("other"), stream="S2"))
    await bucket.put("S.bad", b"{")
    await bucket.put("S.with.dots", b"{}")  # no group of ours: it could have no consumer
    await records.create(group("gone"))
    await records.delete("S", "gone")
    found = await records.list("S")
    assert [each.name for each in found.groups] == ["a", "a-b", "b"]
    assert list(found.damaged) == ["bad"]
    with pytest.raises(GroupRecordError, match="static group 'bad' of stream 'S' is no JSON"):
        await records.get("S", "bad")


async def test_a_watch_tells_of_changes_removal_and_damage(js: JetStream) -> None:
    records = Records(js, StaticGroup)
    bucket = await records.make(1)
    await records.create(group())
    async with asyncio.timeout(10), await records.watch("S", "g") as changes:
        assert await anext(changes) == group()
        await records.put(group("neighbour"))
        await records.put(group("g", "x"))
        changed = await anext(changes)
        assert changed == group("g", "x")
        assert changed.revision == 3
        await bucket.purge("S.g")
        assert await anext(changes) is None
        await bucket.put("S.g", b"[]")
        with pytest.raises(GroupRecordError, match="no JSON object"):
            await anext(changes)
        await records.put(group())
        assert await anext(changes) == group()


@pytest.mark.parametrize("name", ["", "a.b", "a*", "a b", ">"])
async def test_names_that_would_be_other_keys_are_refused(js: JetStream, name: str) -> None:
    records = Records(js, StaticGroup)
    with pytest.raises(GroupConfigurationError, match="group name"):
        await records.get("S", name)
    with pytest.raises(GroupConfigurationError, match="stream name"):
        await records.list(name)
