"""Groups made by hand: streams and consumers as members make them, for tests of what looks at groups."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.api.consumers import ConsumerConfig
from headrace.api.streams import StreamSource, SubjectTransformConfig
from headrace.client import Consumer, JetStream, Stream
from headrace.groups import ElasticGroup, StaticGroup
from headrace.groups.progress import consumer_of
from headrace.groups.record.assignment import transforms
from headrace.groups.record.names import PRIORITY_GROUP, elastic_stream

__all__ = ["elastic_streams", "member_consumers", "moved", "moves_needed", "static_stream", "take"]


async def elastic_streams(js: JetStream, group: ElasticGroup, subject: str = "") -> Stream:
    """The group's stream, with ``<its name>.>`` or ``subject``, and its work queue, which is returned."""
    await js.create_stream(
        name=group.stream,
        subjects=[subject or f"{group.stream.lower()}.>"],
        storage="memory",
        allow_direct=True,
    )
    source = StreamSource(
        name=group.stream,
        subject_transforms=transforms(group.partitioning_filters or (), group.max_members),
    )
    return await js.create_stream(
        name=elastic_stream(group.stream, group.name),
        sources=(source,),
        retention="workqueue",
        discard="new",
        max_msgs=group.max_buffered_messages or -1,
        max_bytes=group.max_buffered_bytes or -1,
        allow_direct=True,
        storage="memory",
    )


async def static_stream(js: JetStream, group: StaticGroup, *, direct: bool = True) -> Stream:
    """A stream that numbers ``<its name>.*`` itself."""
    front = group.stream.lower()
    transform = SubjectTransformConfig(
        src=f"{front}.*",
        dest=f"{{{{partition({group.max_members},1)}}}}.{front}.{{{{wildcard(1)}}}}",
    )
    return await js.create_stream(
        name=group.stream,
        subjects=[f"{front}.*"],
        subject_transform=transform,
        storage="memory",
        allow_direct=direct,
    )


async def member_consumers(
    js: JetStream, group: ElasticGroup | StaticGroup, member: str
) -> dict[int, Consumer]:
    """A member's consumers, each under the partitions that it reads."""
    found: dict[int, Consumer] = {}
    elastic = isinstance(group, ElasticGroup)
    stream = elastic_stream(group.stream, group.name) if elastic else group.stream
    numbers = group.assignment()[member]
    apart = group.layout == "per_partition"
    for several in [(number,) for number in numbers] if apart else [numbers]:
        name = consumer_of(group, several[0], member)
        config = ConsumerConfig(
            name=name,
            durable_name="" if elastic else name,
            filter_subjects=group.filter_subjects(several),
            ack_wait=30.0,
            inactive_threshold=60.0 if elastic else 0.0,
            priority_groups=(PRIORITY_GROUP,),
            priority_policy="pinned_client",
            priority_timeout=30.0,
        )
        consumer = await js.create_consumer(stream, config)
        found.update(dict.fromkeys(several, consumer))
    return found


async def take(consumer: Consumer, messages: int, *, ack: int = 0) -> list[str]:
    """Take messages as a pinned instance, and acknowledge the first ``ack`` of them; their subjects."""
    batch = list(await consumer.fetch(messages, group=PRIORITY_GROUP, max_wait=5))
    for message in batch[:ack]:
        await message.ack_sync()
    return [message.subject for message in batch]


def moved(before: Mapping[str, Collection[int]], after: Mapping[str, Collection[int]]) -> set[int]:
    """The partitions that have another owner ``after``, or none, than ``before``."""
    owners = {number: name for name, numbers in after.items() for number in numbers}
    return {
        number
        for name, numbers in before.items()
        for number in numbers
        if owners.get(number) != name
    }


def moves_needed(partitions: int, before: int, after: int) -> int:
    """The fewest partitions that must move when ``before`` members become ``after``, evenly loaded.

    It is the theoretical minimum against which ``moved`` is judged: who stays keeps as much as its new
    even share allows.
    """
    before, after = min(before, partitions), min(after, partitions)
    if before == 0 or after == 0:
        return partitions if after or before else 0
    if after >= before:
        block, rest = divmod(partitions, after)
        kept = before * block + min(before, rest)
    else:
        block, rest = divmod(partitions, before)
        kept = after * block + min(after, rest)
    return partitions - kept
