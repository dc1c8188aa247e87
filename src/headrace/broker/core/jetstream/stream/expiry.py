"""What leaves a stream by its age: what is older than ``max_age``, and messages with a life of their own.

Reminders of single messages are kept by time, filled from the store's index when the stream is opened. The
store knows the truth: a reminder of a message that is gone, or that is another by now, does nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .....errors import StoreReadError
from ..headers import NEVER_NS, NOTED_NS, is_marker, marker_headers
from ..tick.due_times import DueTimes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .....message import StoredRow
    from ...ports import StreamStore
    from ...timers import Timer
    from .stream import Stream

_NS: Final = 1_000_000_000
_GRAIN_NS: Final = 250_000_000  # the limits are enforced no more often than this
_PATIENCE_NS: Final = 60_000_000_000  # the wall clock may be set, or go on while the machine sleeps
_READ: Final = 512
_READS: Final = 8  # so many times in a turn …
_READS_MARKED: Final = 1  # … and if each message may leave a marker
_SINGLE_MAX: Final = 4096  # so many messages leave one by one in a turn …
_MARKED_MAX: Final = 512  # … and so many if each may leave a marker
_READ_BYTES: Final = 1 << 22


class Reminders:
    """Sequences by the time at which they expire; the store knows what is still there."""

    __slots__ = ("_near", "_store", "_times")

    def __init__(self, store: StreamStore) -> None:
        self._store = store
        self._times = DueTimes()
        self._near: list[tuple[int, int]] = []  # time and sequence, the next one last

    def __bool__(self) -> bool:
        return bool(self._near or self._times)

    @property
    def is_stale(self) -> bool:
        """Whether it is worth a rebuild; see ``DueTimes``."""
        return self._times.is_stale

    def add(self, time_ns: int, sequence: int) -> None:
        """Remind of a sequence at a time."""
        self._times.add(time_ns, sequence)

    def rebuilt(self) -> None:
        """Every entry is of something that is there."""
        self._times.rebuilt()

    def next_ns(self) -> int:
        """When the next may expire, or up to a quarter of a second later; only to be asked while there
        are any.
        """
        near, times = self._near, self._times
        if not near:
            return times.next_ns()
        return min(near[-1][0], times.next_ns()) if times else near[-1][0]

    def may_be_due(self, now_ns: int) -> bool:
        """Whether something may have expired by now that was not taken out."""
        near = self._near
        return bool(near and near[-1][0] <= now_ns) or self._times.has_begun(now_ns)

    def due(self, now_ns: int, most: int) -> tuple[list[int], bool]:
        """Take out what has expired by now, at most so many; whether that is all.

        Raises StoreReadError; then nothing was taken out.
        """
        self._look_ahead(now_ns, most)
        found: list[int] = []
        near, expires_ns = self._near, self._store.expires_ns
        taken = len(near)
        while taken and near[taken - 1][0] <= now_ns and len(near) - taken < most:
            taken -= 1
            sequence = near[taken][1]
            if 0 < expires_ns(sequence) <= now_ns:
                found.append(sequence)
        del near[taken:]
        return found, not self.may_be_due(now_ns)

    def _look_ahead(self, now_ns: int, most: int) -> None:
        """Find the times of what may expire within this quarter of a second, of so many at most."""
        if not self._times.has_begun(now_ns):
            return
        expires_ns = self._store.expires_ns
        begun = self._times.begun(now_ns, most)
        try:
            for sequence in begun:
                time_ns = expires_ns(sequence)
                if time_ns > 0:
                    self._near.append((time_ns, sequence))
        except BaseException:
            for sequence in begun:
                self._times.add(now_ns, sequence)
            raise
        finally:
            self._near.sort(reverse=True)


class Expiry:
    """The age limits of one stream and their timer."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._clock = stream.context.clock
        self._time = stream.time
        self._due = Reminders(stream.store)
        self._due_ahead = Reminders(stream.store)  # of messages that age by the stream's own time
        self._ahead_seq = 0  # from this sequence on, as far as the stream is ahead
        self._immortal = 0  # how many messages outlive ``max_age``; once some do, all are looked at
        self._aged_to = 0  # below this sequence nothing is left that the age could remove
        self._young_ns = 0  # when the message there was stored
        self._rebuilding = False
        self._complete = True  # whether every message that expires by itself, or never, is known
        self._timer: Timer | None = None
        self._timer_ns = 0
        self._watches_age = False  # whether the timer was set with a message in view that ages
        self._is_removing = False
        self._age_ns = 0
        self._marker_ns = 0

    def configure(self) -> None:
        config = self._stream.config
        self._age_ns = round(config.max_age * _NS)
        self._marker_ns = round(config.subject_delete_marker_ttl * _NS)
        self._aged_to = self._young_ns = 0

    def add(self, sequence: int, expires_ns: int) -> None:
        """A message that expires by itself was stored."""
        if expires_ns == NEVER_NS:
            self._immortal += 1
        elif expires_ns != NOTED_NS:
            due = self._due_ahead if self._is_ahead(sequence) else self._due
            due.add(expires_ns, sequence)
            if due.is_stale and not self._rebuilding:
                self._stream.unread.attempt(self.rebuild)

    def _is_ahead(self, sequence: int) -> bool:
        """Whether a message ages by the stream's own time."""
        return self._time.ahead_from_ns > 0 and sequence >= self._ahead_seq

    def rebuild(self) -> None:
        """Begin anew with what the store holds: after opening it, and when it has taken back a batch.

        Raises StoreReadError; until it has worked nothing expires, as what never does is not known.
        """
        is_late = not self._complete  # what has come to be due meanwhile waits for a timer
        self._complete = False
        store, ahead_ns = self._stream.store, self._time.ahead_from_ns
        found = list(store.expiries())
        self._ahead_seq = store.sequence_at(ahead_ns + 1) if ahead_ns else 0
        self._due, self._due_ahead = Reminders(store), Reminders(store)
        self._immortal = self._aged_to = self._young_ns = 0
        self._rebuilding = True
        for sequence, expires_ns in found:
            self.add(sequence, expires_ns)
        self._rebuilding = False
        self._complete = True
        self._due.rebuilt()
        self._due_ahead.rebuilt()
        if is_late:
            self.arm()

    # -- the timer

    def arm(self) -> None:
        """Have the timer run no later than the next message expires."""
        due, ahead, age_ns = self._due, self._due_ahead, self._age_ns
        if not age_ns and not due and not ahead:
            return
        left_ns = due.next_ns() - self._clock.now_ns() if due else NEVER_NS
        if ahead:
            left_ns = min(left_ns, self._time.left_ns(NEVER_NS, ahead.next_ns()))
        steady_ns = self._clock.monotonic_ns()
        is_set = self._timer is not None and self._timer_ns <= steady_ns + max(left_ns, _GRAIN_NS)
        if is_set and (self._watches_age or not age_ns):
            return
        oldest_ns = NEVER_NS
        if age_ns and self._stream.store.messages:
            try:
                oldest_ns = self._oldest_ns()
            except StoreReadError as error:
                self._stream.unread.failed(error, self.arm)
                return
        if oldest_ns != NEVER_NS:
            left_ns = min(left_ns, self._time.left_ns(oldest_ns, oldest_ns + age_ns))
        elif left_ns == NEVER_NS:
            return
        self.cancel()
        self._watches_age = oldest_ns != NEVER_NS
        self._timer_ns = steady_ns + min(max(left_ns, _GRAIN_NS), _PATIENCE_NS)
        self._timer = self._stream.context.timers.call_at(self._timer_ns, self._on_timer)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._watches_age = False

    def _on_timer(self) -> None:
        self._timer, self._watches_age = None, False
        self._stream.expire()
        self.arm()

    def _oldest_ns(self) -> int:
        """When the oldest message was stored that may age; NEVER_NS without one."""
        store = self._stream.store
        if not self._immortal and (first_ns := store.state.first_ns):
            return first_ns
        found = store.read(max(self._aged_to, 1), None, 1, _READ_BYTES, store.last_seq)
        return found[0].timestamp_ns if found else NEVER_NS

    # -- removal

    def remove_due(self) -> bool:
        """Remove what has expired by now; of a subject's last message a marker stays, if asked for.

        A bounded number at a time: returns whether nothing is left that has expired, as far as that is
        known. Raises StoreReadError; what was due is due again then.
        """
        if self._is_removing or not self._complete:
            return True
        if not self._age_ns and not self._due and not self._due_ahead:
            return True
        self._is_removing = True
        now_ns = self._clock.now_ns()
        most = _MARKED_MAX if self._marker_ns else _SINGLE_MAX
        own_ns = self._time.of(NEVER_NS, now_ns)
        due: list[int] = []
        done = True
        try:
            if self._due:
                due, done = self._due.due(now_ns, most)
            if self._due_ahead and done:
                ahead, done = self._due_ahead.due(own_ns, most)
                due += ahead
            gone = set(due)
            if self._age_ns and done:
                if self._marker_ns or self._immortal:
                    aged, done = self._aged(now_ns)
                    gone.update(aged)
                else:
                    done = self._trim_aged(now_ns)
            if gone:
                self._remove(sorted(gone))
            return done
        except StoreReadError:
            for sequence in due:
                self._due.add(now_ns, sequence)
            self._aged_to = self._young_ns = 0
            raise
        finally:
            self._is_removing = False

    def remove_of(self, messages: Sequence[StoredRow]) -> bool:
        """Remove those of some messages that have expired; whether there were any. Raises StoreReadError."""
        if self._is_removing or not self._complete:
            return False
        if not self._age_ns and not self._due and not self._due_ahead:
            return False
        now_ns = self._clock.now_ns()
        own_ns = self._time.of(NEVER_NS, now_ns)
        gone = [each[0] for each in messages if self._is_over(each[0], each[4], now_ns, own_ns)]
        if gone:
            self._is_removing = True
            try:
                self._remove(gone)
            finally:
                self._is_removing = False
        return bool(gone)

    def _is_over(self, sequence: int, stamp_ns: int, now_ns: int, own_ns: int) -> bool:
        expires_ns = self._stream.store.expires_ns(sequence)
        if expires_ns == NEVER_NS:
            return False
        if 0 < expires_ns <= (own_ns if self._is_ahead(sequence) else now_ns):
            return True
        return self._age_ns > 0 and not self._is_young(stamp_ns, now_ns)

    def _trim_aged(self, now_ns: int) -> bool:
        """Remove from the head some of what is too old; whether that was all."""
        store = self._stream.store
        for _ in range(2):  # what goes by the clock, and what by the stream's own time
            first_ns = store.state.first_ns
            before_ns = self._time.of(first_ns, now_ns) - self._age_ns + 1
            self._stream.removing.trim_old(before_ns)
            if not store.is_within(before_ns=before_ns):
                return False
            if not self._time.ahead_from_ns:
                break
        return True

    def _aged(self, now_ns: int) -> tuple[list[int], bool]:
        """Some messages that are too old, without those that outlive it; whether those are all."""
        found: list[int] = []
        if self._young_ns and self._is_young(self._young_ns, now_ns):
            return found, True
        store = self._stream.store
        at = max(self._aged_to, store.first_seq)
        for _ in range(_READS_MARKED if self._marker_ns else _READS):
            messages = store.read(at, None, _READ, _READ_BYTES, store.last_seq)
            if not messages:
                return found, True
            for message in messages:
                if self._is_young(message.timestamp_ns, now_ns):
                    self._aged_to, self._young_ns = message.sequence, message.timestamp_ns
                    return found, True
                if store.expires_ns(message.sequence) != NEVER_NS:
                    found.append(message.sequence)
            at = self._aged_to = messages[-1].sequence + 1
        return found, False

    def _is_young(self, stamp_ns: int, now_ns: int) -> bool:
        return self._time.of(stamp_ns, now_ns) - stamp_ns < self._age_ns

    def _remove(self, sequences: list[int]) -> None:
        stream = self._stream
        marked: dict[bytes, bool] = {}
        if self._marker_ns and not stream.config.sealed:
            for sequence in sequences:
                message = stream.store.get(sequence)
                if message is not None:
                    marked[message.subject] = not is_marker(message.headers)
        stream.remove(sequences)
        headers = marker_headers(self._marker_ns)
        for subject, wanted in marked.items():
            if wanted and self._is_empty(subject):
                stream.staging.put(subject, headers, b"", self._marker_ns)

    def _is_empty(self, subject: bytes) -> bool:
        """Whether no message of a subject is left; if there is one, it need not be readable."""
        try:
            return self._stream.store.subject(subject) is None
        except StoreReadError:
            return False
