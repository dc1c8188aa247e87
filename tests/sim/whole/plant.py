"""A broker in a bottle that can lose its power: a hub, its store on a failing disk, and no threads.

The commit thread works when it is told to, and what it has finished is noticed when that is told, so a
seed decides what is in flight when the power goes.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from faultfs import FaultFS
from headrace.broker.core.hub import Hub
from headrace.broker.store import FileStorage
from headrace.broker.store.commit.commit import Committer
from headrace.clock import ManualClock

if TYPE_CHECKING:
    from sim.whole.link import Link

__all__ = ["Plant"]

SECOND = 1_000_000_000
SEGMENT_BYTES = 8192
_ROUNDS_MAX = 2000


class _Hand:
    """Stands where the commit thread would, and works when it is told to."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer

    def step(self) -> bool:
        """What the thread does in one round; False if there was nothing."""
        items = self._committer._next_group()
        if items:
            self._committer._run(items)
        return bool(items)

    def join(self) -> None:
        while self.step():
            pass


class HandDrivenStorage(FileStorage):
    """A storage with a commit thread that never runs by itself."""

    hand: _Hand
    __committer: Committer

    @property
    def _committer(self) -> Committer:
        return self.__committer

    @_committer.setter
    def _committer(self, committer: Committer) -> None:
        self.__committer = committer
        self.hand = _Hand(committer)
        committer._thread = self.hand  # type: ignore[assignment]


class Plant:
    """Everything that is lost with the power, and the disk, which is not."""

    def __init__(self, rng: random.Random, fs: Any = None) -> None:
        self.rng = rng
        self.fs = FaultFS() if fs is None else fs
        self.clock = ManualClock()
        self.links: dict[int, Link] = {}
        self.boots = 0
        self.ticks = 0
        self.is_up = False

    def boot(self) -> None:
        """Open what is on the disk. PowerCut may be raised, as by everything here."""
        self.boots += 1
        self.links.clear()
        self.finished = False
        self.storage = HandDrivenStorage(
            "/store",
            fs=self.fs,
            clock=self.clock,
            segment_bytes=SEGMENT_BYTES,
            cache_bytes=self.rng.choice([0, 4096, 1 << 20]),
            salts=random.Random(self.rng.getrandbits(32)),
            notify=self._notify,
        )
        self.storage._writer.syncing.thrift.whole_min = 2  # few streams have few files
        self.hub = Hub(self.clock, random.Random(self.boots))
        self.hub.start_jetstream(self.storage)
        self.is_up = True
        self.tick()

    def _notify(self) -> None:
        self.finished = True

    # What the shell does

    def tick(self) -> None:
        self.ticks += 1
        for session in self.hub.end_of_tick():
            parts: list[Any] = session.take_output()
            self.hub.wrote(session, 0)
            link = self.links.get(session.client_id)
            if link is not None:
                link.heard(parts)

    def commit(self) -> bool:
        """One round of the commit thread; False if it had nothing to do."""
        return self.storage.hand.step()

    def complete(self) -> bool:
        """Take note of what the commit thread has finished; False if it was nothing."""
        if not self.finished:
            return False
        self.finished = False
        self.storage.complete()
        self.tick()
        return True

    def settle(self) -> None:
        """Until nothing is in flight and nothing is due."""
        for _ in range(_ROUNDS_MAX):
            self.tick()
            busy = self.commit()
            busy = self.complete() or busy
            if not busy and not self._run_due():
                return
        raise AssertionError("the broker never comes to rest")

    def _run_due(self) -> bool:
        deadline_ns = self.hub.next_deadline_ns()
        if deadline_ns is None or deadline_ns > self.clock.monotonic_ns():
            return False
        return bool(self.hub.run_timers())

    def advance(self, seconds: float) -> None:
        """Let time pass; timers run at their times, the disk keeps its own pace."""
        end_ns = self.clock.monotonic_ns() + round(seconds * SECOND)
        while (deadline_ns := self.hub.next_deadline_ns()) is not None and deadline_ns <= end_ns:
            self.clock.advance(max(0, deadline_ns - self.clock.monotonic_ns()) / SECOND)
            self.hub.run_timers()
            self.tick()
            if self.rng.random() < 0.7:
                self.commit()
                self.complete()
        self.clock.advance((end_ns - self.clock.monotonic_ns()) / SECOND)

    def stop(self) -> None:
        """A clean end: what is staged goes to the disk."""
        self.hub.shutdown()
        self.tick()
        self.storage.close()
        self.tick()

    def lose_power(self) -> None:
        """The machine is off; the disk as it is found later is here."""
        self.is_up = False
        self.fs = self.fs.power_cut(self.rng)

    def die(self) -> None:
        """The process is killed; what the system had taken is there."""
        self.is_up = False
        self.fs = self.fs.kill()
