"""What a member in a process of its own measures, of either implementation. Standard library only."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field

__all__ = ["QUIET_NS", "Counter", "Order", "run"]

QUIET_NS = 200_000_000


@dataclass
class Order:
    """What a process is told on its command line."""

    url: str
    kind: str
    stream: str
    group: str
    members: list[str]
    max_ack_pending: int
    ack_wait: float = 5.0
    work: float = 0.0  # seconds that a handler sleeps
    count: int = 0  # messages after which it is over; 0: when it is told
    timed: bool = False  # payloads are the times at which they were published

    def argument(self) -> str:
        return json.dumps(asdict(self))


@dataclass
class Counter:
    """Counts what is handled, and when."""

    order: Order
    over: asyncio.Event
    handled: int = 0
    first: int = 0
    last: int = 0
    began: float = 0.0  # processor time at the first message
    latencies: list[int] = field(default_factory=list)

    def one(self, payload: bytes) -> None:
        """A message is handled."""
        now = time.monotonic_ns()
        if now - self.last > QUIET_NS:
            say("begun", now)
        if not self.first:
            self.first, self.began = now, time.process_time()
        self.last = now
        self.handled += 1
        if self.order.timed:
            self.latencies.append(now - int(payload))
        if self.handled == self.order.count:
            self.over.set()

    def result(self) -> dict[str, object]:
        return {
            "handled": self.handled,
            "first": self.first,
            "last": self.last,
            "cpu": time.process_time() - self.began,
            "latencies": self.latencies,
        }


def say(what: str, value: object = None) -> None:
    """Tell who has started this process."""
    print(json.dumps([what, value]), flush=True)


def run(work: Callable[[Order, Counter, Callable[[], None]], Awaitable[None]]) -> None:
    """Work until it is over, then say what was counted. ``work`` calls its last argument when it has
    joined."""

    async def main() -> None:
        order = Order(**json.loads(sys.argv[1]))
        counter = Counter(order, asyncio.Event())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, counter.over.set)
        await work(order, counter, lambda: say("joined"))
        say("result", counter.result())

    asyncio.run(main())
