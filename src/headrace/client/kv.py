"""Key-value buckets: a stream per bucket, a subject per key; shared with every other NATS client."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Final, Literal, TypedDict, Unpack

import msgspec

from ..api import names
from ..api.errors import Errors
from ..api.streams import (
    Placement,
    Republish,
    StorageKind,
    StreamConfig,
    StreamInfo,
    StreamSource,
    SubjectTransformConfig,
)
from ..errors import ConfigurationError, HeadraceError, JetStreamApiError
from ..field_docs import described
from ..wire.headers import Headers, parse_headers
from .jetstream.calls import Api
from .jetstream.configuration import (
    BUCKET_FIELDS,
    bucket_name,
    bucket_stream,
    changed_bucket,
    duplicate_window,
    known_bucket,
    seconds,
)
from .jetstream.message import JetStreamMessage
from .jetstream.stored_message import StreamMessage, if_found
from .jetstream.stream import Stream
from .jetstream.streams import Streams
from .jetstream.watch import Watch
from .message import HeadersLike, Payload
from .publish.awaited import change_id, publish_awaited
from .publish.headers import PublishOptions

HISTORY_MAX: Final = 64
STREAM_PREFIX: Final = "KV_"

FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    **BUCKET_FIELDS,
    "history": ("max_msgs_per_subject",),
    "marker_ttl": ("subject_delete_marker_ttl",),
    "max_value_size": ("max_msg_size",),
    "republish": ("republish",),
    "mirror": ("mirror", "mirror_direct", "subjects"),
    "sources": ("sources",),
    "direct": ("allow_direct",),
    "message_ttl": ("allow_msg_ttl",),
}
"""What each option sets of the stream behind a bucket."""


@described
class KeyValueOptions(TypedDict, total=False):
    """The settings of a key-value bucket; all may be left out."""

    description: str
    """For people; "" by default."""

    history: int
    """Revisions kept of each key, 1 (the default) to 64."""

    ttl: float | timedelta
    """Seconds after which every value is removed; 0, the default: never."""

    marker_ttl: float | timedelta
    """Allow a ttl for single keys, and keep the mark of what the server removed for this many seconds,
    so that watchers learn of it; at least 1. 0, the default: neither."""

    max_value_size: int
    """The most bytes of one value; -1, the default: no limit."""

    max_bytes: int
    """Bytes of the whole bucket; -1, the default: no limit. A put beyond it fails."""

    storage: StorageKind
    """``"file"``, the default, or ``"memory"``."""

    num_replicas: int
    """How many servers of a cluster keep it; 1 by default."""

    placement: Placement
    """Where a cluster should put it; anywhere by default."""

    republish: Republish
    """Publish every change again under another subject; by default none."""

    mirror: StreamSource
    """Be a read-only copy of another bucket, named by ``name``; puts go to that one. By default it is
    none."""

    sources: Sequence[StreamSource]
    """Take in what is put into other buckets, named by ``name``, under the same keys; none by default."""

    compression: bool
    """Whether the server compresses it on disk; False by default."""

    direct: bool
    """Whether every server that keeps it may answer ``get``, not only its leader: faster, and in a cluster
    perhaps a little old. False, the default, as nats-py's; True of a mirror. nats.go's buckets have it."""

    message_ttl: bool
    """Whether single keys may have a ttl; True, the default, as nats-py's. It cannot be taken back."""

    metadata: Mapping[str, str]
    """Names and values for people and programs; empty by default."""


@dataclass(frozen=True, slots=True)
class KeyValueStatus:
    """A bucket: its settings and how much is in it.

    Attributes:
        values: how many revisions of all keys, marks of deletions included.
        size: bytes, as the server accounts them.
        history, ttl, marker_ttl: as in ``KeyValueOptions``; seconds.
        stream: everything the server says of the stream behind it.
    """

    bucket: str
    description: str
    values: int
    size: int
    history: int
    ttl: float
    marker_ttl: float
    storage: str
    num_replicas: int
    compressed: bool
    metadata: Mapping[str, str]
    stream: StreamInfo

    @classmethod
    def of(cls, stream: StreamInfo) -> KeyValueStatus:
        """What the stream of a bucket says of it."""
        config = stream.config
        return cls(
            bucket=config.name.removeprefix(STREAM_PREFIX),
            description=config.description,
            values=stream.state.messages,
            size=stream.state.bytes,
            history=config.max_msgs_per_subject,
            ttl=config.max_age,
            marker_ttl=config.subject_delete_marker_ttl,
            storage=config.storage,
            num_replicas=config.num_replicas,
            compressed=config.compression != "none",
            metadata=config.metadata,
            stream=stream,
        )


