"""Where a consumer is, as the broker knows it; and the durable consumers of deleted ones, removed."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...errors import (
    ConsumerNotFoundError,
    HeadraceError,
    JetStreamApiError,
    StreamNotFoundError,
)
from .. import limits
from ..broker import BrokerUnavailableError, Place, Streams
from ..channel_stream import ChannelStream
from ..errors import JobsError
from ..ids import prefix_of
from ..models import NewMessage
from ..runtime.runtime import Runtime
from ..service import stream_positions
from ..service.definitions.consumers import DEFINITIONS
from ..service.stream_positions import Cursor, Follower
from ..states import State
from .messages import message_from

if TYPE_CHECKING:
    from ...client import JetStream

__all__ = [
    "Standing",
    "remove_forgotten",
    "standing_of",
    "standings_of",
    "stored_message",
    "waits_for",
]

_LOG: Final = logging.getLogger("headrace.jobs.push")
_PART: Final = "streams of deleted consumers"
_NO_MESSAGE: Final = 10037
_SEQUENCE: Final = re.compile(r"[1-9][0-9]{0,18}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """All up to ``acknowledged`` is done with; ``delivered`` is the newest sequence that was fetched.

    ``lag`` messages were not fetched yet, ``under_way`` were and are not done with. ``first`` and ``last``
    are the stream's. None: not known.
    """

    acknowledged: int | None
    delivered: int | None = None
    lag: int | None = None
    under_way: int | None = None
    first: int | None = None
    last: int | None = None


async def standing_of(streams: Streams, cursor: Cursor) -> Standing:
    """Ask the broker. Raises JobsError if it is away, or has no such stream or consumer."""
    place = await streams.place(cursor.stream)
    return await _standing(await streams.jetstream(), place, cursor)


async def standings_of(
    streams: Streams, name: str, followers: Sequence[Follower]
) -> tuple[Place, list[Standing | JobsError]]:
    """The stream, and the standing of each of its consumers, or why it is not known.

    Raises JobsError if the broker is away, or has no such stream.
    """
    try:
        async with asyncio.timeout(limits.STREAM_STANDINGS_S):
            place, js = await streams.place(name), await streams.jetstream()
            few = asyncio.Semaphore(limits.STREAM_STANDINGS_TOGETHER)

            async def ask(cursor: Cursor) -> Standing | JobsError:
                async with few:
                    try:
                        return await _standing(js, place, cursor)
                    except JobsError as error:
                        return error

            return place, await asyncio.gather(*(ask(each.cursor) for each in followers))
    except TimeoutError as error:
        within = f"within {limits.STREAM_STANDINGS_S:g} s"
        raise BrokerUnavailableError(within) from error


def waits_for(
    follower: Follower, standing: Standing, problem: str | None, *, is_pushed: bool
) -> str:
    """What a consumer waits for, in one word. ``is_pushed``: whether there is a process that pushes.

    ``enable`` or ``resume``: somebody has to. ``broker``: it is away, or has no such stream. ``pusher``: no
    process pushes. ``replay``: it begins when the calls under way have ended. ``messages``: it is done with
    all there are. ``endpoint``: every call fails. ``answers`` of calls, also of those that failed before;
    ``fetch`` of what is to come.
    """
    if follower.disabled_reason is not None:
        return "enable"
    if follower.paused:
        return "resume"
    if problem is not None:
        return "broker"
    if not is_pushed:
        return "pusher"
    if follower.cursor.replay is not None:
        return "replay"
    has_jobs = follower.jobs[State.QUEUED] + follower.jobs[State.INFLIGHT] > 0
    is_done = standing.lag == 0 and not standing.under_way
    if is_done and not has_jobs:
        return "messages"
    if follower.failing_since_us is not None:
        return "endpoint"
    if standing.under_way or has_jobs:
        return "answers"
    return "fetch"


async def _standing(js: JetStream, place: Place, cursor: Cursor) -> Standing:
    try:
        durable = await js.consumer(cursor.stream, cursor.durable)
        info = durable.cached_info or await durable.info()
    except ConsumerNotFoundError:
        # It is about to be made: with the first fetch, or anew.
        return Standing(acknowledged=cursor.acked_seq, first=place.first, last=place.last)
    except (HeadraceError, OSError) as error:
        raise BrokerUnavailableError(str(error)) from error
    return Standing(
        acknowledged=info.ack_floor.stream_seq,
        delivered=info.delivered.stream_seq,
        lag=info.num_pending,
        under_way=info.num_ack_pending,
        first=place.first,
        last=place.last,
    )


async def stored_message(
    streams: Streams, stream: ChannelStream, message_id: str
) -> tuple[NewMessage, int]:
    """The message of a channel that lives in ``stream``, by its id, and when it was stored (microseconds).

    404 says what can be looked up. Raises JobsError if the broker is away, or has no such stream.
    """
    place = await streams.place(stream.name)
    expected = prefix_of(stream.name, place.created)
    prefix, _, number = message_id.rpartition(".")
    if prefix != expected or not _SEQUENCE.match(number):
        raise _unknown(
            f"an id of the stream {stream.name} as it is now has the form {expected}.SEQUENCE"
        )
    if not place.first <= int(number) <= place.last:
        has = f"has {place.first} to {place.last}" if place.last >= place.first else "is empty"
        raise _unknown(f"the stream {stream.name} {has}")
    js = await streams.jetstream()
    try:
        found = await (await js.stream(stream.name)).get_message(int(number))
    except JetStreamApiError as error:
        if error.err_code != _NO_MESSAGE:
            raise BrokerUnavailableError(str(error)) from error
        raise _unknown(f"sequence {number} was removed from the stream {stream.name}") from None
    except (HeadraceError, OSError) as error:
        raise BrokerUnavailableError(str(error)) from error
    if not stream.takes(found.subject):
        raise _unknown(f"it is of a subject that the channel does not take: {found.subject}")
    headers = found.headers.items()
    message = message_from(prefix, found.sequence, found.subject, headers, found.payload)
    return message, found.timestamp_ns // 1000


def _unknown(why: str) -> JobsError:
    text = "the stream has no such message, and no call of one with this id has failed"
    return JobsError(404, "not_found", f"{text}: {why}", "messageId")


async def remove_forgotten(runtime: Runtime, streams: Streams) -> None:
    """Remove the durable consumers of deleted push consumers, until cancelled."""
    with runtime.bell.ear(DEFINITIONS) as ear:
        while True:
            await runtime.parts.attempt(_PART, lambda: _remove_some(runtime, streams))
            pause_s = runtime.parts.wait_s(_PART)
            await ear.wait(pause_s if pause_s > 0 else None)


async def _remove_some(runtime: Runtime, streams: Streams) -> None:
    while found := await runtime.database.read(stream_positions.forgotten):
        js = await streams.jetstream()
        for cursor in found:
            try:
                await js.delete_consumer(cursor.stream, cursor.durable)
            except (ConsumerNotFoundError, StreamNotFoundError):
                _LOG.debug("%s is gone already", cursor.durable)
        gone = [cursor.consumer_seq for cursor in found]
        await runtime.database.write(lambda tx, gone=gone: stream_positions.forget(tx, gone))  # type: ignore[misc]
