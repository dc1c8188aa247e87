"""Calling the handler for one message, and what follows when it fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from ....client.seam import place_of, send_back
from ....errors import ConnectionClosedError, HeadraceError
from ....handling.callbacks import CALLBACK_ERRORS, as_exception
from ....handling.dead_letter_headers import (
    ATTEMPTS,
    GROUP,
    SEQUENCE,
    STREAM,
    SUBJECT,
    id_of_message,
    letter_headers,
)
from ....handling.failure import Again, decide
from ....handling.lanes import is_cancelled
from ....retries import pause_s
from ...errors import HandlerFailedError, NotOwnedError
from ...events import HandlerFailed, LeaseLost
from ...message import delivered

if TYPE_CHECKING:
    from ...message import GroupMessage
    from ..ownership.intake import Intake
    from ..ownership.lease import Generation
    from ..shared import Shared

PAUSE_FIRST_S: Final = (
    0.2  # until a dead letter is tried again that could not be stored; doubling …
)
PAUSE_MAX_S: Final = 5.0  # … up to here

_log = logging.getLogger("headrace.groups")


class Handling:
    """The handler with its failure policy, within one generation.

    Args:
        intake: knows whether the lease is to be renewed before a handler begins.
        again: calls the handler once more.

    Attributes:
        stopping: set when nothing more may begin; a message that waits for its next attempt is left.
    """

    def __init__(
        self,
        shared: Shared,
        generation: Generation,
        intake: Intake,
        again: Callable[[GroupMessage], Awaitable[object]],
    ) -> None:
        self._shared = shared
        self._generation = generation
        self._intake = intake
        self._again = again
        self.stopping = asyncio.Event()

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

    async def failed(self, message: GroupMessage, error: BaseException) -> None:
        """The handler raised ``error``. Raises HandlerFailedError where the policy is to stop, and
        ConnectionClosedError where that is why it failed."""
        failures = 1
        problem = as_exception(error)
        if isinstance(problem, ConnectionClosedError) and self._shared.js.connection.is_closed:
            raise problem
        while True:
            if not message.is_owned or isinstance(problem, NotOwnedError):
                return self._tell(message, problem)  # another owner handles it now
            verdict = decide(
                self._shared.on_failure, failures, problem, self._shared.random.random()
            )
            if not isinstance(verdict, Again):
                return await self._give_up(message, verdict.subject, problem, failures)
            self._tell(message, problem)
            if message.is_answered or not await self._may_go_on_after(verdict.delay):
                return None
            try:
                await self._again(message)
            except CALLBACK_ERRORS as again:
                if is_cancelled(again):
                    raise
                problem = as_exception(again)
                failures += 1
            else:
                return None

    async def _may_go_on_after(self, delay: float) -> bool:
        """Wait, and say whether the message is still ours to handle."""
        try:
            async with asyncio.timeout(delay):
                await self.stopping.wait()
        except TimeoutError:
            if self._intake.is_overdue():  # other handlers have kept the loop, and so may this one
                await self._intake.until_renewed()
            return self._generation.is_owned and not self.stopping.is_set()
        return False

    async def _give_up(
        self, message: GroupMessage, subject: str, problem: Exception, failures: int
    ) -> None:
        where = (
            f"message {message.metadata.stream_seq} on {message.subject!r} of {self._shared.label}"
        )
        times = f"{failures} time{'s' * (failures > 1)}"
        if not subject:
            error = HandlerFailedError(
                f"the handler failed {times} for {where}: {problem!r}; the message is not acknowledged"
            )
            error.__cause__ = problem
            self._tell_of_end(message, error, problem)
            raise error
        about = [
            (GROUP, self._shared.label),
            (STREAM, message.metadata.stream),
            (SUBJECT, message.subject),
            (SEQUENCE, str(message.metadata.stream_seq)),
            (ATTEMPTS, str(failures)),
        ]
        headers = letter_headers(message, problem, about)
        await self._publish(message, subject, headers, problem)

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

    async def _publish(
        self, message: GroupMessage, subject: str, headers: dict[str, list[str]], problem: Exception
    ) -> None:
        """Store the message elsewhere, then acknowledge it; try on until that succeeds."""
        metadata = message.metadata
        # The same whichever member puts it away: what one stored and could not acknowledge comes to another.
        msg_id = id_of_message(metadata, self._shared.group)
        attempt = 0
        while True:
            try:
                await self._shared.js.publish(
                    subject, message.payload, headers=headers, msg_id=msg_id
                )
            except HeadraceError as error:
                self._shared.report(error)
            else:
                message.ack()
                self._tell(message, problem)
                return
            attempt += 1
            if not await self._may_go_on_after(pause_s(attempt, PAUSE_FIRST_S, PAUSE_MAX_S)):
                return
