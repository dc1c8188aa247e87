"""Groups made by others and by us are the same groups: records, streams, and verbs of either.

The Go implementation's records are ours byte for byte, but for the order of several members: whenever it adds
one, that is the order of a Go map, another one each time. natsio-pcgroups puts blanks into them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from group_processes.crowd import PeerRefusalError, PeerVerbs
from group_processes.strangers import Stranger
from headrace.client import Connection, JetStream
from headrace.groups import (
    ElasticGroup,
    GroupExistsError,
    MemberMapping,
    PartitioningFilter,
    elastic,
    static,
)

STREAM, GROUP = "ORDERS", "g"
MAPPED = [MemberMapping("b", (0, 2)), MemberMapping("a", (1,))]
THEIR_MAPPED = [
    {"mapping": {"member": "b", "partitions": [0, 2]}},
    {"mapping": {"member": "a", "partitions": [1]}},
]


@pytest.fixture
async def js(connection: Connection) -> JetStream:
    context = connection.jetstream()
    await context.create_stream(name=STREAM, subjects=["orders.>", "bills.>", "0.>"])
    return context


async def stored(js: JetStream, kind: str) -> bytes:
    bucket = await js.key_value(f"{kind}-consumer-groups")
    return (await bucket.get(f"{STREAM}.{GROUP}")).value


def comparable(stranger: Stranger, value: bytes) -> Any:
    """The bytes of a record; of natsio-pcgroups its fields in their order, which writes no null."""
    if stranger.name == "go":
        return value
    fields = json.loads(value, object_pairs_hook=list)
    return [field for field in fields if field[1] is not None]


def their_filters(filters: list[PartitioningFilter]) -> list[Any]:
    return [
        {
            "filter": {
                "filter": f.filter,
                "partitioning_wildcards": list(f.partitioning_wildcards or ()),
            }
        }
        for f in filters
    ]


@pytest.mark.parametrize(
    ("filters", "members", "mappings", "their_mappings"),
    [
        ([], ["m2", "m1"], [], []),
        (["orders.*", "bills.>"], ["m1"], [], []),
        ([], [], MAPPED, THEIR_MAPPED),
    ],
)
async def test_a_static_group(
    js: JetStream,
    stranger: Stranger,
    verb: PeerVerbs,
    filters: list[str],
    members: list[str],
    mappings: list[MemberMapping],
    their_mappings: list[Any],
) -> None:
    ours = await static.create(
        js, STREAM, GROUP, 3, filters=filters, members=members, member_mappings=mappings
    )
    mine = await stored(js, "static")
    arguments = [STREAM, GROUP, 3, filters or None, members or None, their_mappings or None]
    await verb("create_static", *arguments)  # is there already, and is the same
    assert await stored(js, "static") == mine
    await verb("delete_static", STREAM, GROUP)
    await verb("create_static", *arguments)
    theirs = await stored(js, "static")
    assert comparable(stranger, mine) == comparable(stranger, theirs)
    assert await static.get(js, STREAM, GROUP) == ours
    assert await static.create(
        js, STREAM, GROUP, 3, filters=filters, members=members, member_mappings=mappings
    ) == ours  # fmt: skip
    with pytest.raises(GroupExistsError):
        await static.create(js, STREAM, GROUP, 3, filters=["other.*"], members=["m1"])
    assert [group.name for group in await static.list(js, STREAM)] == [GROUP]
    assert await verb("list_static_groups", STREAM) == [GROUP]


@pytest.mark.parametrize(
    ("filters", "buffered"),
    [
        (None, (-1, -1)),
        ([PartitioningFilter("orders.*.*", (2, 1))], (100, 1 << 20)),
        ([PartitioningFilter("orders.*", (1,)), PartitioningFilter("bills.>", ())], (0, 0)),
    ],
)
async def test_an_elastic_group(
    js: JetStream,
    stranger: Stranger,
    verb: PeerVerbs,
    filters: list[PartitioningFilter] | None,
    buffered: tuple[int, int],
) -> None:

    async def create() -> ElasticGroup:
        return await elastic.create(
            js,
            STREAM,
            GROUP,
            3,
            partitioning_filters=filters,
            max_buffered_messages=buffered[0],
            max_buffered_bytes=buffered[1],
        )

    ours = await create()
    mine = await stored(js, "elastic")
    queue = (await (await js.stream(f"{STREAM}-{GROUP}")).info()).config
    arguments = [STREAM, GROUP, 3, None if filters is None else their_filters(filters), *buffered]
    await verb("create_elastic", *arguments)  # is there already, and so is its stream
    assert await stored(js, "elastic") == mine
    await verb("delete_elastic", STREAM, GROUP)
    await verb("create_elastic", *arguments)
    theirs = await stored(js, "elastic")
    assert comparable(stranger, mine) == comparable(stranger, theirs)
    assert (await (await js.stream(f"{STREAM}-{GROUP}")).info()).config == queue
    assert await create() == ours
    await elastic.delete(js, STREAM, GROUP)
    assert not await verb("list_elastic_groups", STREAM)  # Go says null


async def test_members_of_an_elastic_group_are_changed_by_either(
    js: JetStream, stranger: Stranger, verb: PeerVerbs
) -> None:
    filters = [PartitioningFilter("orders.*", (1,))]
    await elastic.create(js, STREAM, GROUP, 3, partitioning_filters=filters)
    await elastic.add_members(js, STREAM, GROUP, ["b"])
    assert {*await verb("add_members", STREAM, GROUP, ["a", "c"])} == {"a", "b", "c"}
    assert {*(await elastic.drop_members(js, STREAM, GROUP, ["a", "c"])).members} == {"b"}
    mine = await stored(js, "elastic")
    assert not await verb("delete_members", STREAM, GROUP, ["b"])
    assert not (await elastic.get(js, STREAM, GROUP)).members
    await verb("add_members", STREAM, GROUP, ["b"])
    assert comparable(stranger, await stored(js, "elastic")) == comparable(stranger, mine)
    await elastic.drop_members(js, STREAM, GROUP, ["b"])
    await elastic.set_mappings(js, STREAM, GROUP, MAPPED)
    mine = await stored(js, "elastic")
    with pytest.raises(PeerRefusalError, match=r"ConsumerGroupConfigError|uses member mappings"):
        await verb("add_members", STREAM, GROUP, ["c"])
    await verb("delete_member_mappings", STREAM, GROUP)
    assert (await elastic.get(js, STREAM, GROUP)).member_mappings == ()
    await verb("set_member_mappings", STREAM, GROUP, THEIR_MAPPED)
    assert comparable(stranger, await stored(js, "elastic")) == comparable(stranger, mine)
    assert (await elastic.get(js, STREAM, GROUP)).member_mappings == tuple(MAPPED)
