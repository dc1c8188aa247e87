"""Whether a published message may be stored, and as what: one pipeline of checks.

A message of its own and one of an atomic batch pass the same checks, in an order each: the public server's,
as it decides which refusal is told. A message of a batch is looked at as if those before it were stored;
``Overlay`` knows them. A copy of another stream's message was admitted there, and passes fewer.

``counted`` makes of a counter's message (``Nats-Incr``, no body) the new total, ``{"val":"…"}``, which is
exact however large. A stream that copies counters adds them up: stored is by how much a source has grown
since its message before, and the sum over all sources; ``Nats-Counter-Sources`` remembers what each had
said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from .....api.base import DocumentError, read_typed
from .....api.errors import Errors
from .....api.streams import StreamConfig
from .....limits import HEADER_BYTES_MAX
from .....subjects import SubjectFilter, is_literal, is_valid_pattern
from ...ports import StreamStore
from ..config.options import Refused
from ..config.sizes import read_number
from ..config.stream import refuses_when_full
from ..context import Context
from ..headers import (
    MARK,
    NEVER,
    NEVER_NS,
    NOTED_NS,
    expires_at,
    header_value,
    read_headers,
    read_ttl,
    with_headers,
    with_ttl,
    without_header,
)
from ..ports import Arrival
from ..schedules import check_schedule, check_scheduler
from .duplicate_window import DuplicateWindow

_INCREMENT: Final = b"Nats-Incr"
_SOURCES: Final = b"Nats-Counter-Sources"
_NUMBER: Final = re.compile(rb"[+-]?\d+")
_DIGITS_MAX: Final = 1000
"""Digits of an increment; a total beyond four times as many is refused, too."""
_EXCLUDED: Final = (
    b"Nats-Rollup",
    b"Nats-Expected-Stream",
    b"Nats-Expected-Last-Msg-Id",
    b"Nats-Expected-Last-Sequence",
    b"Nats-Expected-Last-Subject-Sequence",
    b"Nats-Expected-Last-Subject-Sequence-Subject",
)

_SUBJECT: Final = 4  # where the source's header names the subject there
_encode: Final = msgspec.json.Encoder(order="deterministic").encode

_Said = dict[str, dict[str, str]]
_EXPECTED_STREAM: Final = b"Nats-Expected-Stream"
_EXPECTED_LAST: Final = b"Nats-Expected-Last-Sequence"
_EXPECTED_LAST_ID: Final = b"Nats-Expected-Last-Msg-Id"
_EXPECTED_SUBJECT_LAST: Final = b"Nats-Expected-Last-Subject-Sequence"
_EXPECTED_SUBJECT: Final = b"Nats-Expected-Last-Subject-Sequence-Subject"
_MSG_ID: Final = b"Nats-Msg-Id"
_ROLLUP: Final = b"Nats-Rollup"
_SOURCE: Final = b"Nats-Stream-Source"
_TTL: Final = b"Nats-TTL"
_BATCH_MARKS: Final = 2  # headers that say which message of which batch it is: in each of them
_FILE_OVERHEAD: Final = 30  # as the public server accounts a stored message
_HEADER_OVERHEAD: Final = 4
_MEMORY_OVERHEAD: Final = 16


class _Value(msgspec.Struct):
    val: str


def read_increment(found: Mapping[bytes, bytes], payload: bytes, *, allowed: bool) -> int | None:
    """By how much a message counts, None if it does not. Raises Refused."""
    text = found.get(_INCREMENT)
    if not text:
        return None
    if len(text) > _DIGITS_MAX or _NUMBER.fullmatch(text) is None:
        raise Refused(Errors.MESSAGE_INCR_INVALID)
    if not allowed:
        raise Refused(Errors.MESSAGE_INCR_DISABLED)
    if payload:
        raise Refused(Errors.MESSAGE_INCR_PAYLOAD)
    if any(found.get(name) for name in _EXCLUDED):
        raise Refused(Errors.MESSAGE_INCR_INVALID)
    return int(text)


def counted(
    increment: int, headers: bytes, before: tuple[bytes, bytes] | None
) -> tuple[bytes, bytes, bytes]:
    """Headers and body to store, and the new total.

    ``before`` are headers and body of the subject's last message. Raises Refused when that is no counter.
    """
    total = increment
    if _SOURCES in headers:  # whom to trust for the totals of others is not for a publisher to say
        headers = without_header(headers, _SOURCES)
    if before is not None:
        last_headers, body = before
        total += _read_total(body)
        sources = header_value(last_headers, _SOURCES)
        if sources:
            headers = with_headers(headers, b"%b: %b\r\n" % (_SOURCES, sources))
    if abs(total) >= 10 ** (4 * _DIGITS_MAX):
        raise Refused(Errors.MESSAGE_INCR_INVALID)
    value = b"%d" % total
    return headers, b'{"val":"%b"}' % value, value


def _read_total(body: bytes) -> int:
    """The number a stored message stands for. Raises Refused when it is no counter."""
    try:
        return _total(read_typed(body, _Value).val)
    except DocumentError as error:
        raise Refused(Errors.MESSAGE_COUNTER_BROKEN) from error


def _total(text: str) -> int:
    """The number of a stored total; what is none counts as 0, as by the public server."""
    raw = text.encode()
    if len(raw) > 4 * _DIGITS_MAX + 1 or _NUMBER.fullmatch(raw) is None:
        return 0
    return int(raw)


def _counted_copy(
    headers: bytes, payload: bytes, before: tuple[bytes, bytes] | None
) -> tuple[bytes, bytes]:
    """Headers and body to store for a source's total.

    ``before`` are headers and body of the subject's last message here. Raises Refused when the message,
    or that one, is no counter.
    """
    if not header_value(headers, _INCREMENT):
        raise Refused(Errors.MESSAGE_INCR_MISSING)
    fields = header_value(headers, _SOURCE).decode(errors="replace").split(" ")
    origin, subject = fields[0], fields[_SUBJECT]
    total = 0
    said: _Said = {}
    if before is not None:
        total = _read_total(before[1])
        said = _read_sources(header_value(before[0], _SOURCES))
    value = _read_total(payload)
    known = said.setdefault(origin, {})
    try:
        growth = value - int(known.get(subject, "0"))
    except ValueError as error:
        raise Refused(Errors.MESSAGE_COUNTER_BROKEN) from error
    known[subject] = str(value)
    headers = _with(headers, _INCREMENT, b"%d" % growth)
    headers = _with(headers, _SOURCES, _encode(said))
    return headers, b'{"val":"%d"}' % (total + growth)


def _read_sources(text: bytes) -> _Said:
    if not text:
        return {}
    try:
        return read_typed(text, _Said)
    except DocumentError as error:
        raise Refused(Errors.MESSAGE_COUNTER_BROKEN) from error


def _with(headers: bytes, name: bytes, value: bytes) -> bytes:
    """The block with another value of a header, where it was or at the end."""
    line = b"%b: %b" % (name, value)
    lines = headers.split(b"\r\n")
    for index, there in enumerate(lines):
        if there.startswith(name + b":"):
            lines[index] = line
            return b"\r\n".join(lines)
    return with_headers(headers, line + b"\r\n")


class Overlay:
    """What the messages before one would have changed: those of its batch, admitted and not stored yet."""

    __slots__ = ("bytes", "count", "counts", "ids", "is_batch", "lasts", "marks", "totals")

    def __init__(self, *, is_batch: bool = True) -> None:
        self.is_batch = is_batch
        self.marks = _BATCH_MARKS if is_batch else 0
        """How many headers of the server's own say nothing to the checks."""
        self.count = 0
        self.bytes = 0
        self.ids: set[bytes] = set()
        self.counts: dict[bytes, int] = {}
        """How many on each subject."""
        self.totals: dict[bytes, tuple[bytes, bytes]] = {}
        """Headers and body of the last on each subject that counts."""
        self.lasts: dict[bytes, int] = {}
        """The last sequences that were asked for, by subject or pattern."""

    def add(self, arrival: Arrival, size: int) -> None:
        """One more is admitted, and would take so much."""
        subject = arrival.subject
        self.count += 1
        self.bytes += size
        self.counts[subject] = self.counts.get(subject, 0) + 1
        if arrival.message_id:
            self.ids.add(arrival.message_id)
        if arrival.increment is not None:
            self.totals[subject] = arrival.headers, arrival.payload


