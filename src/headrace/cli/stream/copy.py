"""``headrace stream copy``: a stream on another server, up to now or from now on, without a gap.

How a stream numbers its subjects, as static groups need it, is here, too: a copy has to know.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import click
import msgspec

from ...api.errors import Errors
from ...api.streams import StreamConfig, StreamInfo, SubjectTransformConfig
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
from ...findings.streams import group_of_queue
from ...identity import MessageIdentity, Sameness, compare
from ...subjects import is_subset, matches, overlaps
from ..shared.connection_options import Where, where
from ..shared.errors import Failure
from ..shared.names import STREAM
from ..shared.output import progress, telling
from ..shared.verbs import Session, connected, online

_NUMBERED: Final = re.compile(
    r"\{\{\s*partition\(\s*(?P<count>\d+)\s*(?P<key>(?:,\s*\d+\s*)+)?\)\s*\}\}\.(?P<rest>.+)"
)


class RepartitionError(HeadraceError):
    """The stream cannot be given other partitions, or not so."""


@dataclass(frozen=True, slots=True)
class Numbering:
    """How a stream numbers its subjects: the partition, a dot, and the subject as it was published."""

    count: int
    key: tuple[int, ...]
    src: str

    def transform(self, count: int) -> SubjectTransformConfig:
        """What numbers subjects as they are published."""
        return SubjectTransformConfig(src=self.src, dest=self._dest(count, 0))

    def renumbering(self, count: int) -> SubjectTransformConfig:
        """What gives stored subjects another number: the present one is their first wildcard."""
        return SubjectTransformConfig(src=self.stored, dest=self._dest(count, 1))

    @property
    def stored(self) -> str:
        """The pattern of stored subjects."""
        return f"*.{self.src}"

    def published(self, subject: str) -> str:
        """How a message was published that is stored with this subject."""
        _, _, rest = subject.partition(".")
        return rest if matches(self.stored.encode(), subject.encode()) else subject

    def _dest(self, count: int, shift: int) -> str:
        key = ",".join(str(each + shift) for each in self.key)
        return f"{{{{partition({count},{key})}}}}.{_replayed(self.src, shift)}"


def _replayed(src: str, shift: int) -> str:
    """A pattern as the destination that leaves its subjects as they are."""
    numbers = itertools.count(shift + 1)
    return ".".join(
        f"{{{{wildcard({next(numbers)})}}}}" if each == "*" else each for each in src.split(".")
    )


def numbering_of(config: StreamConfig) -> Numbering:
    """How the stream numbers its subjects. Raises RepartitionError: it does not, or in another form."""
    transform = config.subject_transform
    form = "'{{partition(4,1)}}.' and the subject, as static groups need it"
    if transform is None or not transform.src or not transform.dest:
        raise RepartitionError(
            f"stream {config.name} puts no partition before its subjects; what can be changed is a "
            f"subject_transform to {form}"
        )
    found = _NUMBERED.fullmatch(transform.dest)
    plain = (
        None
        if found is None
        else re.sub(r"\{\{\s*(\w+)\(\s*(\d+)\s*\)\s*\}\}", r"{{\1(\2)}}", found["rest"])
    )
    if found is None or plain != _replayed(transform.src, 0):
        raise RepartitionError(
            f"stream {config.name} makes {transform.dest!r} of {transform.src!r}; what can be "
            f"changed is {form}"
        )
    if not found["key"]:
        raise RepartitionError(
            f"stream {config.name} takes the whole subject as the key ({transform.dest!r}), which is not "
            "there alone any more once it is stored; its messages can only be published again"
        )
    key = tuple(int(each) for each in found["key"].split(",") if each.strip())
    return Numbering(int(found["count"]), key, transform.src)


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
    progress: Callable[[TransferProgress], object] | None = None,
) -> Stream:
    """Make the copy's stream: a backup of the origin, restored at once."""
    with tempfile.TemporaryDirectory(prefix="headrace-copy-") as directory:
        backup = await origin.backup(directory, progress=progress)
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


_LOOK_S: Final = 1.0