def bucket_config(bucket: str, options: KeyValueOptions) -> StreamConfig:
    """The stream that stands behind a bucket, as every NATS client makes it.

    Raises ConfigurationError for a name or an option that is not accepted.
    """
    history = options.get("history", 1)
    if not 1 <= history <= HISTORY_MAX:
        raise ConfigurationError(f"history is {history}; accepted: 1 to {HISTORY_MAX}")
    mirror, sources = options.get("mirror"), options.get("sources", ())
    if mirror is not None and sources:
        raise ConfigurationError("a bucket is a mirror, or it has sources, but not both")
    ttl, marker_ttl = seconds(options.get("ttl", 0.0)), seconds(options.get("marker_ttl", 0.0))
    copies = mirror is not None or bool(sources)
    if marker_ttl > 0 and not options.get("message_ttl", True):
        raise ConfigurationError("marker_ttl needs message_ttl, which is given as False")
    return bucket_stream(
        "a bucket",
        KeyValueOptions.__annotations__,
        options,
        name=stream_name_of(bucket),
        subjects=() if mirror is not None else (subjects_of(bucket),),
        max_msgs_per_subject=history,
        max_msg_size=options.get("max_value_size", -1),
        republish=options.get("republish"),
        mirror=None if mirror is None else _named_as_stream(mirror),
        mirror_direct=mirror is not None,
        sources=tuple(_source(bucket, source) for source in sources),
        deny_delete=True,
        duplicate_window=0.0 if copies else duplicate_window(ttl),
        allow_direct=options.get("direct", mirror is not None),
        allow_msg_ttl=options.get("message_ttl", mirror is None) or marker_ttl > 0,
        subject_delete_marker_ttl=marker_ttl,
    )


def stream_name_of(bucket: str) -> str:
    """The name of the stream behind a bucket. Raises ConfigurationError for a bad bucket name."""
    return STREAM_PREFIX + bucket_name(bucket)


def subjects_of(bucket: str) -> str:
    """Every key of a bucket."""
    return f"$KV.{bucket}.>"


def _named_as_stream(source: StreamSource) -> StreamSource:
    """Sources are named by bucket or by stream."""
    if source.name.startswith(STREAM_PREFIX):
        return source
    return msgspec.structs.replace(source, name=stream_name_of(source.name))


def _source(bucket: str, source: StreamSource) -> StreamSource:
    """What is put into the other bucket appears under the same key in this one."""
    named = _named_as_stream(source)
    other = named.name.removeprefix(STREAM_PREFIX)
    if other == bucket or named.subject_transforms:
        return named
    moved = SubjectTransformConfig(src=subjects_of(other), dest=subjects_of(bucket))
    return msgspec.structs.replace(named, subject_transforms=(moved,))


_EXISTS: Final = Errors.STREAM_NAME_EXISTS.err_code


async def create_bucket(streams: Streams, bucket: str, options: KeyValueOptions) -> Stream:
    """Create the stream of a bucket, or find the one there is, if it has what ``options`` say."""
    wanted = bucket_config(bucket, options)
    try:
        return await streams.put("CREATE", wanted)
    except JetStreamApiError as error:
        if error.err_code != _EXISTS:
            raise
        kept = await _kept(streams, wanted, options)
        if kept == wanted:
            raise
    return await streams.put("CREATE", kept)  # the server says whether it is the same now


async def update_bucket(streams: Streams, bucket: str, options: KeyValueOptions) -> Stream:
    """Change what ``options`` name of the stream of a bucket; the rest stays."""
    wanted = bucket_config(bucket, options)
    with known_bucket(bucket):
        there = await streams.info(wanted.name)
        changed = changed_bucket(there.config, wanted, options, FIELDS)
        if options.get("marker_ttl") and "message_ttl" not in options:
            changed = msgspec.structs.replace(changed, allow_msg_ttl=True)
        return await streams.change(there, changed)


async def create_or_update_bucket(
    streams: Streams, bucket: str, options: KeyValueOptions
) -> Stream:
    """Make sure that there is a stream of a bucket that has what ``options`` name."""
    try:
        return await streams.put("CREATE", bucket_config(bucket, options))
    except JetStreamApiError as error:
        if error.err_code != _EXISTS:
            raise
    return streams.told(await update_bucket(streams, bucket, options))


