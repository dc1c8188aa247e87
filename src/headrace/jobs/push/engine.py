"""Runs one lane per push consumer, as definitions are created and deleted."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec

from .. import limits
from ..models import Consumer, Options
from ..runtime import Runtime
from ..service.consumers import DEFINITIONS, consumer_of
from ..store import Tx
from .guard import Guard
from .lane import Lane
from .sender import Sender

__all__ = ["PushEngine"]

_LOG: Final = logging.getLogger("headrace.jobs.push")
_PART: Final = "push"


class PushEngine:
    """All push lanes of one process. ``run`` until cancelled; ``stop`` lets calls in progress finish."""

    def __init__(self, runtime: Runtime, sender: Sender | None = None) -> None:
        self._runtime = runtime
        options = runtime.options
        guard = Guard(options.allow_networks, https_only=options.https_only)
        self._sender = sender or Sender(guard, runtime.clock)
        self._lanes: dict[int, tuple[Lane, asyncio.Task[None]]] = {}
        self._unreadable: set[str] = set()
        self._stopping = False
        self._ear = runtime.bell.ear(DEFINITIONS)

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
        try:
            with self._ear:
                while not self._stopping:
                    await self._runtime.parts.attempt(_PART, self._reconcile)
                    await self._ear.wait(self._pause_s())
                await asyncio.gather(
                    *(task for _, task in self._lanes.values()), return_exceptions=True
                )
        finally:
            for _, task in self._lanes.values():
                task.cancel()
            await asyncio.gather(
                *(task for _, task in self._lanes.values()), return_exceptions=True
            )
            self._sender.close()

    def stop(self) -> None:
        """Begin no more calls. ``run`` returns when the results of those in progress are stored."""
        self._stopping = True
        for lane, _ in self._lanes.values():
            lane.stop()
        self._ear.wake()

    def _pause_s(self) -> float | None:
        """How long to wait for a change of definitions before they are read again."""
        is_well = self._runtime.parts.wait_s(_PART) <= 0 and not self._unreadable
        has_all = not any(task.done() for _, task in self._lanes.values())
        return None if is_well and has_all else limits.POLL_S

    def _ended(self, _: asyncio.Task[None]) -> None:
        """A lane ended: not at once, for the next might, too."""
        asyncio.get_running_loop().call_later(limits.POLL_S, self._ear.wake)

    async def _reconcile(self) -> None:
        wanted, unreadable = await self._runtime.database.read(_push_consumers)
        self._tell_unreadable(unreadable)
        for seq in [seq for seq in self._lanes if seq not in wanted]:
            self._lanes[seq][0].stop()
        for seq, (_, task) in list(self._lanes.items()):
            if task.done():
                del self._lanes[seq]
                self._tell_ended(seq, task)
        for seq, consumer in wanted.items():
            if seq in self._lanes:
                self._lanes[seq][0].refresh(consumer)
            elif not self._stopping:
                lane = Lane(self._runtime, consumer, self._sender)
                task = asyncio.create_task(lane.run(), name=f"push-{seq}")
                task.add_done_callback(self._ended)
                self._lanes[seq] = (lane, task)

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


def _push_consumers(tx: Tx) -> tuple[dict[int, Consumer], dict[str, Exception]]:
    """The push consumers, and those whose stored definition cannot be read, with the reason."""
    found: dict[int, Consumer] = {}
    unreadable: dict[str, Exception] = {}
    for row in tx.all("list_push_consumers"):
        try:
            found[row["seq"]] = consumer_of(row)
        except (msgspec.MsgspecError, ValueError) as error:
            unreadable[f"definition {row['channel_id']}/{row['consumer_id']}"] = error
    return found, unreadable
