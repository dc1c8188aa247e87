"""Message schedules: a stored message that makes the stream publish to itself, once or again and again.

The schedule is the last message of its subject; a later one on that subject replaces or ends it. What it
makes carries ``Nats-Scheduler`` and ``Nats-Schedule-Next``, by which a restart knows how far it has come:
a firing that is on disk is not repeated. Source: delayed message scheduling of the public server.

A schedule fires by ``@at <time>``, ``@every <duration>``, ``@daily`` and its like, or cron.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from typing import Final, NamedTuple, Protocol

from ....api.base import DocumentError
from ....api.errors import Errors
from ....api.streams import StreamConfig
from ....api.times import format_time, parse_time
from ....clock import JUMP_NS
from ....cron import PRESETS, next_time_ns, parse_cron
from ....errors import StoreError, StoreReadError
from ....message import StoredMessage
from ....quantities import GO_UNITS, duration_ns
from ....subjects import is_literal, is_valid_subject, overlaps
from ..ports import StreamStore
from ..timers import Timer
from .config.options import Refused
from .context import Context
from .headers import header_value, read_ttl, with_headers
from .tick.due_times import DueTimes
from .tick.retry import Unread

_NS: Final = 1_000_000_000
PATTERN: Final = b"Nats-Schedule"
_ZONE: Final = b"Nats-Schedule-Time-Zone"
_TTL: Final = b"Nats-Schedule-TTL"
_ROLLUP: Final = b"Nats-Schedule-Rollup"
_TARGET: Final = b"Nats-Schedule-Target"
_SOURCE: Final = b"Nats-Schedule-Source"
_NEXT: Final = b"Nats-Schedule-Next"
_SCHEDULER: Final = b"Nats-Scheduler"
_PURGE: Final = b"purge"
_LEFT_OUT: Final = (
    b"Nats-Schedule",
    b"Nats-Expected-",
    b"Nats-Msg-Id:",
    b"Nats-TTL:",
    b"Nats-Rollup:",
    b"Nats-Batch-",
    b"Nats-Stream-Source:",  # what a schedule makes was not copied, whatever its content was
)
_GRAIN_NS: Final = 250_000_000  # schedules fire no more often than this
_GONE_MAX: Final = 1024  # so many schedules that were purged may be remembered in any case
_PATIENCE_NS: Final = 60_000_000_000  # the wall clock may be set, or go on while the machine sleeps


class Firing(NamedTuple):
    """A time in nanoseconds, and whether there will be others after it."""

    time_ns: int
    repeats: bool


def next_firing(pattern: str, zone: tzinfo | None, after_ns: int, now_ns: int) -> Firing | None:
    """The next time after ``after_ns``; a repeating schedule skips what lies before ``now_ns``.

    None when the pattern is none, or never fires. Only cron patterns know a time zone.
    """
    if pattern.startswith("@at "):
        at_ns = _read_time(pattern[4:])
        return Firing(at_ns, False) if at_ns and zone is None else None
    if pattern.startswith("@every "):
        step_ns = duration_ns(pattern[7:], GO_UNITS)
        if step_ns is None or step_ns < _NS or zone is not None:
            return None
        next_ns = _round(after_ns) + step_ns
        return Firing(next_ns if next_ns >= now_ns else _round(now_ns) + step_ns, True)
    try:
        cron = parse_cron(PRESETS.get(pattern, pattern))
    except ValueError:
        return None
    found_ns = next_time_ns(cron, zone, after_ns)
    if found_ns is not None and found_ns < now_ns:
        found_ns = next_time_ns(cron, zone, _round(now_ns))
    return Firing(found_ns, True) if found_ns is not None else None


def _read_time(text: str) -> int:
    try:
        return parse_time(text)
    except DocumentError:
        return 0


def _round(time_ns: int) -> int:
    """To the nearest second."""
    return (time_ns + _NS // 2) // _NS * _NS


ZoneOf = Callable[[str], tzinfo | None]


def check_schedule(
    found: Mapping[bytes, bytes], subject: bytes, config: StreamConfig, zone_of: ZoneOf, now_ns: int
) -> bool:
    """Whether a message is a schedule. Raises Refused when it is a bad one, or may not be one."""
    if PATTERN not in found and _ZONE not in found:
        return False
    if not config.allow_msg_schedules:
        if found.get(PATTERN) or _ZONE in found:
            raise Refused(Errors.SCHEDULES_DISABLED)
        return False
    zone = _zone(found.get(_ZONE), zone_of)
    if not found.get(PATTERN):
        return False
    if next_firing(_text(found[PATTERN]), zone, now_ns, now_ns) is None:
        raise Refused(Errors.SCHEDULES_PATTERN_INVALID)
    ttl = found.get(_TTL)
    if ttl and read_ttl(ttl) is None:
        raise Refused(Errors.SCHEDULES_TTL_INVALID)
    if found.get(_ROLLUP, b"") not in (b"", b"sub"):
        raise Refused(Errors.SCHEDULES_ROLLUP_INVALID)
    if ttl and not config.allow_msg_ttl:
        raise Refused(Errors.MESSAGE_TTL_DISABLED)
    target, source = found.get(_TARGET, b""), found.get(_SOURCE, b"")
    if target == subject or not _is_ours(target, config):
        raise Refused(Errors.SCHEDULES_TARGET_INVALID)
    if source and (source in (target, subject) or not _is_ours(source, config)):
        raise Refused(Errors.SCHEDULES_SOURCE_INVALID)
    if found.get(b"Nats-Rollup", b"sub").lower() not in (b"", b"sub"):
        raise Refused(Errors.SCHEDULES_ROLLUP_INVALID)
    return True


def check_scheduler(
    found: Mapping[bytes, bytes],
    subject: bytes,
    config: StreamConfig,
    last_headers: Callable[[bytes], bytes | None],
) -> bytes:
    """The subject of the schedule a message ends (``Nats-Schedule-Next: purge``), or ``b""``.

    ``last_headers`` gives those of a subject's last message. Raises Refused.
    """
    following, scheduler = found.get(_NEXT), found.get(_SCHEDULER, b"")
    if not following:
        if scheduler:
            raise Refused(Errors.SCHEDULES_SCHEDULER_INVALID)
        return b""
    if following != _PURGE or not _is_subject(scheduler) or scheduler == subject:
        raise Refused(Errors.SCHEDULES_SCHEDULER_INVALID)
    if not config.allow_msg_schedules:
        raise Refused(Errors.SCHEDULES_DISABLED)
    headers = last_headers(scheduler)
    if headers is not None and not header_value(headers, PATTERN):
        raise Refused(Errors.SCHEDULES_SCHEDULER_INVALID)
    return scheduler


def _zone(name: bytes | None, zone_of: ZoneOf) -> tzinfo | None:
    if name is None:
        return None
    zone = zone_of(_text(name)) if name else None
    if zone is None:
        raise Refused(Errors.SCHEDULES_TIME_ZONE_INVALID)
    return zone


def _is_subject(subject: bytes) -> bool:
    return is_valid_subject(subject) and is_literal(subject)


def _is_ours(subject: bytes, config: StreamConfig) -> bool:
    return _is_subject(subject) and any(overlaps(s.encode(), subject) for s in config.subjects)


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


class _ScheduleEntry(NamedTuple):
    sequence: int
    time_ns: int


class ScheduleTarget(Protocol):
    """A stream, as its schedules know it; see ``stream.stream.Stream``."""

    config: StreamConfig
    store: StreamStore
    unread: Unread

    def writable(self) -> bool: ...
    def put_scheduled(
        self, subject: bytes, headers: bytes, payload: bytes, rollup: bytes
    ) -> None: ...
    def remove(self, sequences: Sequence[int]) -> int: ...


class Schedules:
    """The schedules of one stream, and the timer of the next."""

    def __init__(self, context: Context, stream: ScheduleTarget) -> None:
        self._stream = stream
        self._clock = context.clock
        self._timers = context.timers
        self._zone_of = context.options.time_zone
        self._current: dict[bytes, _ScheduleEntry] = {}
        self._due = DueTimes()
        self._gone = 0  # reminders of schedules that were not there any more
        self._complete = True  # whether every schedule is known
        self._timer: Timer | None = None
        self._timer_ns = 0
        self._seen_ns = 0  # what time it was when the timer ran last

    def note(self, sequence: int, subject: bytes, headers: bytes, now_ns: int) -> None:
        """A message was stored: a schedule, the end of one, or neither."""
        if header_value(headers, PATTERN):
            firing = self._next(headers, now_ns)
            if firing is not None:
                self._set(subject, sequence, self._soonest(headers, firing.time_ns))
        elif subject in self._current and not header_value(headers, _SCHEDULER):
            del self._current[subject]

    def rebuild(self) -> None:
        """Begin anew with what is stored: after opening the stream, and when a batch was taken back."""
        is_late, self._complete = not self._complete, False
        store = self._stream.store
        list(store.expiries())  # what it takes to find them is read before anything is forgotten
        self._current.clear()
        self._due = DueTimes()
        over: list[int] = []
        for sequence, _ in store.expiries():
            message = store.get(sequence)
            if message is not None and header_value(message.headers, PATTERN):
                self._recover(message, over)
        if over:
            self._stream.remove(over)
        self._complete = True
        if is_late:  # what has come to be due meanwhile waits for a timer
            self.arm()

    def _recover(self, message: StoredMessage, over: list[int]) -> None:
        firing = self._next(message.headers, message.timestamp_ns)
        if firing is None:
            return
        following = self._said_next(message)
        if following == _PURGE:  # it fired, and its removal was cut off by a crash
            over.append(message.sequence)
            return
        time_ns = self._soonest(message.headers, _time_of(following) or firing.time_ns)
        self._set(message.subject, message.sequence, time_ns)

    def _said_next(self, schedule: StoredMessage) -> bytes:
        """What the last message a schedule has made says of the next one; ``b""`` without one."""
        made = self._last(header_value(schedule.headers, _TARGET))
        if made is None or made.sequence < schedule.sequence:
            return b""
        if header_value(made.headers, _SCHEDULER) != schedule.subject:
            return b""
        return header_value(made.headers, _NEXT)

    def _last(self, subject: bytes) -> StoredMessage | None:
        state = self._stream.store.subject(subject)
        return self._stream.store.get(state.last_seq) if state is not None else None

    def _next(self, headers: bytes, after_ns: int) -> Firing | None:
        name = header_value(headers, _ZONE)
        zone = self._zone_of(_text(name)) if name else None
        if name and zone is None:
            return None
        pattern = _text(header_value(headers, PATTERN))
        return next_firing(pattern, zone, after_ns, self._clock.now_ns())

    def _soonest(self, headers: bytes, time_ns: int) -> int:
        """When to fire, if it was to be at ``time_ns``, as the clock was then: a schedule that repeats is
        never later than the next time from now."""
        firing = self._next(headers, self._clock.now_ns())
        return min(time_ns, firing.time_ns) if firing is not None and firing.repeats else time_ns

    def _set(self, subject: bytes, sequence: int, time_ns: int) -> None:
        self._current[subject] = _ScheduleEntry(sequence, time_ns)
        self._due.add(time_ns, sequence)
        if self._due.is_stale:
            self._due = DueTimes()
            for entry in self._current.values():
                self._due.add(entry.time_ns, entry.sequence)
            self._due.rebuilt()

    # -- the timer

    def arm(self) -> None:
        """Have the timer run no later than the next schedule fires."""
        if not self._due or self._stream.config.sealed:
            return
        due_ns = self._due.next_ns()
        if self._timer is not None and self._timer_ns <= due_ns:
            return
        self.cancel()
        self._timer_ns = due_ns
        left_ns = min(max(due_ns - self._clock.now_ns(), _GRAIN_NS), _PATIENCE_NS)
        deadline_ns = self._clock.monotonic_ns() + left_ns
        self._timer = self._timers.call_at(deadline_ns, self._on_timer)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        now_ns = self._clock.now_ns()
        was_set_back, self._seen_ns = now_ns + JUMP_NS <= self._seen_ns, now_ns
        if was_set_back:  # schedules that repeat would wait until it is as late as it was
            self._stream.unread.attempt(self.rebuild)
        if self._stream.writable() and not self._stream.config.sealed:
            due = set(self._due.due(now_ns))
            for sequence in sorted(due):
                try:
                    message = self._stream.store.get(sequence)
                except StoreReadError as error:
                    self._due.add(self._clock.now_ns() + _PATIENCE_NS // 60, sequence)
                    self._stream.unread.failed(error, self.arm)
                    continue
                entry = self._current.get(message.subject) if message is not None else None
                if message is None:
                    self._gone += 1
                elif entry is not None and entry.sequence == sequence:
                    self._fire(message, entry)
            if self._gone > _GONE_MAX + len(self._current) // 2:
                self._forget_gone()
        self.arm()

    def _forget_gone(self) -> None:
        """Forget schedules that were purged or deleted."""
        self._gone = 0
        alive = self._stream.store.expires_ns
        self._current = {s: entry for s, entry in self._current.items() if alive(entry.sequence)}

    def _fire(self, schedule: StoredMessage, entry: _ScheduleEntry) -> None:
        """Publish what a schedule asks for, and see to its next time, or its end."""
        subject = schedule.subject
        firing = self._next(schedule.headers, entry.time_ns)
        if firing is None:
            del self._current[subject]
            return
        source = header_value(schedule.headers, _SOURCE)
        content = (self._last(source) if source else None) or schedule
        following = format_time(firing.time_ns).encode() if firing.repeats else _PURGE
        added = b"%b: %b\r\n%b: %b\r\n" % (_SCHEDULER, subject, _NEXT, following)
        ttl = header_value(schedule.headers, _TTL)
        rollup = header_value(schedule.headers, _ROLLUP)
        if ttl:
            added += b"Nats-TTL: %b\r\n" % ttl
        if rollup:
            added += b"Nats-Rollup: %b\r\n" % rollup
        headers = with_headers(_stripped(content.headers), added)
        if firing.repeats:
            self._set(subject, schedule.sequence, firing.time_ns)
        else:
            del self._current[subject]
        target = header_value(schedule.headers, _TARGET)
        try:
            self._stream.put_scheduled(target, headers, content.payload, rollup)
            if not firing.repeats:
                self._stream.remove([schedule.sequence])
        except (StoreError, Refused):
            # The store fails or is full: monitoring says so. It is tried again when there is room.
            self._set(subject, schedule.sequence, entry.time_ns)


def _stripped(headers: bytes) -> bytes:
    """The block without what belongs to the schedule, or could keep its message from being stored."""
    if not headers:
        return b""
    lines = [line for line in headers.split(b"\r\n") if line and not line.startswith(_LEFT_OUT)]
    return b"\r\n".join([*lines, b"", b""])


def _time_of(text: bytes) -> int:
    try:
        return parse_time(_text(text))
    except DocumentError:
        return 0
