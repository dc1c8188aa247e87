"""Copying a stream from one server to another, and going on with what comes.

A copy begins as a backup that is restored at once: sequences, times and consumers are the same. What
comes after is published there, in order, each message with where it was and the sequence it expects to
be given. The newest message of the copy so tells where to go on, whatever was interrupted, and nothing
is ever stored twice: the server refuses a message that does not follow the one before.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from ...api.streams import StreamConfig, StreamInfo
from ...client import (
    JetStream,
    JetStreamMessage,
    OrderedConsumer,
    Stream,
    StreamMessage,
    TransferProgress,
)
from ...client.publish.publisher import PublishFailure
from ...errors import HeadraceError, JetStreamApiError
from ..shared.verbs import Session

COPIED: Final = "Headrace-Copied-Sequence"
"""The header of a message that was published by a copy: its sequence in the stream it comes from."""

_STREAM_NOT_FOUND: Final = 10059
_NO_MESSAGE: Final = 10037
_INSTRUCTIONS: Final = ("nats-expected-", "nats-msg-id", COPIED.lower())
_EXPECTED: Final = "Nats-Expected-Last-Sequence"
_BATCH: Final = 1000


class CopyError(HeadraceError):
    """The copy cannot go on."""


@dataclass(frozen=True, slots=True)
class Place:
    """How far a copy is: the last sequence copied, and the one the copy's stream has given out."""

    position: int
    last_seq: int


async def find(js: JetStream, name: str) -> Stream | None:
    """The stream, or None."""
    try:
        return await js.stream(name)
    except JetStreamApiError as error:
        if error.err_code != _STREAM_NOT_FOUND:
            raise
        return None


async def is_here(session: Session, origin: Stream, other: Session) -> bool:
    """Whether the other session is of the same account, where the origin is the same stream."""
    ours, theirs = session.connection.server_info, other.connection.server_info
    if ours.server_id != theirs.server_id and not (ours.cluster and ours.cluster == theirs.cluster):
        return False
    same = await find(other.js, origin.name)
    return same is not None and (await same.info()).created == (await origin.info()).created


async def transfer(
    origin: Stream,
    target: JetStream,
    changes: dict[str, object],
    *,
    consumers: bool,
    progress: Callable[[TransferProgress], object] | None = None,
) -> Stream:
    """Make the copy's stream: a backup of the origin, restored at once."""
    with tempfile.TemporaryDirectory(prefix="headrace-copy-") as directory:
        backup = await origin.backup(directory, consumers=consumers, progress=progress)
        config: StreamConfig = msgspec.structs.replace(backup.config, **changes)
        return await target.restore_stream(directory, config=config)


async def place_of(copy: Stream, origin: Stream) -> Place:
    """Where to go on. Raises CopyError if the stream is no copy of the origin."""
    state = (await copy.info()).state
    if not state.messages:
        if state.last_seq:
            raise CopyError(
                f"stream {copy.name!r} is empty and was not always: nothing tells where to go on; "
                "give --after SEQUENCE"
            )
        return Place(0, 0)
    last = await _message(copy, state.last_seq)
    if last is None:
        # The last ones were deleted. Before a copy published anything both count alike.
        held = await _last_before(copy, state.last_seq)
        if held is None or held.headers.get(COPIED):
            raise CopyError(
                f"the newest messages of stream {copy.name!r} were removed: nothing tells where to "
                "go on; give --after SEQUENCE"
            )
        last = held
    position = last.headers.get(COPIED)
    if position:
        return Place(int(position), state.last_seq)
    twin = await _message(origin, last.sequence)
    if twin is not None and (twin.subject, twin.payload) != (last.subject, last.payload):
        raise CopyError(
            f"stream {copy.name!r} is no copy of {origin.name!r}: their messages {last.sequence} differ"
        )
    return Place(state.last_seq, state.last_seq)


async def _message(stream: Stream, sequence: int) -> StreamMessage | None:
    try:
        return await stream.get_message(sequence)
    except JetStreamApiError as error:
        if error.err_code != _NO_MESSAGE:
            raise
        return None