async def _kept(streams: Streams, wanted: StreamConfig, options: KeyValueOptions) -> StreamConfig:
    """``wanted`` with what the stream there has, of the settings in which clients differ."""
    present = (await streams.info(wanted.name)).config
    changes: dict[str, bool] = {}
    if "direct" not in options:
        changes["allow_direct"] = present.allow_direct
    if "message_ttl" not in options and not wanted.subject_delete_marker_ttl:
        changes["allow_msg_ttl"] = present.allow_msg_ttl
    return msgspec.structs.replace(wanted, **changes)


MARKS_KEPT_S: Final = 1800.0
CREATE_ATTEMPTS: Final = 10
_KEY: Final = re.compile(r"(?!\.)[-/_=.a-zA-Z0-9]+(?<!\.)")
_PATTERN: Final = re.compile(r"(?!\.)[-/_=.a-zA-Z0-9*>]+(?<!\.)")
_OPERATION: Final = "KV-Operation"
_MARKER_REASON: Final = "Nats-Marker-Reason"  # the server removed it: by age, purge or removal

_TTL_DISABLED: Final = 10166
_CHANGED: Final = frozenset(  # somebody else has changed the key, or is about to
    {
        Errors.STREAM_WRONG_LAST_SEQUENCE.err_code,
        Errors.STREAM_WRONG_LAST_SEQUENCE_CONSTANT.err_code,
    }
)

Operation = Literal["put", "delete", "purge"]


class KeyNotFoundError(HeadraceError, KeyError):
    """The bucket has no value under this key.

    Attributes:
        key: which.
        entry: the deletion found instead, or None if there never was anything.
    """

    def __init__(self, bucket: str, key: str, entry: Entry | None = None) -> None:
        super().__init__(f"bucket {bucket!r} has no key {key!r}")
        self.key = key
        self.entry = entry

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show its repr


class KeyExistsError(HeadraceError):
    """Somebody else changed the key meanwhile: it exists, or has another revision."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One revision of a key. ``created_ns``: when, in nanoseconds since the Unix epoch."""

    bucket: str
    key: str
    value: bytes
    revision: int
    operation: Operation
    created_ns: int
    pending: int = 0
    """While watching: how many entries were still to come."""


