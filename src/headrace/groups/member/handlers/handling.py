"""What handles the messages of a generation, and what follows when the handler fails."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sized
from typing import TYPE_CHECKING, Final

from ....client.seam import place_of, send_back
from ....errors import ConnectionClosedError
from ....handling.calls import Again, Calls
from ....handling.dead_letter_headers import GROUP
from ....handling.failing import Failing
from ....handling.failure_policy import Again as CallAgain
from ....handling.failure_policy import Give
from ....handling.lanes import LaneTasks
from ...errors import HandlerFailedError, NotOwnedError
from ...events import HandlerFailed, LeaseLost
from ...message import delivered

if TYPE_CHECKING:
    from ....client import JetStreamMessage
    from ....client.jetstream.consuming.answers import Answers
    from ....handling.threads import Threads
    from ...message import GroupMessage
    from ..intake import Intake
    from ..lease import Generation
    from ..shared import Shared


_log = logging.getLogger("headrace.groups")


class Handling(Failing["GroupMessage"]):
    """The failure policy of a member's handler, within one generation.

    Args:
        intake: knows whether the lease is to be renewed before a handler begins.

    Attributes:
        stopping: set when nothing more may begin; a message that waits for its next attempt is left.
    """

    def __init__(self, shared: Shared, generation: Generation, intake: Intake) -> None:
        super().__init__(shared.on_failure, shared.random.random)
        self._shared = shared
        self._generation = generation
        self._intake = intake
        self.stopping = asyncio.Event()

    def check(self, message: GroupMessage) -> None:
        """Before a further call. Raises NotOwnedError: it was taken from us meanwhile."""
        if not self._generation.is_owned:
            raise NotOwnedError(f"{message!r} was not handled again: it has another owner")

    def ended_late(self, message: GroupMessage) -> None:
        """Its handler ended when the lease was over. Unanswered, it goes to the next owner at once."""
        now, lease = self._generation.time(), self._generation.lease
        if not message.is_answered and self._shared.settings.acks and lease.may_return(now):
            send_back([delivered(message)])
        self._shared.watch.leases_lost += 1
        self._shared.emit(
            LeaseLost(
                self._shared.label,
                message.partition,
                message.generation,
                message.subject,
                message.metadata.stream_seq,
            )
        )

    async def failed(self, message: GroupMessage, error: Exception, again: Again) -> None:
        """The handler raised ``error``. Raises HandlerFailedError where the policy is to stop, and
        ConnectionClosedError where that is why it failed."""
        if isinstance(error, ConnectionClosedError) and self._shared.js.connection.is_closed:
            raise error
        await self.follow(message, error, again, 1)

    def _takes(self, message: GroupMessage, error: Exception, verdict: object) -> bool:
        if not message.is_owned or isinstance(error, NotOwnedError):
            self._tell(message, error)  # another owner handles it now
            return False
        if isinstance(verdict, CallAgain):
            self._tell(message, error)
            return not message.is_answered
        if isinstance(verdict, Give) and verdict.subject:
            self._tell(message, error)
        return True

    async def _waits(self, message: GroupMessage, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        except TimeoutError:
            if self._intake.is_overdue():  # other handlers have kept the loop, and so may this one
                await self._intake.until_renewed()
            return self._generation.is_owned and not self.stopping.is_set()
        return False

    def _end(self, message: GroupMessage, error: Exception, failures: int) -> None:
        """Raises HandlerFailedError."""
        where = (
            f"message {message.metadata.stream_seq} on {message.subject!r} of {self._shared.label}"
        )
        times = f"{failures} time{'s' * (failures > 1)}"
        ended = HandlerFailedError(
            f"the handler failed {times} for {where}: {error!r}; the message is not acknowledged"
        )
        ended.__cause__ = error
        self._tell_of_end(message, ended, error)
        raise ended

    def _tell_of_end(
        self, message: GroupMessage, error: HandlerFailedError, problem: Exception
    ) -> None:
        """Now, and not only when somebody waits for the membership."""
        shared, about = self._shared, message.metadata
        key = self._key(message)
        shared.watch.handlers_failed += 1
        _log.error(
            "%s; key %r, delivery %d; the membership ends",
            error,
            key,
            about.delivered,
            exc_info=problem,
        )
        shared.emit(
            HandlerFailed(
                shared.label, message.subject, about.stream_seq, about.delivered, key, problem
            )
        )

    def _key(self, message: GroupMessage) -> object:
        try:
            return self._shared.key(message)
        except Exception as wrong:  # the user's own function
            self._shared.report(wrong)
            return None

    def _tell(self, message: GroupMessage, problem: Exception) -> None:
        """Report that the handler raised ``problem``, and for which message."""
        key = self._key(message)
        held = delivered(message)
        self._shared.report(
            problem,
            f"the handler of {self._shared.label} on stream {held.metadata.stream!r}, {place_of(held)}, "
            f"key {key!r}",
        )

    def _by(self, message: GroupMessage) -> tuple[str, str, str]:
        # The id is the same whichever member puts it away: what one stored and could not acknowledge comes to
        # another.
        return GROUP, self._shared.label, self._shared.group

    def _report(self, message: GroupMessage, error: Exception) -> None:
        self._shared.report(error)

    async def _store(
        self, message: GroupMessage, subject: str, headers: dict[str, list[str]], msg_id: str
    ) -> None:
        await self._shared.js.publish(subject, message.payload, headers=headers, msg_id=msg_id)


class Work(ABC):
    """What handles the messages of a generation.

    Args:
        threads: on which handlers run; None: on the loop.

    """

    def __init__(
        self,
        shared: Shared,
        intake: Intake,
        generation: Generation,
        threads: Threads | None = None,
        answers: Answers | None = None,
    ) -> None:
        self._shared = shared
        self._intake = intake
        self._generation = generation
        self._time = asyncio.get_running_loop().time
        self._handling = Handling(shared, generation, intake)
        self._calls: Calls[GroupMessage] = Calls(
            shared.handler,
            self._handling.failed,
            threads=threads,
            answers=answers,
            check=self._handling.check,
        )

    @abstractmethod
    async def run(self) -> None:
        """Until ``stop`` was called, the lease is over, or nothing more comes. Raises the error of the
        consumption, and HandlerFailedError."""

    def stop(self) -> None:
        """Begin no more handlers."""
        self._handling.stopping.set()
        if self._shared.limit is not None:
            self._shared.limit.leave(self)

    @property
    @abstractmethod
    def last(self) -> GroupMessage | None:
        """Whose handler ended last."""

    @abstractmethod
    def waiting(self) -> list[JetStreamMessage]:
        """What came and was not begun."""

    @abstractmethod
    def running(self) -> list[JetStreamMessage]:
        """What is being handled."""

    def current(self) -> GroupMessage | None:
        """One of those that are handled on the loop."""
        return None

    def tasks(self) -> list[asyncio.Task[None]]:
        """Those that call handlers, beside the one that calls ``run``."""
        return []

    async def take_place(self) -> bool:
        """Take a place, where several consumers share them, and await a renewal in it where other handlers
        have kept the loop meanwhile. False: nothing more begins."""
        limit, intake = self._shared.limit, self._intake
        if limit is None:
            return True
        if not await limit.take(self):
            return False
        try:
            if intake.is_overdue():
                await intake.until_renewed()
                if not self._generation.is_owned or self._handling.stopping.is_set():
                    limit.give()
                    return False
        except BaseException:
            limit.give()
            raise
        return True

    def give_place(self) -> None:
        """Let others have it."""
        if self._shared.limit is not None:
            self._shared.limit.give()


HELD_MAX: Final = (
    10_000  # messages that wait in the lanes; what the server has beyond that stays there
)


class KeyTasks(LaneTasks):
    """As many tasks as the membership's ``concurrency``, each of which runs a lane, and their reader.

    Args:
        held: what was read and not begun.
        add: takes what was read.
        lane: what each task does until nothing more may begin.
        stop: says that nothing more may begin; it calls ``no_more``.
    """

    def __init__(
        self,
        shared: Shared,
        intake: Intake,
        held: Sized,
        add: Callable[[list[JetStreamMessage]], None],
        lane: Callable[[], Awaitable[None]],
        stop: Callable[[], None],
    ) -> None:
        def fail() -> None:
            stop()
            intake.abandon()  # wakes who reads

        def name(number: int) -> str:
            return f"lane {number} of {shared.label}"

        super().__init__(shared.concurrency, name, lane, stop, fail)
        self._intake = intake
        self._held = held
        self._add = add
        self._room: asyncio.Future[None] | None = None  # until the lanes have room
        self._is_over = False

    async def work_off(self) -> None:
        """See ``Work.run``."""
        await self.run(self._read)
        for lane in self.tasks:
            lane.result()

    async def _read(self) -> None:
        while not self._is_over:
            if len(self._held) >= HELD_MAX:
                self._room = asyncio.get_running_loop().create_future()
                await self._room
                continue
            messages = await self._intake.next_batch()
            if not messages:
                return
            self._add(messages)

    def taken(self) -> None:
        """Messages have been begun: there may be room to read more."""
        if self._room is not None and len(self._held) < HELD_MAX // 2:
            self._make_room()

    def no_more(self) -> None:
        """Have whoever waits find out that nothing more begins."""
        self._is_over = True
        self.wake_all()
        self._make_room()

    def _make_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