async def _last_before(stream: Stream, sequence: int) -> StreamMessage | None:
    """The newest message there is, looked for from the end."""
    state = (await stream.info(deleted=True)).state
    deleted = set(state.deleted)
    while sequence in deleted:
        sequence -= 1
    return await _message(stream, sequence) if sequence >= state.first_seq else None


class WorkQueue:
    """Reads a work queue from a place on and leaves it as it is: a consumer would take from its workers."""

    def __init__(self, stream: Stream, sequence: int) -> None:
        self._stream = stream
        self._next = sequence

    async def fetch(self, max_messages: int, *, max_wait: float) -> list[StreamMessage]:
        """The next ones; where there are none, those that are there ``max_wait`` seconds later."""
        found = await self._some(max_messages)
        if not found:
            await asyncio.sleep(max_wait)  # nothing tells when one comes
            found = await self._some(max_messages)
        return found

    async def _some(self, most: int) -> list[StreamMessage]:
        info = self._stream.cached_info
        if info is not None and info.config.allow_direct:
            found = list((await self._stream.get_batch(most, sequence=self._next)).messages)
        else:
            found = await self._one_by_one(most)
        if found:
            self._next = found[-1].sequence + 1
        return found

    async def _one_by_one(self, most: int) -> list[StreamMessage]:
        found: list[StreamMessage] = []
        sequence = self._next
        while len(found) < most:
            try:
                found.append(await self._stream.get_next_message(">", sequence))
            except JetStreamApiError as error:
                if error.err_code != _NO_MESSAGE:
                    raise
                break
            sequence = found[-1].sequence + 1
        return found


@dataclass(slots=True)
class Following:
    """Reads what comes after a place in one stream, and publishes it to its copy in another."""

    reader: OrderedConsumer | WorkQueue
    target: JetStream
    place: Place

    async def some(self, wait_s: float) -> int:
        """Copy what there is, a batch at most; how many. Raises CopyError."""
        batch = await self.reader.fetch(_BATCH, max_wait=wait_s)
        if not batch:
            return 0
        failures: list[PublishFailure] = []
        last_seq = self.place.last_seq
        async with self.target.publisher(
            window=_BATCH, retries=0, on_failure=failures.append
        ) as publisher:
            for message in batch:
                headers = _headers(message, last_seq)
                await publisher.send(message.subject, message.payload, headers)
                last_seq += 1
        if failures:
            first = failures[0]
            raise CopyError(f"{first.subject}: {first.error}; run it again to go on from there")
        self.place = Place(_sequence(batch[-1]), last_seq)
        return len(batch)


async def follow(origin: Stream, target: JetStream, place: Place) -> Following:
    """Begin to read behind a place."""
    if (await origin.info()).config.retention == "workqueue":
        return Following(WorkQueue(origin, place.position + 1), target, place)
    reader = await origin.ordered_consumer(
        deliver_policy="by_start_sequence", opt_start_seq=place.position + 1
    )
    return Following(reader, target, place)


def _sequence(message: JetStreamMessage | StreamMessage) -> int:
    if isinstance(message, StreamMessage):
        return message.sequence
    return message.metadata.stream_seq


def _headers(message: JetStreamMessage | StreamMessage, last_seq: int) -> dict[str, list[str]]:
    """Its own headers but for what they ask of a stream, and what the copy asks of its own."""
    kept = {
        name: message.headers.get_all(name)
        for name in message.headers
        if not name.lower().startswith(_INSTRUCTIONS)
    }
    return {**kept, COPIED: [str(_sequence(message))], _EXPECTED: [str(last_seq)]}


def changes_for(
    info: StreamInfo, name: str, replicas: int | None, subjects: tuple[str, ...]
) -> dict[str, object]:
    """How the copy's configuration differs: it has messages of its own, and no sources."""
    changes: dict[str, object] = {"name": name, "sources": (), "mirror": None}
    if info.config.mirror is not None or subjects:
        changes["subjects"] = subjects
    if replicas:
        changes["num_replicas"] = replicas
    return changes
