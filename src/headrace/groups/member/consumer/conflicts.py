"""What to do about a consumer in a member's way: of another configuration, or used by no instance any more.

A static group's consumer holds the member's place in the stream, so it is never deleted for another time to
acknowledge: it is changed in place, where that takes nothing from an instance at work. An elastic group's
consumer holds nothing that is not in the work queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from ....api.consumers import ConsumerConfig
from ....api.errors import Errors
from ....api.times import parse_time
from ....client.publish.headers import duration_text
from ....errors import JetStreamApiError
from ...record.names import QUERY_ROLE, ROLE
from ...server.consumers import is_groups_own

if TYPE_CHECKING:
    from ....api.consumers import ConsumerInfo
    from ....client import Consumer, JetStream

MADE_LATELY_S: Final = 5.0
_MISSING: Final = frozenset({Errors.CONSUMER_NOT_FOUND.err_code, Errors.STREAM_NOT_FOUND.err_code})
PAUSE_S: Final = 2.0  # of a consumer that is being deleted
_TIMES: Final = ("ack_wait", "priority_timeout")
_OPTIONS: Final = {
    "ack_wait": "--wait",
    "priority_timeout": "--pinned-ttl",
    "max_ack_pending": "--max-pending",
    "max_deliver": "--max-deliver",
}


def is_in_use(info: ConsumerInfo) -> bool:
    """Whether somebody may be handling messages: who is pinned, or was, until an admin let go of the pin or
    the server was restarted."""
    is_pinned = any(group.pinned_client_id for group in info.priority_groups)
    return is_pinned or info.num_ack_pending > 0


def is_pulled_from(info: ConsumerInfo) -> bool:
    """Whether somebody is pinned, or waits to be."""
    return bool(info.num_waiting) or any(g.pinned_client_id for g in info.priority_groups)


def is_of_another(info: ConsumerInfo) -> bool:
    """Whether a consumer that was just made stands where a deleted one of its name stood.

    nats-server (2.15) works on a deletion and a creation side by side, also for one client: the new consumer
    may find the file with the old one's place, and then never delivers what lies before that.
    """
    delivered = info.delivered
    if not delivered.consumer_seq or delivered.last_active or not (info.created and info.ts):
        return False
    return parse_time(info.ts) - parse_time(info.created) < MADE_LATELY_S * 1e9


def differences(there: ConsumerConfig, ours: ConsumerConfig) -> list[str]:
    """The settings that are given in ``ours``, and others in ``there``."""
    plain = ConsumerConfig()
    names = msgspec.structs.asdict(ours)
    return [
        name
        for name in names
        if name not in ("name", "durable_name", "metadata")
        and getattr(ours, name) not in (getattr(plain, name), getattr(there, name))
    ]


async def change_times(
    js: JetStream, stream: str, info: ConsumerInfo, ours: ConsumerConfig
) -> bool:
    """Give a member's consumer our times, in place, if nothing else differs. False: it is not safe.

    It is where nobody uses the consumer, or where both become longer: an owner that knows the shorter ones
    lets go in time.
    """
    there = info.config
    if not is_groups_own(info) or not set(differences(there, ours)) <= set(_TIMES):
        return False
    grow = all(getattr(ours, name) >= getattr(there, name) for name in _TIMES)
    if not grow and not _is_unused(info):
        return False
    times = {name: getattr(ours, name) for name in _TIMES}
    changed = await js.update_consumer(stream, msgspec.structs.replace(there, **times))
    if grow or _is_unused(await changed.info()):
        return True
    await js.update_consumer(stream, there)  # somebody came in between, who knows the longer ones
    return False


def _is_unused(info: ConsumerInfo) -> bool:
    return not (is_in_use(info) or info.num_waiting)


def advice(stream: str, name: str, there: ConsumerConfig, ours: ConsumerConfig) -> str:
    """What differs, and the command that changes it, if there is one."""
    differing = differences(there, ours)
    if not differing:
        return "give the one that its other instances have"
    what = ", ".join(
        f"{each} is {getattr(there, each)!r} there and {getattr(ours, each)!r} here"
        for each in differing
    )
    text = f"{what}; give the one that its other instances have"
    if not set(differing) <= _OPTIONS.keys():
        return text
    options = " ".join(f"{_OPTIONS[each]} {_value(getattr(ours, each))}" for each in differing)
    return (
        f"{text}, or stop these and change it in place, which loses no position: "
        f"headrace consumer edit {stream} {name} {options}"
    )


def _value(value: float) -> str:
    return duration_text(value) if isinstance(value, float) else str(value)


async def delete_unused(consumer: Consumer, time: Callable[[], float]) -> None:
    """Delete a consumer that serves nobody, and nobody who comes meanwhile.

    It is paused before it is looked at: who joins then is given nothing by it, and learns of its end. Where
    it turns out to be used it goes on, at the latest when the pause ends by itself.

    Args:
        time: the loop's, in seconds.
    """
    info = await consumer.info()
    if not _is_unused(info) or info.paused:  # paused: by another one that leaves
        return
    ends = time() + PAUSE_S / 2
    await consumer.pause(datetime.fromtimestamp(parse_time(info.ts) / 1e9 + PAUSE_S, UTC))
    info = await consumer.info()
    if not info.paused or time() >= ends:
        return  # the answers took long: somebody may have been given something by now
    if _is_unused(info):
        try:
            async with asyncio.timeout_at(ends):
                await consumer.delete()
        except TimeoutError:
            return  # it is gone, or the pause ends: either serves who comes
    else:
        await consumer.resume()


async def remove_orphans(
    js: JetStream, stream: str, wanted: Collection[str], redelivery_s: float
) -> bool:
    """Delete the consumers of a work queue that belonged to members who were dropped when no instance of
    theirs was there. Whether there was one.

    One that delivered something that is not acknowledged may have an instance at work for as long as that is
    not delivered again.

    Args:
        wanted: those that the group's record, as it is now, has.
    """
    removed = False
    async for info in js.consumers(stream):
        if info.name in wanted or not is_groups_own(info) or not _is_left(info, redelivery_s):
            continue
        if info.config.metadata.get(ROLE) == QUERY_ROLE:
            continue  # it is not there for its pin
        try:
            await js.delete_consumer(stream, info.name)
        except JetStreamApiError as error:
            if error.err_code not in _MISSING:
                raise
        removed = True
    return removed


def _is_left(info: ConsumerInfo, redelivery_s: float) -> bool:
    """Whether no instance can be there."""
    if info.num_waiting or any(group.pinned_client_id for group in info.priority_groups):
        return False
    last = info.delivered.last_active
    if not info.num_ack_pending or not last or not info.ts:
        return not info.num_ack_pending
    return parse_time(info.ts) - parse_time(last) > redelivery_s * 1e9
