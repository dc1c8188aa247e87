"""A member's consumer that nats-server makes while the one before it is being deleted."""

from __future__ import annotations

import msgspec

import leftovers
import peers
from headrace.api.consumers import ConsumerConfig, ConsumerInfo, SequenceInfo
from headrace.client import JetStream
from headrace.groups import GroupMessage, PartitioningFilter, elastic
from headrace.groups.member.consumer.conflicts import is_of_another
from waiting import until

MADE = ConsumerInfo(
    stream_name="S-g",
    name="a",
    created="2026-11-29T01:00:00Z",
    ts="2026-11-29T01:00:00.1Z",
    delivered=SequenceInfo(consumer_seq=6, stream_seq=9),
)


def test_a_consumer_that_was_just_made_and_has_delivered_nothing_is_no_other_ones() -> None:
    assert is_of_another(MADE)
    new = msgspec.structs.replace(MADE, delivered=SequenceInfo())
    at_work = SequenceInfo(consumer_seq=6, stream_seq=9, last_active="2026-11-29T01:00:00.05Z")
    used = msgspec.structs.replace(MADE, delivered=at_work)
    restored = msgspec.structs.replace(MADE, ts="2026-11-29T02:00:00Z")
    without_time = msgspec.structs.replace(MADE, ts="")
    assert not any(map(is_of_another, (new, used, restored, without_time)))


async def test_a_consumer_with_the_place_of_a_deleted_one_is_made_anew_and_nothing_is_skipped(
    js: JetStream, reference_server: peers.ServerProcess
) -> None:
    """nats-server leaves the file of a place where a creation overtakes a deletion: here it is put there."""
    await js.create_stream(name="S", subjects=["s.*"])
    await elastic.create(
        js, "S", "g", 2, partitioning_filters=[PartitioningFilter("s.*", (1,))], members=["a"]
    )
    for number in range(10):
        await js.publish(f"s.{number % 5}", b"%d" % number)
    queue = await js.stream("S-g")

    async def is_copied() -> bool:
        return (await queue.info()).state.messages == 10

    await until(is_copied)
    subjects = (await queue.info(subjects=">")).state.subjects
    others = tuple(each for each in subjects if not each.endswith(".0"))
    config = ConsumerConfig(name="a", ack_policy="explicit", filter_subjects=others)
    before = await js.create_consumer("S-g", config)
    for message in await before.fetch(8):
        await message.ack_sync()
    with leftovers.consumers_place(reference_server, "S-g", "a"):
        await before.delete()
    handled: list[bytes] = []
    errors: list[Exception] = []

    async def handle(message: GroupMessage) -> None:
        handled.append(message.payload)
        message.ack()

    async with elastic.join(js, "S", "g", "a", handle, on_error=errors.append):
        await until(lambda: len(handled) == 2)
    assert (handled, errors) == ([b"0", b"5"], [])
