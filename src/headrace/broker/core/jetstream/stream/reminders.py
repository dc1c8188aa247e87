"""When single messages expire: exactly for those that come next, roughly for all others.

``DueTimes`` takes eight bytes a message, and knows a quarter of a second. What may expire within the one that
has begun is taken out of it, with the time that the store knows.
"""

from __future__ import annotations

from ...ports.storage import StreamStore
from ..schedule.due_times import DueTimes


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
