"""Several event loops on one virtual clock: each is a process, and nothing takes time unless it sleeps.

``Universe`` owns the clock and the order of all that happens. A ``Process`` is the event loop that asyncio
code in it finds. It can be frozen, as by SIGSTOP (its callbacks and timers wait), or killed (they never
run again). The clock jumps to the next timer when nobody has anything to do. There are no threads and no
sockets, and nothing depends on addresses or hashes, so a seed plays the same wherever it is played.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any
from zlib import crc32

__all__ = ["Process", "Universe"]

SECOND = 1_000_000_000
_TURNS_AT_ONCE_MAX = 20_000  # at one reading of the clock; more is a loop that spins
_BURIALS_MAX = 8

Call = Callable[..., object]


class Handle:
    """What ``call_soon`` and the timers return."""

    __slots__ = ("args", "call", "process", "when_ns")

    def __init__(self, process: Process, call: Call | None, args: Any, when_ns: int = 0) -> None:
        self.process = process
        self.call = call
        self.args = args
        self.when_ns = when_ns

    def __repr__(self) -> str:
        return f"{self.call!r}{self.args!r}"

    def cancel(self) -> None:
        self.call = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.call is None

    def when(self) -> float:
        return self.when_ns / SECOND


class Universe:
    """The clock, and whose turn it is. Also the clock that the broker is handed."""

    def __init__(self, now_ns: int = 1_000 * SECOND) -> None:
        self._now_ns = now_ns
        self._timers: list[tuple[int, int, Handle]] = []
        self._numbers = 0
        self.runnable: deque[Process] = deque()
        self.processes: list[Process] = []
        self.clock: Process | None = None
        self.failures: list[str] = []
        self.trace_hash = 0
        self.events = 0
        self.story: list[str] | None = None
        """What happened, one line each, where somebody wants to read it."""

    # The clock; see headrace.clock

    def now_ns(self) -> int:
        return 1_700_000_000 * SECOND + self._now_ns

    def monotonic_ns(self) -> int:
        return self._now_ns

    @property
    def now(self) -> float:
        """Seconds, as the loops show them."""
        return self._now_ns / SECOND

    def note(self, *what: object) -> None:
        """Something happened; the hash of all that did is the seed's."""
        line = f"{self._now_ns} {' '.join(map(str, what))}"
        self.trace_hash = crc32(line.encode(), self.trace_hash)
        self.events += 1
        if self.story is not None:
            self.story.append(f"{self.now - 1000:9.4f} {' '.join(map(str, what))}")

    # Running

    def arm(self, handle: Handle) -> None:
        self._numbers += 1
        heapq.heappush(self._timers, (handle.when_ns, self._numbers, handle))

    def run(self, until: float, done: Callable[[], bool] = lambda: False) -> bool:
        """Until that time, or until it is done; whether it is done."""
        end_ns = round(until * SECOND)
        timers, runnable = self._timers, self.runnable
        turns = 0
        try:
            while True:
                while runnable:
                    process = runnable.popleft()
                    process.turn()
                    turns += 1
                    if self.failures:
                        raise AssertionError("; ".join(self.failures))
                    assert turns < _TURNS_AT_ONCE_MAX, (
                        f"{process.name} spins: {list(process.pending)}"
                    )
                if done():
                    return True
                while timers and timers[0][2].call is None:
                    heapq.heappop(timers)
                if not timers or timers[0][0] > end_ns:
                    self._now_ns = max(self._now_ns, end_ns)
                    return done()
                if timers[0][0] > self._now_ns:
                    self._now_ns = timers[0][0]
                    turns = 0
                while timers and timers[0][0] <= self._now_ns:
                    handle = heapq.heappop(timers)[2]
                    handle.process.ready(handle)
        finally:
            events._set_running_loop(None)

    def bury(self) -> None:
        """Close what still hangs in the coroutines of all processes, so that nothing complains later."""
        for process in self.processes:
            process.kill()
            process.bury()
        events._set_running_loop(None)


_EventLoop: Any = asyncio.AbstractEventLoop  # which has more methods than are needed here


