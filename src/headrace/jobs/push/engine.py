"""Runs one lane for each push consumer that is this process's, as definitions and processes come and go.

A process has a name, which says the boot of the machine, its namespaces of processes and of time, the
number of the process, and when it began. Whoever shares all but the last two asks the system for that
number: if there is no such process, or another one has it by now, the named one has ended, with all that
it had open. Who is elsewhere, or on a system without ``/proc``, knows nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import Final

import msgspec

from .. import limits
from ..errors import JobsError
from ..models import Consumer, Options
from ..runtime.runtime import Runtime
from ..service.definitions.consumers import DEFINITIONS, consumer_of
from ..service.push import lanes
from ..store import Tx
from .breaker import Ceiling
from .guard import Guard
from .lane import Lane
from .sender import Sender

__all__ = ["PushEngine", "has_ended", "whereabouts"]


_PROC: Final = Path("/proc")
_STATE, _BEGAN = 0, 19  # in /proc/PID/stat, after the name of the program
_OVER: Final = ("Z", "X")  # nobody has asked for its end yet, but nothing of it runs


def whereabouts() -> str:
    """Mark of this process: ``PLACE:PID:BEGAN``; empty if the system does not say."""
    pid = os.getpid()
    place, found = _place(), _stat(pid)
    return f"{place}:{pid}:{found[_BEGAN]}" if place and found is not None else ""


def has_ended(where: str) -> bool:
    """Whether the process of these whereabouts has ended for certain."""
    place, _, rest = where.partition(":")
    pid, _, began = rest.partition(":")
    if not place or place != _place() or not pid.isdecimal() or not began:
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # of another user: it is there
        pass
    found = _stat(int(pid))
    return found is not None and (found[_STATE] in _OVER or found[_BEGAN] != began)


def _place() -> str:
    if not sys.platform.startswith("linux"):
        return ""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        spaces = [(_PROC / "self/ns" / name).stat().st_ino for name in ("pid", "time")]
    except OSError:
        return ""
    return "-".join([boot.replace("-", ""), *map(str, spaces)])


def _stat(pid: int) -> list[str] | None:
    """The fields after the program's name, which may have any characters; None if it cannot be read."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return fields if len(fields) > _BEGAN else None


_LOG: Final = logging.getLogger("headrace.jobs.push")
_PART: Final = "push"
_BEAT: Final = "push share"
_AT: Final = "@"


