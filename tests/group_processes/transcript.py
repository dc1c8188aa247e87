"""What an implementation of groups asks of a server and stores there, written down.

Verbs are played in the words of ``peer_verbs.py``. What is written down of each is what it changes: entries
of the buckets, byte for byte, and the bodies of calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from group_processes.listening_proxy import ListeningProxy
from headrace.client import JetStream
from headrace.groups import MemberMapping, PartitioningFilter, elastic, static

__all__ = ["SCENARIO", "Verb", "our_verb", "play"]

Verb = Callable[..., Awaitable[Any]]

STREAM = "ORDERS"
FILTERS = [
    {"filter": {"filter": "orders.*.*", "partitioning_wildcards": [2, 1]}},
    {"filter": {"filter": "bills.>", "partitioning_wildcards": []}},
]
MAPPED = [
    {"mapping": {"member": "b", "partitions": [0, 2]}},
    {"mapping": {"member": "a", "partitions": [1]}},
]
SCENARIO: list[list[Any]] = [
    ["create_static", STREAM, "s1", 3, None, ["m2", "m1"], None],
    ["create_static", STREAM, "s1", 3, None, ["m2", "m1"], None],
    ["create_static", STREAM, "s2", 2, ["orders.*", "bills.>", "<&é>.*"], ["m1"], None],
    ["create_static", STREAM, "s3", 3, None, None, MAPPED],
    ["delete_static", STREAM, "s1"],
    ["create_elastic", STREAM, "e1", 6, None, -1, -1],
    ["create_elastic", STREAM, "e2", 3, FILTERS, 100, 1 << 20],
    ["create_elastic", STREAM, "e3", 3, FILTERS[:1], 0, 0],
    ["add_members", STREAM, "e3", ["a"]],
    ["delete_members", STREAM, "e3", ["a"]],
    ["set_member_mappings", STREAM, "e3", MAPPED],
    ["delete_member_mappings", STREAM, "e3"],
    ["delete_elastic", STREAM, "e2"],
]
"""Without a choice of order: members that Go adds one to the other come in the order of a Go map."""


async def play(js: JetStream, proxy: ListeningProxy, verb: Verb) -> list[dict[str, Any]]:
    """Each verb of the scenario, and what it changed; ``verb`` goes through ``proxy``."""
    await js.create_stream(name=STREAM, subjects=["orders.>", "bills.>", "0.>"])
    played = []
    for step in SCENARIO:
        calls, stores = len(proxy.calls), len(proxy.stores)
        await verb(*step)
        played.append(
            {
                "verb": step,
                "stores": [
                    [each.subject, dict(each.headers), each.value] for each in proxy.stores[stores:]
                ],
                "calls": [
                    [each.subject, each.body]
                    for each in proxy.calls[calls:]
                    if each.subject.startswith(("STREAM.CREATE", "STREAM.DELETE"))
                ],
            }
        )
    return played


def our_verb(js: JetStream) -> Verb:
    """Ours, in the words of the others."""

    def mappings(told: Any) -> list[MemberMapping]:
        pairs = [each["mapping"] for each in told or ()]
        return [MemberMapping(each["member"], tuple(each["partitions"])) for each in pairs]

    def filters(told: Any) -> list[PartitioningFilter] | None:
        if told is None:
            return None
        pairs = [each["filter"] for each in told]
        return [PartitioningFilter(e["filter"], tuple(e["partitioning_wildcards"])) for e in pairs]

    async def verb(name: str, stream: str, group: str, *rest: Any) -> Any:
        match name, rest:
            case "create_static", (count, patterns, names, mapped):
                await static.create(
                    js,
                    stream,
                    group,
                    count,
                    filters=patterns or (),
                    members=names or (),
                    member_mappings=mappings(mapped),
                )
            case "create_elastic", (count, told, messages, size):
                await elastic.create(
                    js,
                    stream,
                    group,
                    count,
                    partitioning_filters=filters(told),
                    max_buffered_messages=messages,
                    max_buffered_bytes=size,
                )
            case "add_members", (names,):
                await elastic.add_members(js, stream, group, names)
            case "delete_members", (names,):
                await elastic.drop_members(js, stream, group, names)
            case "set_member_mappings", (mapped,):
                await elastic.set_mappings(js, stream, group, mappings(mapped))
            case "delete_member_mappings", ():
                await elastic.delete_mappings(js, stream, group)
            case "delete_static", ():
                await static.delete(js, stream, group)
            case "delete_elastic", ():
                await elastic.delete(js, stream, group)
            case _:
                raise AssertionError(f"{name} {rest}")

    return verb