class Process(_EventLoop):  # type: ignore[misc]
    """One process: an event loop among others. See the module."""

    def __init__(self, universe: Universe, name: str) -> None:
        self.universe = universe
        self.name = name
        self.pending: deque[Handle] = deque()
        self.is_dead = False
        self.is_frozen = False
        self.is_blocked = False
        self.threads: list[Any] = []  # see ``sim.groups.threads``
        self._tasks: list[asyncio.Task[Any]] = []
        universe.processes.append(self)

    def __repr__(self) -> str:
        return f"<{self.name}>"

    # What may happen to it

    def freeze(self) -> None:
        """SIGSTOP."""
        self.is_frozen = True

    def thaw(self) -> None:
        """SIGCONT."""
        self.is_frozen = False
        self._wake()

    async def block(self, seconds: float) -> None:
        """What code on this loop does that blocks: nothing else of the loop runs, timers and what was ready
        before included, until it goes on."""
        gone_on = self.create_future()
        self.is_blocked = True
        clock = Process.clock_of(self.universe)
        clock.call_later(seconds, self._go_on, gone_on)
        await gone_on

    def _go_on(self, future: asyncio.Future[None]) -> None:
        self.is_blocked = False
        if self.is_dead or future.done():
            return
        future.set_result(None)
        self.pending.appendleft(self.pending.pop())  # it was in the midst of its step
        self._wake()

    @staticmethod
    def clock_of(universe: Universe) -> Process:
        """A process that never stands still."""
        if universe.clock is None:
            universe.clock = Process(universe, "clock")
        return universe.clock

    def kill(self) -> None:
        """SIGKILL: nothing in it ever runs again."""
        self.is_dead = True
        self.pending.clear()

    def bury(self) -> None:
        for thread in self.threads:
            thread.bury()
        events._set_running_loop(self)
        for task in self._tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                _close(task.get_coro())
        self._tasks.clear()

    def ready(self, handle: Handle) -> None:
        """It is to be run in the process's next turn."""
        if self.is_dead:
            return
        self.pending.append(handle)
        if len(self.pending) == 1:
            self._wake()

    def _wake(self) -> None:
        if self.pending and not (self.is_frozen or self.is_blocked):
            self.universe.runnable.append(self)

    def turn(self) -> None:
        """Run what is ready now."""
        if self.is_frozen or self.is_blocked:
            return
        events._set_running_loop(self)
        pending = self.pending
        for _ in range(len(pending)):
            handle = pending[0]
            call = handle.call
            if call is not None:
                try:
                    call(*handle.args)
                except Exception as error:
                    self.call_exception_handler({"message": f"in {call!r}", "exception": error})
            if self.is_dead:
                return
            pending.popleft()
            if self.is_frozen or self.is_blocked:
                return
        if pending:
            self.universe.runnable.append(self)

    # asyncio.AbstractEventLoop, as far as it is used

    def call_soon(self, callback: Call, *args: Any, context: Context | None = None) -> Any:
        handle = Handle(self, callback, args)
        if not self.is_dead:
            self.pending.append(handle)
            if len(self.pending) == 1:
                self._wake()
        return handle

    call_soon_threadsafe = call_soon
    """Of its threads one runs at a time, and only while the loop stands by."""

    def call_later(
        self, delay: float, callback: Call, *args: Any, context: Context | None = None
    ) -> Any:
        # A nanosecond at least: who computes a delay from the clock may be left with less than its unit.
        delay_ns = round(delay * SECOND) or 1
        return self._at(self.universe._now_ns + delay_ns, callback, args)

    def call_at(
        self, when: float, callback: Call, *args: Any, context: Context | None = None
    ) -> Any:
        return self._at(round(when * SECOND), callback, args)

    def _at(self, when_ns: int, callback: Call, args: Any) -> Handle:
        handle = Handle(self, callback, args, max(when_ns, self.universe._now_ns))
        if not self.is_dead:
            self.universe.arm(handle)
        return handle

    def time(self) -> float:
        return self.universe._now_ns / SECOND

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> Any:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        if len(self._tasks) > 256:
            self._tasks = [each for each in self._tasks if not each.done()]
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.is_dead:
            error = context.get("exception")
            self.universe.failures.append(f"{self.name}: {context['message']}: {error!r}")

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.is_dead

    def is_closed(self) -> bool:
        return False


def _close(coroutine: Any) -> None:
    """End a coroutine that will not be run again, whatever it wants to await on its way out."""
    for _ in range(_BURIALS_MAX):
        try:
            coroutine.close()
        except Exception:  # it awaits something else first, or its way out needs what is gone
            continue
        return
