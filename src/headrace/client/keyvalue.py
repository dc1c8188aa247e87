"""Key-value buckets: a stream per bucket, a subject per key; shared with every other NATS client."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self

from ..api.errors import Errors
from ..api.streams import StorageKind, StreamConfig, StreamInfo
from ..errors import ConfigurationError, HeadraceError, JetStreamApiError
from ..wire.headers import Headers, parse_headers
from .jsmessage import JetStreamMessage
from .ordered import OrderedConsumer, OrderedConsumption
from .stream import Stream, StreamMessage

if TYPE_CHECKING:
    from .jetstream import JetStream

__all__ = ["Entry", "KeyExistsError", "KeyNotFoundError", "KeyValue", "Operation", "Watch"]

HISTORY_MAX: Final = 64
_BUCKET: Final = re.compile(r"[a-zA-Z0-9_-]+")
_KEY: Final = re.compile(r"(?!\.)[-/_=.a-zA-Z0-9]+(?<!\.)")
_PATTERN: Final = re.compile(r"(?!\.)[-/_=.a-zA-Z0-9*>]+(?<!\.)")
_OPERATION: Final = "KV-Operation"
_MARKER_REASON: Final = "Nats-Marker-Reason"  # the server removed it: by age, purge or removal

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
    """

    def __init__(self, js: JetStream, stream: Stream, bucket: str) -> None:
        self._js = js
        self._stream = stream
        self._prefix = f"$KV.{bucket}."
        self.bucket = bucket

    def __repr__(self) -> str:
        return f"<KeyValue {self.bucket!r}>"

    async def info(self) -> StreamInfo:
        """What the server says of the stream behind the bucket."""
        return await self._stream.info()

    # Reading

    async def get(self, key: str, *, revision: int = 0) -> Entry:
        """The value of ``key`` now, or at a revision. Raises KeyNotFoundError."""
        entry = await self._last(key, revision)
        if entry is None or entry.operation != "put":
            raise KeyNotFoundError(self.bucket, key, entry)
        return entry

    async def _last(self, key: str, revision: int = 0) -> Entry | None:
        """The newest entry of a key, deletions included."""
        subject = self._subject(key)
        try:
            if revision:
                message = await self._stream.get_message(revision)
            else:
                message = await self._stream.get_last_message(subject)
        except JetStreamApiError as error:
            if error.err_code != Errors.NO_MESSAGE_FOUND.err_code:
                raise
            return None
        return self._entry(message) if message.subject == subject else None

    async def keys(self, *patterns: str) -> list[str]:
        """The keys that have a value, or those that match one of ``patterns``."""
        async with await self.watch(*patterns, ignore_deletes=True, headers_only=True) as watch:
            return [entry.key async for entry in watch.initial()]

    async def history(self, key: str) -> list[Entry]:
        """Every revision of ``key`` the bucket keeps, deletions included, oldest first."""
        async with await self.watch(key, history=True) as watch:
            return [entry async for entry in watch.initial()]

    async def watch(
        self,
        *patterns: str,
        history: bool = False,
        updates_only: bool = False,
        ignore_deletes: bool = False,
        headers_only: bool = False,
        on_error: Callable[[Exception], object] | None = None,
    ) -> Watch:
        """Entries as they change, beginning with the present one of each key.

        Args:
            patterns: which keys (``*`` and ``>`` are wildcards); none means all.
            history: begin with every revision kept instead.
            updates_only: begin with what changes from now on.
            ignore_deletes: leave deletions out.
            headers_only: without values.
            on_error: as for ``Consumer.consume``.
        """
        filters = tuple(self._prefix + _checked(_PATTERN, "key pattern", p) for p in patterns)
        ordered = await self._stream.ordered_consumer(
            filter_subjects=filters or (self._prefix + ">",),
            deliver_policy="all" if history else "new" if updates_only else "last_per_subject",
            headers_only=headers_only,
        )
        info = await ordered.info()
        pending = 0 if updates_only else info.num_pending + info.delivered.consumer_seq
        return Watch(self, ordered, pending, ignore_deletes, on_error)

    # Writing

    async def put(self, key: str, value: bytes, *, ttl: float = 0) -> int:
        """Set ``key`` whatever it was, and return its new revision. ``ttl``: seconds it lasts."""
        return (await self._js.publish(self._subject(key), value, ttl=ttl)).seq

    async def create(self, key: str, value: bytes, *, ttl: float = 0) -> int:
        """Set ``key`` if it has no value. Raises KeyExistsError if it has."""
        try:
            return await self._put_at(key, value, 0, ttl)
        except KeyExistsError:
            last = await self._last(key)
            if last is None or last.operation == "put":
                raise
        return await self._put_at(key, value, last.revision, ttl)

    async def update(self, key: str, value: bytes, revision: int, *, ttl: float = 0) -> int:
        """Set ``key`` if ``revision`` is its newest. Raises KeyExistsError if it is not."""
        return await self._put_at(key, value, revision, ttl)

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        """Remove the value; earlier revisions stay in the history. Raises KeyExistsError if
        ``revision`` was given and is not the newest."""
        await self._mark(key, {_OPERATION: "DEL"}, revision, 0)

    async def purge(self, key: str, *, revision: int | None = None, ttl: float = 0) -> None:
        """Remove the value and every revision; with ``ttl`` the mark of it goes too."""
        await self._mark(key, {_OPERATION: "PURGE", "Nats-Rollup": "sub"}, revision, ttl)

    async def _mark(
        self, key: str, headers: dict[str, str], revision: int | None, ttl: float
    ) -> None:
        try:
            await self._js.publish(
                self._subject(key),
                headers=headers,
                expected_last_subject_sequence=revision,
                ttl=ttl,
            )
        except JetStreamApiError as error:
            raise self._conflict(key, error) from error

    async def _put_at(self, key: str, value: bytes, revision: int, ttl: float) -> int:
        try:
            ack = await self._js.publish(
                self._subject(key), value, expected_last_subject_sequence=revision, ttl=ttl
            )
        except JetStreamApiError as error:
            raise self._conflict(key, error) from error
        return ack.seq

    def _conflict(self, key: str, error: JetStreamApiError) -> Exception:
        if error.err_code != Errors.STREAM_WRONG_LAST_SEQUENCE.err_code:
            return error
        return KeyExistsError(
            f"key {key!r} of bucket {self.bucket!r} was changed: {error.description}"
        )

    # Entries

    def _subject(self, key: str) -> str:
        return self._prefix + _checked(_KEY, "key", key)

    def _entry(self, message: StreamMessage) -> Entry:
        return Entry(
            self.bucket,
            message.subject.removeprefix(self._prefix),
            message.payload,
            message.sequence,
            _operation(message.headers),
            message.timestamp_ns,
        )

    def _delivered(self, message: JetStreamMessage) -> Entry:
        metadata = message.metadata
        return Entry(
            self.bucket,
            message.subject.removeprefix(self._prefix),
            message.payload,
            metadata.stream_seq,
            _operation(parse_headers(message.raw_headers)),
            metadata.timestamp_ns,
            metadata.pending,
        )


