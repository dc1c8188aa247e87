"""Copying a stream from one server to another, and going on with what comes.

A copy begins as a backup that is restored at once: sequences, times and consumers are the same. What
comes after is published there, in order, each message with where it was and the sequence it expects to
be given. The newest message of the copy so tells where to go on, whatever was interrupted, and nothing
is ever stored twice: the server refuses a message that does not follow the one before. Whether the stream
still has the message that was copied last is asked before: one that lost its end, or was made again, gives
its sequences to messages that the copy has not.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from ...api.errors import Errors
from ...api.streams import StreamConfig, StreamInfo
from ...client import (
    JetStream,
    JetStreamMessage,
    OrderedConsumer,
    Stream,
    StreamMessage,
    TransferProgress,
)
from ...client.jetstream.stored_message import if_found
from ...client.publish.publisher import PublishFailure
from ...errors import HeadraceError, JetStreamApiError
from ...identity import MessageIdentity, Sameness, compare
from ...subjects import is_subset, overlaps
from ..shared.verbs import Session
from .numbering import RepartitionError, numbering_of

COPIED: Final = "Headrace-Copied-Sequence"
"""The header of a message that was published by a copy: its sequence in the stream it comes from …"""
STORED: Final = "Headrace-Copied-Time"
"""… and when it was stored there, in nanoseconds since the epoch."""

_STREAM_NOT_FOUND: Final = 10059
_INSTRUCTIONS: Final = ("nats-expected-", "nats-msg-id", COPIED.lower(), STORED.lower())
_EXPECTED: Final = "Nats-Expected-Last-Sequence"
_WRITTEN: Final = re.compile(r"\{\{\s*(?:wildcard|partition)\([^)]*\)\s*\}\}", re.IGNORECASE)
_BATCH: Final = 1000


class CopyError(HeadraceError):
    """The copy cannot go on."""


@dataclass(frozen=True, slots=True)
class CopiedTo:
    """How far a copy is: the last sequence copied, and the one the copy's stream has given out.

    ``stored_ns``: when the message copied last was stored; 0 if that is not known.
    """

    position: int
    last_seq: int
    stored_ns: int = 0


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


async def place_of(copy: Stream, origin: Stream) -> CopiedTo:
    """Where to go on. Raises CopyError if the stream is no copy of the origin."""
    state = (await copy.info()).state
    if not state.messages:
        if state.last_seq:
            raise CopyError(
                f"stream {copy.name!r} is empty and was not always: nothing tells where to go on; "
                "give --after SEQUENCE"
            )
        return CopiedTo(0, 0)
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
    place = _copied(last)
    twin = await _message(origin, place.position)
    sameness = await _look(origin, place)
    if not place.stored_ns and twin is not None and not _is_like(twin, last):
        sameness = Sameness.OTHER
    if sameness is Sameness.OTHER:
        raise await _other(copy, origin, place)
    if last.sequence < state.last_seq:
        return CopiedTo(state.last_seq, state.last_seq)
    return CopiedTo(place.position, state.last_seq, place.stored_ns)


def _copied(message: StreamMessage) -> CopiedTo:
    """Which message of the origin one of the copy is."""
    position = message.headers.get(COPIED)
    if position:
        return CopiedTo(int(position), message.sequence, int(message.headers.get(STORED) or 0))
    return CopiedTo(message.sequence, message.sequence, message.timestamp_ns)


def _is_like(one: StreamMessage, other: StreamMessage) -> bool:
    return (one.subject, one.payload) == (other.subject, other.payload)


async def _look(origin: Stream, place: CopiedTo) -> Sameness:
    """Whether the origin has the message that was copied last."""
    name, last_seq = origin.name, (await origin.info()).state.last_seq
    found = await if_found(origin.get_next_message(">", max(1, place.position)))
    return compare(
        MessageIdentity(name, place.position, place.stored_ns),
        None if found is None else MessageIdentity(name, found.sequence, found.timestamp_ns),
        MessageIdentity(name, last_seq, 0),
    )


async def _other(copy: Stream, origin: Stream, place: CopiedTo) -> CopyError:
    """What is to be said where the origin has not the message that was copied last."""
    low, high = 0, place.last_seq
    common = 0
    while low < high:  # the newest that both have
        middle = (low + high + 1) // 2
        held = await if_found(copy.get_next_message(">", middle))
        at = place if held is None else _copied(held)
        if await _look(origin, at) is Sameness.OTHER:
            high = middle - 1
        else:
            low, common = middle, at.position
    ours, theirs = f"stream {copy.name!r}", repr(origin.name)
    if not common:
        return CopyError(
            f"{ours} is no copy of {theirs}, or that was made again: no message is in both. To go on with "
            f"all that {theirs} has now, give --after 0"
        )
    return CopyError(
        f"{ours} is no copy of {theirs}: their messages {place.position} differ. Either {theirs} lost its "
        "end, was put back from an older copy or made again, or somebody else has published to the copy. The "
        f"last message that both have is {common}: to go on with all that {theirs} has behind it, give "
        f"--after {common}"
    )


async def _message(stream: Stream, sequence: int) -> StreamMessage | None:
    return await if_found(stream.get_message(sequence)) if sequence else None


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
                if error.err_code != Errors.NO_MESSAGE_FOUND.err_code:
                    raise
                break
            sequence = found[-1].sequence + 1
        return found


@dataclass(slots=True)
class Following:
    """Reads what comes after a place in one stream, and publishes it to its copy in another."""

    origin: Stream
    reader: OrderedConsumer | WorkQueue
    target: JetStream
    place: CopiedTo
    published: Callable[[str], str]
    _resets: int = 0

    async def some(self, wait_s: float) -> int:
        """Copy what there is, a batch at most; how many. Raises CopyError."""
        batch = await self.reader.fetch(_BATCH, max_wait=wait_s)
        if not batch:
            return 0
        await self._check()
        failures: list[PublishFailure] = []
        last_seq = self.place.last_seq
        async with self.target.publisher(
            window=_BATCH, retries=0, on_failure=failures.append
        ) as publisher:
            for message in batch:
                headers = _headers(message, last_seq)
                await publisher.send(self.published(message.subject), message.payload, headers)
                last_seq += 1
        if failures:
            first = failures[0]
            raise CopyError(f"{first.subject}: {first.error}; run it again to go on from there")
        sequence, stored_ns = _identity(batch[-1])
        self.place = CopiedTo(sequence, last_seq, stored_ns)
        return len(batch)

    async def _check(self) -> None:
        """Whether it is still the same stream, where its consumer had to be made anew. Raises CopyError."""
        if isinstance(self.reader, WorkQueue) or self.reader.resets == self._resets:
            return
        self._resets = self.reader.resets
        if await _look(self.origin, self.place) is Sameness.OTHER:
            raise CopyError(
                f"stream {self.origin.name!r} lost its end, was put back or made again while it was copied: "
                f"it has no message {self.place.position} as it was copied; run it again to be told how to "
                "go on"
            )


async def follow(origin: Stream, target: JetStream, place: CopiedTo) -> Following:
    """Begin to read behind a place."""
    config = (await origin.info()).config
    published = way_back(config)
    if config.retention == "workqueue":
        queue = WorkQueue(origin, place.position + 1)
        return Following(origin, queue, target, place, published)
    reader = await origin.ordered_consumer(
        deliver_policy="by_start_sequence", opt_start_seq=place.position + 1
    )
    return Following(origin, reader, target, place, published)


def way_back(config: StreamConfig) -> Callable[[str], str]:
    """The subject under which a stored message is published to be stored so again, by a stream like this.

    Raises CopyError: there may be none.
    """
    transform = config.subject_transform
    if transform is None or not transform.dest:
        return str
    try:
        return numbering_of(config).published
    except RepartitionError:
        stored = _WRITTEN.sub("*", transform.dest).encode()
        accepted = any(is_subset(stored, each.encode()) for each in config.subjects)
        if b"{" in stored or not accepted or overlaps(stored, (transform.src or ">").encode()):
            raise CopyError(
                f"stream {config.name!r} makes {transform.dest!r} of {transform.src!r}: what is stored so "
                "cannot be published to a copy that does the same. Stop who publishes, and move it with "
                "`headrace stream backup` and `headrace stream restore`"
            ) from None
    return str


def _identity(message: JetStreamMessage | StreamMessage) -> tuple[int, int]:
    """Its sequence, and when it was stored."""
    if isinstance(message, StreamMessage):
        return message.sequence, message.timestamp_ns
    about = message.metadata
    return about.stream_seq, about.timestamp_ns


def _headers(message: JetStreamMessage | StreamMessage, last_seq: int) -> dict[str, list[str]]:
    """Its own headers but for what they ask of a stream, and what the copy asks of its own."""
    kept = {
        name: message.headers.get_all(name)
        for name in message.headers
        if not name.lower().startswith(_INSTRUCTIONS)
    }
    sequence, stored_ns = _identity(message)
    ours = {COPIED: [str(sequence)], STORED: [str(stored_ns)], _EXPECTED: [str(last_seq)]}
    return {**kept, **ours}


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
