"""Where a consumer is, as the broker knows it; and the durable consumers of deleted ones, removed."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from ...errors import ConsumerNotFoundError, HeadraceError, StreamNotFoundError
from ..broker import BrokerUnavailableError, Streams
from ..runtime.runtime import Runtime
from ..service import cursors
from ..service.consumers import DEFINITIONS
from ..service.cursors import Cursor

__all__ = ["Standing", "remove_forgotten", "standing_of"]

_LOG: Final = logging.getLogger("headrace.jobs.push")
_PART: Final = "streams of deleted consumers"


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
    js = await streams.jetstream()
    try:
        info = await (await js.consumer(cursor.stream, cursor.durable)).info()
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


async def remove_forgotten(runtime: Runtime, streams: Streams) -> None:
    """Remove the durable consumers of deleted push consumers, until cancelled."""
    with runtime.bell.ear(DEFINITIONS) as ear:
        while True:
            await runtime.parts.attempt(_PART, lambda: _remove_some(runtime, streams))
            pause_s = runtime.parts.wait_s(_PART)
            await ear.wait(pause_s if pause_s > 0 else None)


async def _remove_some(runtime: Runtime, streams: Streams) -> None:
    while found := await runtime.database.read(cursors.forgotten):
        js = await streams.jetstream()
        for cursor in found:
            try:
                await js.delete_consumer(cursor.stream, cursor.durable)
            except (ConsumerNotFoundError, StreamNotFoundError):
                _LOG.debug("%s is gone already", cursor.durable)
        gone = [cursor.consumer_seq for cursor in found]
        await runtime.database.write(lambda tx, gone=gone: cursors.forget(tx, gone))  # type: ignore[misc]
