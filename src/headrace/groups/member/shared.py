"""What all the consumers of one membership share."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...handling.failure_policy import OnFailure
from ...handling.threads import Threads
from .config import Settings
from .lease import Generation
from .loop_watch import LoopWatch

if TYPE_CHECKING:
    from ...client import JetStream
    from ...client.events import Event
    from ..message import GroupMessage
    from .intake import Copied

Handler = Callable[["GroupMessage"], object]


class Silence:
    """Misses of heartbeats at all the consumers of a membership: a silent server is told of once.

    Args:
        within_s: misses that follow one another by no more than this many seconds are one silence.
    """

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._last = float("-inf")

    def is_news(self, now: float) -> bool:
        """A heartbeat was missed at this time: whether that is the first one of a silence."""
        since, self._last = now - self._last, now
        return since > self._within_s


class HandlerLimit:
    """So many places for handlers. Who waits for one gets it in turn.

    A member that has one consumer counts its handlers itself; one with a consumer for each partition has
    this between them.
    """

    __slots__ = ("_free", "_waiting")

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[tuple[object, asyncio.Future[bool]]] = deque()

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for a place."""
        return bool(self._waiting)

    async def take(self, taker: object) -> bool:
        """A place, as soon as there is one. False: there is none, as ``taker`` wants none any more."""
        if self._free and not self._waiting:
            self._free -= 1
            return True
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((taker, future))
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.result():
                self.give()  # it was ours already
            raise

    def give(self) -> None:
        """A place is free: the next one who waits has it."""
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_result(True)
                return
        self._free += 1

    def leave(self, taker: object) -> None:
        """Let go of what ``taker`` waits for, as it begins nothing any more."""
        for each, future in self._waiting:
            if each is taker and not future.done():
                future.set_result(False)


@dataclass(slots=True)
class Shared:
    """Handed to every consumer's shell by the membership.

    Attributes:
        js, stream: where the consumers are.
        group: its name.
        label: group and member, for texts.
        settings: how the consumers are configured.
        handler, on_failure: what is called for a message, and what follows when that fails.
        concurrency, key: how many handlers run at once, and what must not run twice.
        limit: places for handlers, where several consumers share them.
        report: takes errors that nobody waits for, and what they are about.
        failed: takes the error that ends the membership.
        began, ended: are told of every generation.
        attached: is told when it reads a consumer.
        threads: where a plain handler runs.
        watch: is told of handlers that take long.
        silence: what is known of missed heartbeats.
        emit: takes events.
        random: for pauses of random length.
        copied: of an elastic group: how far its work queue is known to have copied the stream.
    """

    js: JetStream
    stream: str
    group: str
    label: str
    settings: Settings
    handler: Handler
    on_failure: OnFailure
    concurrency: int
    key: Callable[[GroupMessage], Hashable]
    limit: HandlerLimit | None
    report: Callable[..., None]
    failed: Callable[[Exception], None]
    began: Callable[[Generation], None]
    ended: Callable[[Generation], None]
    attached: Callable[[], None]
    threads: Threads
    watch: LoopWatch
    silence: Silence
    emit: Callable[[Event], None]
    random: random.Random = field(default_factory=random.Random)
    copied: Copied | None = None