_ALONE: Final = Overlay(is_batch=False)
_Found = Mapping[bytes, bytes]
"""The headers of the server's own in a message."""
_Check = Callable[[Arrival, _Found, Overlay], None]


class Checks:
    """The checks of one stream."""

    def __init__(
        self, context: Context, config: StreamConfig, store: StreamStore, ids: DuplicateWindow
    ) -> None:
        self._context = context
        self._store = store
        self._ids = ids
        self._published: tuple[_Check, ...] = (
            self._read_increment,
            self._expect_stream,
            self._allow_ttl,
            self._expect_subject_last,
            self._expect_last,
            self._read_schedule,
            self._allow_source,
            self._find_duplicate,
            self._expect_last_id,
            self._read_rollup,
            self._count,
            self._read_ttl,
            self._mark_schedule,
            self._require_increment,
        )
        self._batched: tuple[_Check, ...] = (
            self._allow_last_id,
            self._read_increment,
            self._expect_stream,
            self._allow_valid_ttl,
            self._find_duplicate,
            self._allow_source,
            self._count,
            self._require_increment,
            self._expect_last,
            self._expect_subject_last,
            self._read_schedule,
            self._read_rollup,
            self._mark_schedule,
            self._read_ttl,
        )
        self.configure(config)

    def let_go(self) -> None:
        """There is nothing more to check: the checks are its own methods, which keep it."""
        self._published = self._batched = ()

    def configure(self, config: StreamConfig) -> None:
        """Check by this configuration from here on."""
        self._config = config
        self._max_size = config.max_msg_size
        self._counts = config.allow_msg_counter
        self._rejects = refuses_when_full(config)

    def admit(
        self,
        subject: bytes,
        headers: bytes,
        payload: bytes,
        now_ns: int,
        batch: Overlay | None = None,
    ) -> Arrival:
        """Check a message, alone or after those of its batch. Raises Refused, StoreReadError.

        A duplicate is not refused, unless it is in a batch: it is told of, and is not to be stored.
        """
        self.check_size(headers, payload)
        if len(headers) > HEADER_BYTES_MAX:
            raise Refused(Errors.STREAM_HEADER_EXCEEDS_MAXIMUM)
        arrival = Arrival(subject, headers, payload, now_ns)
        before = _ALONE if batch is None else batch
        if headers.count(MARK) > before.marks or self._counts:
            found = read_headers(headers)
            for check in self._published if batch is None else self._batched:
                check(arrival, found, before)
                if arrival.duplicate_of:
                    return arrival
        size = self._check_room(arrival, before) if self._rejects else 0
        if batch is not None:
            batch.add(arrival, size)
        return arrival

    def admit_copy(
        self, subject: bytes, headers: bytes, payload: bytes, now_ns: int, *, replica: bool = False
    ) -> Arrival:
        """Admit a message of another stream, which was admitted there.

        Roll-ups and lifetimes count where this stream allows them and are no error where it does not.
        A ``replica`` is never a duplicate.
        """
        self.check_size(headers, payload)
        found = read_headers(headers)
        arrival = Arrival(subject, headers, payload, now_ns)
        arrival.message_id = found.get(_MSG_ID, b"")
        if arrival.message_id and not replica:
            arrival.duplicate_of = self._ids.find(
                arrival.message_id, self._context.clock.monotonic_ns()
            )
            if arrival.duplicate_of:
                return arrival
        if self._counts:
            arrival.headers, arrival.payload = _counted_copy(
                headers, payload, self._last_message(subject)
            )
            return arrival
        if self._config.allow_rollup_hdrs and not self._config.deny_purge:
            arrival.rollup = found.get(_ROLLUP, b"").lower()
        if self._rejects:
            self._check_room(arrival, _ALONE)
        ttl = found.get(_TTL, b"")
        if ttl and self._config.allow_msg_ttl and read_ttl(ttl):
            self.set_lifetime(arrival, ttl)
        return arrival

    def check_size(self, headers: bytes, payload: bytes) -> None:
        """Refuse what a sealed stream, or one of smaller messages, does not take whatever it says."""
        if self._config.sealed:
            raise Refused(Errors.STREAM_SEALED)
        if 0 <= self._max_size < len(headers) + len(payload):
            raise Refused(Errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM)

    def set_lifetime(self, arrival: Arrival, ttl: bytes) -> None:
        """Have a message expire as its TTL says, or after a marker of its subject. Raises Refused."""
        seconds = read_ttl(ttl)
        if seconds is None:
            raise Refused(Errors.MESSAGE_TTL_INVALID)
        if seconds == NEVER:
            arrival.expires_ns = NEVER_NS
        if seconds <= 0:
            return
        least = int(self._config.subject_delete_marker_ttl)
        if seconds < least and self._config.max_msgs_per_subject != 1:
            # It must not go before a marker of its subject that is there already.
            arrival.headers = with_ttl(arrival.headers, least)
        arrival.expires_ns = expires_at(arrival.headers, arrival.timestamp_ns)

    # -- the checks

    def _read_increment(self, arrival: Arrival, found: _Found, before: Overlay) -> None:
        arrival.increment = read_increment(found, arrival.payload, allowed=self._counts)

    def _expect_stream(self, arrival: Arrival, found: _Found, before: Overlay) -> None:
        expected = found.get(_EXPECTED_STREAM)
        if expected and expected != self._config.name.encode():
            raise Refused(Errors.STREAM_NOT_MATCH)

    def _allow_ttl(self, arrival: Arrival, found: _Found, before: Overlay) -> None:
        ttl = found.get(_TTL)
        if ttl and not self._config.allow_msg_ttl and read_ttl(ttl):
            raise Refused(Errors.MESSAGE_TTL_DISABLED)

    def _allow_valid_ttl(self, arrival: Arrival, found: _Found, before: Overlay) -> None:
        ttl = found.get(_TTL)
        if ttl and not self._config.allow_msg_ttl:
            raise Refused(Errors.MESSAGE_TTL_DISABLED)
        if ttl and read_ttl(ttl) is None:
            raise Refused(Errors.MESSAGE_TTL_INVALID)

    def _expect_subject_last(self, arrival: Arrival, found: _Found, before: Overlay) -> None:
        wanted, other = found.get(_EXPECTED_SUBJECT_LAST), found.get(_EXPECTED_SUBJECT)
        if not wanted:
            if other:
                raise Refused(Errors.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID)
            return
        about = other or arrival.subject
        if about in before.counts:
            raise Refused(Errors.STREAM_WRONG_LAST_SEQUENCE_CONSTANT)
        last = before.lasts.get(about)
        if last is None:
            last = self.last_on(about)
        if read_number(wanted) != last:
            raise Refused(Errors.STREAM_WRONG_LAST_SEQUENCE, seq=last)
        if before.is_batch:
            before.lasts[about] = last  # it stays: nothing is stored until all are admitted

    def last_on(self, subject: bytes) -> int:
        """The last sequence on a subject, or on those a pattern stands for; 0 for none."""
        if is_literal(subject):
            state = self._store.subject(subject)
            return state.last_seq if state is not None else 0
        if not is_valid_pattern(subject):
            return 0
        return self._store.last_matching(SubjectFilter([subject]))

    def _expect_last(self, arrival: Arrival, found: _Found, before: Overlay) -> None:
        wanted = found.get(_EXPECTED_LAST)
        if not wanted:
            return
        last = self._store.last_seq + before.count
        if read_number(wanted) != last:
            raise Refused(Errors.STREAM_WRONG_LAST_SEQUENCE, seq=last)
        if before.count:  # only the first message of a batch may say so
            raise Refused(Errors.STREAM_WRONG_LAST_SEQUENCE_CONSTANT)

    def _read_schedule(self, arrival: Arrival, found: _Found, before: Overlay) -> None:
        subject, config = arrival.subject, self._config
        zone_of = self._context.options.time_zone
        arrival.is_schedule = check_schedule(found, subject, config, zone_of, arrival.timestamp_ns)
        arrival.ends = check_scheduler(found, subject, config, self._last_headers)

    def _last_headers(self, subject: bytes) -> bytes | None:
        last = self._last_message(subject)
        return last[0] if last is not None else None

    def _last_message(self, subject: bytes) -> tuple[bytes, bytes] | None:
        """Headers and body of a subject's last message."""
        state = self._store.subject(subject)
        last = self._store.get(state.last_seq) if state is not None else None
        return (last.headers, last.payload) if last is not None else None

    def _allow_source(self, arrival: Arrival, found: _Found, before: Overlay) -> None:
        if _SOURCE in found:
            raise Refused(Errors.MESSAGE_SOURCE_HEADER_NOT_ALLOWED)

    def _find_duplicate(self, arrival: Arrival, found: _Found, before: Overlay) -> None:
        name = found.get(_MSG_ID)
        if not name:
            return
        arrival.message_id = name
        if name in before.ids:
            raise Refused(Errors.BATCH_DUPLICATE_ID)
        duplicate_of = self._ids.find(name, self._context.clock.monotonic_ns())
        if duplicate_of and before.is_batch:
            raise Refused(Errors.BATCH_DUPLICATE_ID)
        arrival.duplicate_of = duplicate_of

    def _allow_last_id(self, arrival: Arrival, found: _Found, before: Overlay) -> None:
        if found.get(_EXPECTED_LAST_ID):
            raise Refused(Errors.BATCH_UNSUPPORTED_HEADER, header=_EXPECTED_LAST_ID.decode())

    def _expect_last_id(self, arrival: Arrival, found: _Found, before: Overlay) -> None:
        wanted, ids = found.get(_EXPECTED_LAST_ID), self._ids
        if not wanted:
            return
        last = ids.last_id if ids.last_sequence == self._store.last_seq else b""
        if wanted != last:
            raise Refused(Errors.STREAM_WRONG_LAST_MSG_ID, id=last.decode(errors="replace"))

    def _read_rollup(self, arrival: Arrival, found: _Found, before: Overlay) -> None:
        config = self._config
        value = found.get(_ROLLUP) or (b"sub" if arrival.is_schedule else b"")
        if not value:
            return
        if not config.allow_rollup_hdrs or config.deny_purge:
            raise Refused(Errors.STREAM_ROLLUP_FAILED, err="rollup not permitted")
        rollup = arrival.rollup = value.lower()
        if rollup not in (b"sub", b"all"):
            shown = msgspec.json.encode(value.decode(errors="replace")).decode()  # quoted
            raise Refused(Errors.STREAM_ROLLUP_FAILED, err=f"rollup value invalid: {shown}")
        if rollup == b"sub" and arrival.subject in before.counts:
            raise Refused(Errors.STREAM_ROLLUP_FAILED, err="batch rollup sub invalid")
        if rollup == b"all" and before.count:
            raise Refused(Errors.STREAM_ROLLUP_FAILED, err="batch rollup all invalid")

    def _count(self, arrival: Arrival, found: _Found, before: Overlay) -> None:
        if arrival.increment is None:
            return
        last = before.totals.get(arrival.subject) or self._last_message(arrival.subject)
        headers, body, value = counted(arrival.increment, arrival.headers, last)
        if 0 <= self._max_size < len(headers) + len(body):
            raise Refused(Errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM)
        arrival.headers, arrival.payload = headers, body
        arrival.extra = b',"val":"%b"' % value

    def _require_increment(self, arrival: Arrival, found: _Found, before: Overlay) -> None:
        if self._counts and arrival.increment is None:
            raise Refused(Errors.MESSAGE_INCR_MISSING)

    def _read_ttl(self, arrival: Arrival, found: _Found, before: Overlay) -> None:
        ttl = found.get(_TTL)
        if ttl and arrival.increment is None:
            self.set_lifetime(arrival, ttl)

    def _mark_schedule(self, arrival: Arrival, found: _Found, before: Overlay) -> None:
        """A schedule takes the place of another of its subject, and is found again after a restart."""
        if arrival.is_schedule:
            if not found.get(_ROLLUP):
                arrival.headers = with_headers(arrival.headers, b"Nats-Rollup: sub\r\n")
            arrival.expires_ns = arrival.expires_ns or NOTED_NS

    # -- room

    def room_for(self, messages: int, size: int) -> tuple[int, int]:
        """How many messages and bytes are worth reading for this stream, up to so many.

        Where it refuses what does not fit, that is one message more than fits by their number.
        """
        config, store = self._config, self._store
        if self._rejects:
            if config.max_msgs > 0:
                messages = min(messages, max(config.max_msgs - store.messages, 0) + 1)
            if config.max_bytes > 0:
                size = min(size, max(config.max_bytes - store.bytes, 1))
        return messages, size

    def _check_room(self, arrival: Arrival, before: Overlay) -> int:
        """Refuse what is beyond a limit of a stream that discards new messages; what it would take."""
        config, store = self._config, self._store
        size = self._size_of(arrival.subject, arrival.headers, arrival.payload)
        is_full = self._is_full(arrival.subject, before)
        is_one_too_many = is_full and config.discard_new_per_subject and not arrival.rollup
        if not before.is_batch:
            if is_one_too_many:
                raise _no_room("messages per subject")
            if is_full:
                self._check_place(arrival.subject, size)
                return size
        if 0 < config.max_msgs <= store.messages + before.count:
            raise _no_room("messages")
        if 0 < config.max_bytes < store.bytes + before.bytes + size:
            raise _no_room("bytes")
        if is_one_too_many:
            raise _no_room("messages per subject")
        return size

    def _check_place(self, subject: bytes, size: int) -> None:
        """Refuse a message that would take the place of its subject's oldest, and fits no better."""
        most, there = self._config.max_bytes, self._store.bytes
        if not 0 < most < there + size:
            return
        state = self._store.subject(subject)
        oldest = self._store.get(state.first_seq) if state is not None else None
        freed = 0 if oldest is None else self._size_of(*oldest[1:4])
        if freed < size and most < there - freed + size:
            raise _no_room("bytes")

    def _is_full(self, subject: bytes, before: Overlay) -> bool:
        """Whether a subject has as many messages as it may."""
        if self._config.max_msgs_per_subject <= 0:
            return False
        state = self._store.subject(subject)
        there = state.count if state is not None else 0
        return there + before.counts.get(subject, 0) >= self._config.max_msgs_per_subject

    def _size_of(self, subject: bytes, headers: bytes, payload: bytes) -> int:
        """What a message takes, as the public server accounts it."""
        size = len(subject) + len(payload)
        if self._config.storage == "memory":
            return size + _MEMORY_OVERHEAD + len(headers)
        return size + _FILE_OVERHEAD + (_HEADER_OVERHEAD + len(headers) if headers else 0)


def _no_room(limit: str) -> Refused:
    return Refused(Errors.STREAM_STORE_FAILED, err=f"maximum {limit} exceeded")