class KeyValue:
    """One bucket. Made by ``js.key_value(name)`` and ``js.create_key_value(name, …)``.

    Keys are ``A-Z a-z 0-9 - _ = / .`` and do not begin or end with a dot.

    Attributes:
        bucket: its name.
    """

    def __init__(self, api: Api, stream: Stream, bucket: str) -> None:
        self._api = api
        self._stream = stream
        self._prefix, self._put_prefix = _prefixes(bucket, stream.cached_info)
        self.bucket = bucket

    def __repr__(self) -> str:
        return f"<KeyValue {self.bucket!r}>"

    async def info(self) -> StreamInfo:
        """What the server says of the stream behind the bucket. Raises BucketNotFoundError if it is gone."""
        with known_bucket(self.bucket):
            return await self._stream.info()

    async def status(self) -> KeyValueStatus:
        """The bucket's settings, and how much is in it. Raises BucketNotFoundError if it is gone."""
        return KeyValueStatus.of(await self.info())

    # Reading

    async def get(self, key: str, *, revision: int = 0) -> Entry:
        """The value of ``key`` now, or at a revision. Raises KeyNotFoundError, BucketNotFoundError."""
        entry = await self._last(key, revision)
        if entry is None or entry.operation != "put":
            raise KeyNotFoundError(self.bucket, key, entry)
        return entry

    async def _last(self, key: str, revision: int = 0) -> Entry | None:
        """The newest entry of a key, deletions included."""
        subject = self._subject(key)
        stream = self._stream
        asking = stream.get_message(revision) if revision else stream.get_last_message(subject)
        with known_bucket(self.bucket):
            message = await if_found(asking)
        return self._entry(message) if message is not None and message.subject == subject else None

    async def keys(self, *patterns: str) -> list[str]:
        """The keys that have a value, or those that match one of ``patterns``."""
        present: dict[str, None] = {}
        async with await self.watch(*patterns, headers_only=True) as watch:
            async for entry in watch.initial():  # several of a key, if that was written meanwhile
                if entry.operation == "put":
                    present[entry.key] = None
                else:
                    present.pop(entry.key, None)
        return list(present)

    async def history(self, key: str) -> list[Entry]:
        """Every revision of ``key`` the bucket keeps, deletions included, oldest first."""
        async with await self.watch(key, history=True) as watch:
            return [entry async for entry in watch.initial()]

    async def watch(
        self,
        *patterns: str,
        history: bool = False,
        updates_only: bool = False,
        from_revision: int = 0,
        ignore_deletes: bool = False,
        headers_only: bool = False,
        on_error: Callable[[Exception], object] | None = None,
    ) -> Watch[Entry]:
        """Entries as they change, beginning with the present one of each key (see ``Watch.initial``).

        Args:
            patterns: which keys (``*`` and ``>`` are wildcards); none means all.
            history: begin with every revision kept instead.
            updates_only: begin with what changes from now on.
            from_revision: begin with every revision kept from this one on, to resume a watch that saw
                the one before. Of these three only one may be given.
            ignore_deletes: leave deletions out.
            headers_only: without values.
            on_error: as for ``Consumer.consume``.
        """
        if history + updates_only + bool(from_revision) > 1:
            raise ConfigurationError(
                "a watch begins with the history, with a revision, or with what changes: give one"
            )
        filters = tuple(self._prefix + _checked(_PATTERN, "key pattern", p) for p in patterns)
        with known_bucket(self.bucket):
            ordered = await self._stream.ordered_consumer(
                filter_subjects=filters or (self._prefix + ">",),
                deliver_policy="by_start_sequence"
                if from_revision
                else "all"
                if history
                else "new"
                if updates_only
                else "last_per_subject",
                opt_start_seq=from_revision,
                headers_only=headers_only,
            )
        return await Watch._begin(
            self._stream,
            ordered,
            partial(self._watched, headers_only),
            lambda entry: not (ignore_deletes and entry.operation != "put"),
            updates_only=updates_only,
            on_error=on_error,
        )

    # Writing

    async def put(self, key: str, value: Payload, *, ttl: float | timedelta = 0) -> int:
        """Set ``key`` whatever it was, and return its new revision. ``ttl``: seconds it lasts."""
        return await self._change(key, value, ttl=ttl)

    async def create(self, key: str, value: Payload, *, ttl: float | timedelta = 0) -> int:
        """Set ``key`` if it has no value. Raises KeyExistsError if it has.

        The mark of a deletion is replaced. It may be purged meanwhile, or another take its place: that is
        tried again, and raises KeyExistsError after 10 times.
        """
        revision = 0
        for attempts_left in reversed(range(CREATE_ATTEMPTS)):
            try:
                return await self._put_at(key, value, revision, ttl)
            except KeyExistsError:
                last = await self._last(key)
                if not attempts_left or (last is not None and last.operation == "put"):
                    raise
            revision = last.revision if last is not None else 0
        raise AssertionError("the last attempt returns or raises")

    async def update(
        self, key: str, value: Payload, revision: int, *, ttl: float | timedelta = 0
    ) -> int:
        """Set ``key`` if ``revision`` is its newest. Raises KeyExistsError if it is not."""
        return await self._put_at(key, value, revision, ttl)

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        """Remove the value; earlier revisions stay in the history. Raises KeyExistsError if
        ``revision`` was given and is not the newest."""
        await self._mark(key, {_OPERATION: "DEL"}, revision, 0)

    async def purge(
        self, key: str, *, revision: int | None = None, ttl: float | timedelta = 0
    ) -> None:
        """Remove the value and every revision; with ``ttl`` the mark of it goes too."""
        await self._mark(key, {_OPERATION: "PURGE", "Nats-Rollup": "sub"}, revision, ttl)

    async def purge_deletes(self, *, older_than: float = MARKS_KEPT_S) -> int:
        """Remove the history of every key that was deleted, and return how many keys that were.

        The mark of the deletion itself goes, too, once it is older than ``older_than`` seconds; younger
        ones stay for those who watch. 0 removes all.
        """
        limit_ns = time.time_ns() - round(older_than * 1e9)
        async with await self.watch(headers_only=True) as watch:
            newest = {entry.key: entry async for entry in watch.initial()}
        marks = [entry for entry in newest.values() if entry.operation != "put"]
        for mark in marks:
            with_mark = older_than <= 0 or mark.created_ns <= limit_ns
            # What was put since then has a higher revision, and stays.
            await self._stream.purge(
                subject=self._prefix + mark.key, below=mark.revision + with_mark
            )
        return len(marks)

    async def _mark(
        self, key: str, headers: dict[str, str], revision: int | None, ttl: float | timedelta
    ) -> None:
        await self._change(key, headers=headers, expected_last_subject_sequence=revision, ttl=ttl)

    async def _put_at(self, key: str, value: Payload, revision: int, ttl: float | timedelta) -> int:
        return await self._change(key, value, expected_last_subject_sequence=revision, ttl=ttl)

    async def _change(
        self,
        key: str,
        value: Payload = b"",
        headers: HeadersLike = None,
        **options: Unpack[PublishOptions],
    ) -> int:
        """Publish a change of a key, and return its revision."""
        msg_id = options["msg_id"] = change_id(self._api)
        try:
            ack = await publish_awaited(self._api, self._put_subject(key), value, headers, options)
        except JetStreamApiError as error:
            if (
                error.err_code in _CHANGED
                and msg_id
                and (revision := await self._revision_of(key, msg_id))
            ):
                return revision
            raise self._conflict(key, error) from error
        return ack.seq

    async def _revision_of(self, key: str, msg_id: str) -> int:
        """The newest revision of a key, if it is this change; else 0. The former leader may still answer,
        and refuse what the present one has stored."""
        last = await if_found(self._stream.get_last_message(self._subject(key)))
        is_ours = last is not None and last.headers.get(names.MSG_ID) == msg_id
        return last.sequence if last is not None and is_ours else 0

    def _conflict(self, key: str, error: JetStreamApiError) -> Exception:
        if error.err_code == _TTL_DISABLED:
            error.add_note(
                f"bucket {self.bucket!r} was made without message_ttl, which a ttl needs"
            )
        if error.err_code not in _CHANGED:
            return error
        return KeyExistsError(
            f"key {key!r} of bucket {self.bucket!r} was changed: {error.description}"
        )

    # Entries

    def _subject(self, key: str) -> str:
        return self._prefix + _checked(_KEY, "key", key)

    def _put_subject(self, key: str) -> str:
        return self._put_prefix + _checked(_KEY, "key", key)

    def _entry(self, message: StreamMessage) -> Entry:
        return Entry(
            self.bucket,
            message.subject.removeprefix(self._prefix),
            message.payload,
            message.sequence,
            _operation(message.headers),
            message.timestamp_ns,
        )

    def _watched(self, headers_only: bool, message: JetStreamMessage | StreamMessage) -> Entry:
        if isinstance(message, StreamMessage):
            entry = self._entry(message)
            return replace(entry, value=b"") if headers_only else entry
        metadata = message.metadata
        return Entry(
            self.bucket,
            message.subject.removeprefix(self._prefix),
            message.payload,
            metadata.stream_seq,
            _operation_in(message.raw_headers),
            metadata.timestamp_ns,
            metadata.pending,
        )