class Watch:
    """Entries as they change: ``async with await kv.watch() as watch: async for entry in watch``."""

    def __init__(
        self,
        bucket: KeyValue,
        ordered: OrderedConsumer,
        pending: int,
        ignore_deletes: bool,
        on_error: Callable[[Exception], object] | None,
    ) -> None:
        self._bucket = bucket
        self._messages: OrderedConsumption = ordered.consume(on_error=on_error)
        self._pending = pending
        self._ignore_deletes = ignore_deletes

    async def initial(self) -> AsyncIterator[Entry]:
        """What was there when the watch began; afterwards iterate the watch itself for changes."""
        while self._pending > 0:
            entry = await self._next()
            if self._wanted(entry):
                yield entry

    def __aiter__(self) -> AsyncIterator[Entry]:
        return self

    async def __anext__(self) -> Entry:
        while not self._wanted(entry := await self._next()):
            continue
        return entry

    async def _next(self) -> Entry:
        entry = self._bucket._delivered(await anext(self._messages))
        self._pending = min(self._pending - 1, entry.pending)
        return entry

    def _wanted(self, entry: Entry) -> bool:
        return not (self._ignore_deletes and entry.operation != "put")

    async def stop(self) -> None:
        """End it."""
        await self._messages.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()


def bucket_config(
    bucket: str,
    *,
    description: str,
    history: int,
    ttl: float,
    max_value_size: int,
    max_bytes: int,
    storage: StorageKind,
    num_replicas: int,
    marker_ttl: float,
) -> StreamConfig:
    """The stream that stands behind a bucket, as every NATS client makes it."""
    _checked(_BUCKET, "bucket name", bucket)
    if not 1 <= history <= HISTORY_MAX:
        raise ConfigurationError(f"history is {history}; accepted: 1 to {HISTORY_MAX}")
    window = 120.0 if not ttl or ttl > 120 else ttl
    return StreamConfig(
        name=f"KV_{bucket}",
        description=description,
        subjects=(f"$KV.{bucket}.>",),
        max_msgs_per_subject=history,
        max_age=ttl,
        max_msg_size=max_value_size,
        max_bytes=max_bytes,
        storage=storage,
        num_replicas=num_replicas,
        discard="new",
        allow_rollup_hdrs=True,
        deny_delete=True,
        allow_direct=True,
        duplicate_window=window,
        allow_msg_ttl=marker_ttl > 0,
        subject_delete_marker_ttl=marker_ttl,
    )


def stream_name_of(bucket: str) -> str:
    """The name of the stream behind a bucket. Raises ConfigurationError for a bad bucket name."""
    return f"KV_{_checked(_BUCKET, 'bucket name', bucket)}"


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
            f"{what} {text!r}: accepted are letters, digits, '-', '_'"
            + ("" if form is _BUCKET else ", '/', '=' and dots inside")
            + (", '*' and '>'" if form is _PATTERN else "")
        )
    return text