class PushEngine:
    """All push lanes of one process. ``run`` until cancelled; ``stop`` lets calls in progress finish.

    At most ``calls_max`` calls are under way at once, and ``idle_max`` connections are kept besides.
    """

    def __init__(
        self,
        runtime: Runtime,
        sender: Sender | None = None,
        *,
        calls_max: int = limits.PUSH_CALLS_MAX,
        idle_max: int = limits.PUSH_CONNECTIONS_IDLE_MAX,
    ) -> None:
        self._runtime = runtime
        self.node = f"{runtime.node}{_AT}{whereabouts()}"
        """Name of this process among those that push."""
        options = runtime.options
        guard = Guard(options.allow_networks, https_only=options.https_only)
        self._sender = sender or Sender(guard, runtime.clock, idle_max=idle_max)
        self._ceiling = Ceiling(calls_max)
        self._lanes: dict[int, tuple[Lane, asyncio.Task[None]]] = {}
        self._unreadable: set[str] = set()
        self._nodes: list[str] = []  # the processes that push
        self._held: set[int] = set()  # the consumers that no other one pushes to
        self._missing = False  # whether another one has some of ours
        self._stopping = False
        self._ear = runtime.waiters.waiter(DEFINITIONS)

    def guard(self, options: Options) -> None:
        """Call what these options allow, from the next connection on."""
        self._sender.guard = Guard(options.allow_networks, https_only=options.https_only)

    @property
    def consumers(self) -> dict[str, Consumer]:
        """The consumers of its lanes, as the lanes know them now, by ``channel/consumer``."""
        lanes = [lane.consumer for lane, _ in self._lanes.values()]
        return {f"{each.channel_id}/{each.consumer_id}": each for each in lanes}

    async def run(self) -> None:
        """Serve until cancelled or stopped."""
        beating = asyncio.create_task(self._beat_on(), name="push-beat")
        try:
            with self._ear:
                while not self._stopping:
                    await self._runtime.parts.attempt(_PART, self._reconcile)
                    await self._ear.wait(self._pause_s())
                await self._leave()
        finally:
            tasks = [beating, *(task for _, task in self._lanes.values())]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._sender.close()

    def stop(self) -> None:
        """Begin no more calls. ``run`` returns when the results of those in progress are stored."""
        self._stopping = True
        for lane, _ in self._lanes.values():
            lane.stop()
        self._ear.wake()

    def _pause_s(self) -> float | None:
        """Seconds to wait for a change of definitions before they are read again."""
        is_well = self._runtime.parts.wait_s(_PART) <= 0 and not self._unreadable
        is_well = is_well and not self._missing
        has_all = not any(task.done() for _, task in self._lanes.values())
        return None if is_well and has_all else limits.POLL_S

    def _ended(self, _: asyncio.Task[None]) -> None:
        """A lane ended: not at once, for the next might, too."""
        asyncio.get_running_loop().call_later(limits.POLL_S, self._ear.wake)

    async def _beat_on(self) -> None:
        """Say that this process is there, also while it drains: what it has must not be taken meanwhile."""
        while True:
            await asyncio.sleep(limits.PUSH_BEAT_S)
            await self._runtime.parts.attempt(_BEAT, self._beat)

    async def _beat(self) -> None:
        node, leaving = self.node, self._stopping
        beaten = await self._runtime.database.write(
            lambda tx: lanes.beat(tx, node, leaving=leaving, has_ended=_has_ended)
        )
        if not beaten.was_known:
            self._held.clear()  # it was taken for one that is gone: others may have what it had
        if beaten.nodes != self._nodes or not beaten.was_known:
            self._nodes = beaten.nodes
            self._ear.wake()

    async def _reconcile(self) -> None:
        runtime = self._runtime
        wanted, unreadable, self._nodes = await runtime.database.read(_push_consumers)
        self._tell_unreadable(unreadable)
        if self._stopping:
            return
        if self.node not in self._nodes:
            await self._beat()
        ours = {
            seq: consumer
            for seq, consumer in wanted.items()
            if lanes.owner(seq, self._nodes) == self.node
        }
        for seq in [seq for seq in self._lanes if seq not in ours]:
            self._lanes[seq][0].stop()
        for seq, (_, task) in list(self._lanes.items()):
            if task.done():
                del self._lanes[seq]
                self._tell_ended(seq, task)
        await self._share(set(ours))
        for seq, consumer in ours.items():
            if seq in self._lanes:
                lane = self._lanes[seq][0]
                lane.refresh(consumer) if seq in self._held else lane.stop()
            elif seq in self._held and not self._stopping:
                self._begin(seq, consumer)

    async def _share(self, ours: set[int]) -> None:
        """Take what is ours and free, and give back what is not ours and has no call in progress."""
        node = self.node
        free = self._held - ours - self._lanes.keys()
        if not free and ours <= self._held:
            self._missing = False
            return

        def write(tx: Tx) -> set[int]:
            lanes.give_back(tx, node, sorted(free))
            return lanes.take(tx, node, sorted(ours))

        held = await self._runtime.database.write(write)
        # What is not ours any more is held until its lane has ended.
        self._held = held | ((self._held & self._lanes.keys()) - ours)
        self._missing = not ours <= held

    def _begin(self, seq: int, consumer: Consumer) -> None:
        def check(tx: Tx) -> None:
            if not lanes.is_held(tx, self.node, seq):
                self._held.discard(seq)
                raise lanes.TakenError

        succeeds = len(self._nodes) > 1
        lane = Lane(self._runtime, consumer, self._sender, self._ceiling, check, succeeds=succeeds)
        task = asyncio.create_task(lane.run(), name=f"push-{seq}")
        task.add_done_callback(self._ended)
        self._lanes[seq] = (lane, task)

    async def _leave(self) -> None:
        """Give back each consumer as soon as no call to it is in progress.

        If the database is away, others have them when this process has been silent for a while.
        """
        node = self.node
        running = {task: seq for seq, (_, task) in self._lanes.items()}
        try:
            await self._beat()
            while running:
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                ended = sorted(running.pop(task) for task in done)
                await self._runtime.database.write(
                    lambda tx, ended=ended: lanes.give_back(tx, node, ended)  # type: ignore[misc]
                )
            await self._runtime.database.write(lambda tx: lanes.leave(tx, node))
        except JobsError as error:
            _LOG.warning("push ends without giving back its consumers: %s", error)
            await asyncio.gather(*running, return_exceptions=True)

    def _tell_ended(self, seq: int, task: asyncio.Task[None]) -> None:
        """A lane ends by itself only if it was stopped; after anything else a new one takes its place."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._runtime.metrics.add("jobs_part_failures_total", part=_PART)
            _LOG.error("the lane of consumer %d ended unexpectedly", seq, exc_info=error)

    def _tell_unreadable(self, unreadable: dict[str, Exception]) -> None:
        parts = self._runtime.parts
        for part in self._unreadable - unreadable.keys():
            parts.worked(part)
        for part, error in unreadable.items():
            if parts.wait_s(part) <= 0:
                parts.failed(part, error)
        self._unreadable = set(unreadable)


def _has_ended(node: str) -> bool:
    return has_ended(node.partition(_AT)[2])


def _push_consumers(tx: Tx) -> tuple[dict[int, Consumer], dict[str, Exception], list[str]]:
    """The push consumers, those whose stored definition cannot be read, with the reason, and who pushes."""
    found: dict[int, Consumer] = {}
    unreadable: dict[str, Exception] = {}
    for row in tx.all("list_push_consumers"):
        try:
            found[row["seq"]] = consumer_of(tx, row)
        except (msgspec.MsgspecError, ValueError, JobsError) as error:
            unreadable[f"definition {row['channel_id']}/{row['consumer_id']}"] = error
    return found, unreadable, lanes.nodes_of(tx)