def _prefixes(bucket: str, info: StreamInfo | None) -> tuple[str, str]:
    """Where keys are read and where they are put: of a mirror that is the bucket it copies."""
    own = f"$KV.{bucket}."
    mirror = info.config.mirror if info is not None else None
    if mirror is None:
        return own, own
    origin = f"$KV.{mirror.name.removeprefix(STREAM_PREFIX)}."
    if mirror.external is not None and mirror.external.api:
        return origin, f"{mirror.external.api}.{origin}"
    return origin, origin


def _operation_in(block: bytes) -> Operation:
    """What a raw header block says; most are read without parsing them."""
    if b"\nKV-Operation:" in block or b"\nNats-Marker-Reason:" in block:
        return _operation(parse_headers(block))
    return "put"


def _operation(headers: Headers) -> Operation:
    value = headers.get(_OPERATION)
    if value == "DEL":
        return "delete"
    if value == "PURGE":
        return "purge"
    reason = headers.get(_MARKER_REASON)
    if reason is not None:
        return "purge" if reason in ("MaxAge", "Purge") else "delete"
    return "put"


def _checked(form: re.Pattern[str], what: str, text: str) -> str:
    if form.fullmatch(text) is None or ".." in text:
        raise ConfigurationError(
            f"{what} {text!r}: accepted are letters, digits, '-', '_', '/', '=' and dots inside"
            + (", '*' and '>'" if form is _PATTERN else "")
        )
    return text
