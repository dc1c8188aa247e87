"""One member's life as a proxy sees it: what it changes, what consumer comes of it, what its pulls say."""

from __future__ import annotations

import json
from typing import Any

from group_processes.crowd import Crowd, Worker
from group_processes.listening_proxy import Call
from headrace.api.streams import SubjectTransformConfig
from headrace.client import Connection, JetStream
from headrace.groups import PartitioningFilter, elastic, static
from waiting import until

__all__ = ["ACK_WAIT", "GROUP", "LIVES", "STREAM", "changes", "create_again", "pulls", "subjects"]

STREAM, GROUP, QUEUE = "ORDERS", "g", "ORDERS-g"
PARTITIONS = 4
KEYS = 6
ACK_WAIT = 2.0
NUMBERED = SubjectTransformConfig(
    src="orders.*", dest=f"{{{{partition({PARTITIONS},1)}}}}.orders.{{{{wildcard(1)}}}}"
)


async def elastic_life(crowd: Crowd, js: JetStream, url: str, *, peer: bool) -> Worker:
    """Joins, works, gives partitions away, steps down, is dropped and leaves."""
    await js.create_stream(name=STREAM, subjects=["orders.*"])
    filters = [PartitioningFilter("orders.*", (1,))]
    await elastic.create(js, STREAM, GROUP, PARTITIONS, partitioning_filters=filters, members=["a"])
    worker = crowd.start("a", peer=peer, url=url)
    await crowd.until_joined(worker)
    await publish(crowd, js, 0)
    await elastic.add_members(js, STREAM, GROUP, ["b"])

    async def halved() -> bool:
        found = [c async for c in (await js.stream(QUEUE)).consumers() if c.name == "a"]
        return bool(found) and len(found[0].config.filter_subjects) == PARTITIONS // 2

    await until(halved, "half of the partitions are not given away")
    before = crowd.handled()
    await send(js, 1)
    await until(lambda: crowd.handled() > before, "the other half is not handled")  # it is pinned
    await elastic.drop_members(js, STREAM, GROUP, ["b"])
    await until(lambda: crowd.handled() == before + KEYS, "they are not handled")
    await elastic.drop_members(js, STREAM, GROUP, ["a"])

    async def gone() -> bool:
        return not [name async for name in (await js.stream(QUEUE)).consumer_names()]

    await until(gone, "the consumer is not deleted")
    return worker


async def static_life(crowd: Crowd, js: JetStream, url: str, *, peer: bool) -> Worker:
    """Joins, works, and ends with the group."""
    await js.create_stream(name=STREAM, subjects=["orders.*"], subject_transform=NUMBERED)
    await static.create(js, STREAM, GROUP, PARTITIONS, filters=["orders.*"], members=["a"])
    worker = crowd.start("a", peer=peer, url=url)
    await crowd.until_joined(worker)
    await publish(crowd, js, 0)
    return worker


async def publish(crowd: Crowd, js: JetStream, number: int) -> None:
    """One message for each of some keys, which are handled."""
    before = crowd.handled()
    await send(js, number)
    await until(lambda: crowd.handled() == before + KEYS, "they are not handled")


async def send(js: JetStream, number: int) -> None:
    for key in range(KEYS):
        await js.publish(f"orders.k{key}", f"k{key} {number}".encode())


LIVES = {"elastic": elastic_life, "static": static_life}


def changes(calls: list[Call]) -> list[tuple[str, Any]]:
    """The calls that change something, with what they say of a consumer.

    A creation that is asked for again before a slow server has answered is one.
    """
    found: list[tuple[str, Any]] = []
    for call in calls:
        verb = ".".join(call.subject.split(".")[:2])
        if verb == "CONSUMER.CREATE" and "PCG" in json.dumps(call.body):
            made = (call.subject, call.body["config"])
            if found[-1:] != [made]:
                found.append(made)
        elif verb in ("CONSUMER.DELETE", "CONSUMER.UNPIN") and "KV_" not in call.subject:
            found.append((call.subject, call.body))
    return found


def pulls(calls: list[Call]) -> set[tuple[Any, ...]]:
    """What pulls say: how long they wait, for which group, and whether with a pin."""
    bodies = [
        c.body for c in calls if c.subject.startswith("CONSUMER.MSG.NEXT") and "group" in c.body
    ]
    fields = ("expires", "idle_heartbeat", "group")
    return {(*(body.get(field) for field in fields), bool(body.get("id"))) for body in bodies}


def subjects(calls: list[Call]) -> list[str]:
    """Of all changes, but that we let go of the pin when we leave, which they keep until its time is over."""
    return [subject for subject, _ in changes(calls) if not subject.startswith("CONSUMER.UNPIN")]


async def create_again(connection: Connection, subject: str, config: Any) -> Any:
    """The configuration that the server makes of what a member has asked for."""
    name = subject.split(".")[3]
    stream = subject.split(".")[2]
    body = json.dumps({"stream_name": stream, "config": config}).encode()
    answer = json.loads((await connection.request(f"$JS.API.{subject}", body)).payload)
    assert "error" not in answer, answer
    await connection.request(f"$JS.API.CONSUMER.DELETE.{stream}.{name}")
    return answer["config"]