@online(
    STREAM,
    click.argument("to", metavar="TO"),
    click.option("--to-server", metavar="URL", default="", help="the server the copy goes to"),
    click.option("--to-context", metavar="NAME", default="", help="a context for that server"),
    click.option("--to-creds", metavar="FILE", default="", help="credentials for that server"),
    click.option("--follow", is_flag=True, help="go on with what comes, until interrupted"),
    click.option("--replicas", type=click.IntRange(1, 5), default=None, help="copies of the copy"),
    click.option(
        "--subjects", metavar="SUBJECT", multiple=True, help="other subjects for the copy"
    ),
    click.option(
        "--after",
        metavar="SEQUENCE",
        type=click.IntRange(0),
        default=None,
        help="go on behind this sequence of FROM, if TO cannot tell",
    ),
)
async def copy(
    session: Session,
    stream: str,
    to: str,
    to_server: str,
    to_context: str,
    to_creds: str,
    follow: bool,
    replicas: int | None,
    subjects: tuple[str, ...],
    after: int | None,
) -> None:
    """Copy a stream to another server, and go on where the last run stopped; or once, on the same server.

    \b
    headrace stream copy ORDERS ORDERS --to-context cluster --replicas 3
    headrace stream copy ORDERS ORDERS --to-server nats://other:4222 --follow
    headrace stream copy ORDERS KEPT --subjects 'kept.>'

    The first run makes the stream TO as FROM is: sequences, times, consumers. What comes later is published
    there in order: it gets sequences and times of its own, and where it comes from in the header
    Headrace-Copied-Sequence. Nothing is copied twice, whatever is interrupted, as long as nobody else
    publishes to TO meanwhile.

    On the same server TO is a copy of this moment: its messages keep their subjects, and it listens on other
    ones, those of --subjects or else its own name. To go on there, make a mirror instead.
    """
    origin = await session.js.stream(stream)
    if (group := group_of_queue((await origin.info()).config)) is not None:
        raise Failure(
            f"stream {stream} is the work queue of group {group.name!r} of stream {group.stream!r}: its copy "
            "would take nothing of that stream any more. Stop who publishes and the members, and move all "
            "of it",
            "headrace stream backup --all DIR",
            "headrace stream restore --all DIR --server nats://…    it goes on where it was",
        )
    how = _How(to, replicas, subjects)
    if not (to_server or to_context or to_creds):
        await _copy_here(session, origin, how, goes_on=follow or after is not None)
        return
    place = _target(session.where, to_server, to_context, to_creds)
    async with connected(place, session.output) as other:
        if await is_here(session, origin, other):
            await _copy_here(session, origin, how, goes_on=follow or after is not None)
            return
        made = await find(other.js, to)
        created = made is None
        if made is None:
            way_back((await origin.info()).config)
            made = await _begin(session, origin, other.js, how)
            if session.output.is_text:
                session.output.show({}, f"copied stream {stream} to {to}")
        spot = await place_of(made, origin) if after is None else await _after(made, after)
        count = await _go_on(session, origin, other.js, to, spot, endless=follow)
        session.output.show(
            {"stream": to, "created": created, "copied": count},
            f"copied {count:,} later messages of {stream} to {to}",
        )


def _target(origin: Where, server: str, context: str, creds: str) -> Where:
    if not context:
        server = server or origin.servers  # with other credentials it may be another account
    given = {"server": server, "context": context, "creds": creds, "timeout": origin.timeout}
    environ = {key: value for key, value in os.environ.items() if not key.startswith("NATS_")}
    return where({key: value for key, value in given.items() if value}, environ)


async def _after(copy: Stream, sequence: int) -> CopiedTo:
    return CopiedTo(sequence, (await copy.info()).state.last_seq)


@dataclass(frozen=True, slots=True)
class _How:
    """How the copy is to be made."""

    to: str
    replicas: int | None
    subjects: tuple[str, ...]


async def _copy_here(session: Session, origin: Stream, how: _How, *, goes_on: bool) -> None:
    """Copy to another stream of the same server. What would be refused is found before anything is moved."""
    if goes_on:
        raise Failure(
            "a copy on the same server is of one moment; one that goes on is a mirror",
            f"headrace stream create {how.to} --mirror {origin.name}    makes one",
            status=2,
        )
    if how.to == origin.name:
        raise Failure("a stream cannot be copied to itself; give the copy another name", status=2)
    if await find(session.js, how.to) is not None:
        raise Failure(
            f"there is a stream {how.to}, and on the same server a copy is made once",
            f"headrace stream rm {how.to}    makes room for it",
        )
    subjects = how.subjects or (how.to,)
    for subject in subjects:
        async for name in session.js.stream_names(subject=subject):
            raise Failure(
                f"subject {subject!r} is of stream {name}; two streams of one server share none",
                "--subjects 'SUBJECT'    gives the copy one of its own",
            )
    await _begin(session, origin, session.js, replace(how, subjects=subjects))
    session.output.show(
        {"stream": how.to, "created": True, "copied": 0},
        f"copied stream {origin.name} to {how.to}, which listens on {', '.join(subjects)}",
    )


async def _begin(session: Session, origin: Stream, target: JetStream, how: _How) -> Stream:
    info = await origin.info()
    changes = changes_for(info, how.to, how.replicas, how.subjects)
    total = info.state.bytes
    with progress(session.output, origin.name, total, of_bytes=True) as advance:
        return await transfer(origin, target, changes, progress=telling(advance))


async def _go_on(
    session: Session,
    origin: Stream,
    target: JetStream,
    to: str,
    spot: CopiedTo,
    *,
    endless: bool,
) -> int:
    """Copy what came after; until there is no more, or without end."""
    last_seq = (await origin.info()).state.last_seq
    following: Following = await follow(origin, target, spot)
    count = 0
    with progress(session.output, to, last_seq - spot.position) as advance:
        while endless or following.place.position < last_seq:
            came = await following.some(_LOOK_S)
            if not came and not endless:
                break  # the rest was deleted
            count += came
            advance(came)
    return count
