"""What follows when a callback of a consume fails: by its policy it is called again, or its message is put
elsewhere, or the consume ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from ....api.base import DocumentError
from ....api.envelope import decode_response
from ....api.messages import PubAck
from ....errors import ConfigurationError, HandlerFailedError, HeadraceError, ProtocolError
from ....handling.callbacks import CALLBACK_ERRORS, as_exception
from ....handling.dead_letter_headers import (
    ATTEMPTS,
    CONSUMER,
    SEQUENCE,
    STREAM,
    SUBJECT,
    id_of_message,
    letter_headers,
)
from ....handling.failure import Again, DeadLetter, OnFailure, Retry, Stop, decide, pause
from ....retries import pause_s
from ...message import header_block
from ..message import JetStreamMessage, place_of

if TYPE_CHECKING:
    from ....api.consumers import ConsumerConfig
    from ...net.session import Session
    from .feed import Feed

REFUSED_FIRST_S: Final = (
    0.5  # until a dead letter is tried again that could not be stored; doubling …
)
REFUSED_MAX_S: Final = 10.0  # … up to here
RENEWED_EVERY_S: Final = 10.0  # where it is not known how long the server waits
RENEWALS: Final = 3  # in that time
_MSG_ID: Final = "Nats-Msg-Id"

Report = Callable[[JetStreamMessage, Exception], None]
AgainCall = Callable[[], Awaitable[None]]


def check_policy(policy: object, callback: object, config: ConsumerConfig | None) -> None:
    """Raises ConfigurationError: the policy cannot be kept."""
    if policy is None:
        return
    if not isinstance(policy, Stop | Retry | DeadLetter):
        raise ConfigurationError(
            f"on_failure is {policy!r}; accepted: Stop(), Retry(…), DeadLetter(subject, …)"
        )
    if callback is None:
        raise ConfigurationError(
            "on_failure is for a callback; whoever iterates sees what it raises"
        )
    if config is None:
        return
    if config.ack_policy != "explicit":
        raise ConfigurationError(
            f"on_failure needs ack_policy 'explicit'; the consumer has {config.ack_policy!r}"
        )
    calls = policy.after if isinstance(policy, DeadLetter) else 0
    if isinstance(policy, Retry):
        calls = policy.attempts or 0
    if config.max_deliver > 0 and (
        config.max_deliver < calls or (isinstance(policy, Retry) and not calls)
    ):
        raise ConfigurationError(
            f"the consumer has max_deliver={config.max_deliver}, and the server delivers no message more "
            f"often, so {policy!r} cannot be kept; give it no max_deliver, or a policy that ends by then"
        )


class Failing:
    """Keeps a policy.

    Args:
        keeps_order: whether a message waits here for its next call, and its key with it; else the server
            delivers it again.
        ack_wait, max_deliver: the consumer's; 0 if unknown, or without limit.
        report: told of each failure.
    """

    def __init__(
        self,
        session: Session,
        feed: Feed,
        policy: OnFailure,
        report: Report,
        *,
        keeps_order: bool,
        ack_wait: float,
        max_deliver: int,
    ) -> None:
        self._session = session
        self._feed = feed
        self._policy = policy
        self._report = report
        self._keeps_order = keeps_order
        self._max_deliver = max_deliver
        self._renew_s = (ack_wait or RENEWED_EVERY_S) / RENEWALS
        self._refused = 0  # dead letters in a row that could not be stored
        self.retried = 0
        self.dead_letters = 0

    def pause(self, delivered: int) -> float:
        """How long a message that is sent back waits after so many deliveries."""
        if isinstance(self._policy, Stop):
            return 0.0
        return pause(self._policy, delivered, self._session.random.random())

    async def failed(self, message: JetStreamMessage, error: Exception, again: AgainCall) -> None:
        """The callback raised ``error``. Returns when the message is answered, or will be delivered again."""
        try:
            await self._failed(message, error, again)
        except asyncio.CancelledError:
            if not self._session.is_closed:
                message.nak(0)
            raise

    async def _failed(self, message: JetStreamMessage, error: Exception, again: AgainCall) -> None:
        before = message.metadata.delivered - 1
        here = 1
        while True:
            self._report(message, error)
            if message.is_answered or self._session.is_closed:
                return
            failures = before + here
            verdict = decide(self._policy, failures, error, self._session.random.random())
            if not isinstance(verdict, Again):
                if verdict.subject:
                    await self._put_away(message, verdict.subject, error, failures)
                else:
                    self._end(message, error, failures)
                return
            self.retried += 1
            if not await self._goes_on(message, verdict.delay):
                return
            here += 1
            try:
                await again()
            except CALLBACK_ERRORS as raised:
                if isinstance(raised, asyncio.CancelledError) and _is_ending():
                    raise
                error = as_exception(raised)
            else:
                return

    async def _goes_on(self, message: JetStreamMessage, delay: float) -> bool:
        """Have it delivered again after ``delay`` seconds, or wait for that time; whether to go on here."""
        is_last = 0 < self._max_deliver <= message.metadata.delivered
        if self._keeps_order or is_last:
            left = await self._wait(message, delay)
            if left <= 0:
                return True
            delay = left
        message.nak(delay)
        return False

    async def _wait(self, message: JetStreamMessage, seconds: float) -> float:
        """Keep the message for this long; returns what is left of it where the consume ended meanwhile."""
        loop, ended = self._session.loop, self._feed.ended
        until = loop.time() + seconds
        while (left := until - loop.time()) > 0:
            if ended.done():
                return left
            await asyncio.wait([ended], timeout=min(left, self._renew_s))
            if not self._session.is_closed:
                message.in_progress()
        return 0.0

    def _end(self, message: JetStreamMessage, error: Exception, failures: int) -> None:
        times = f"{failures} time{'s' * (failures > 1)}"
        ended = HandlerFailedError(
            f"the callback of consumer {self._feed.consumer} failed {times} for {place_of(message)}: "
            f"{error!r}; the message is not acknowledged"
        )
        ended.__cause__ = error
        self._feed.fail_now(ended)

    # Dead letters

    async def _put_away(
        self, message: JetStreamMessage, subject: str, error: Exception, failures: int
    ) -> None:
        """Store it at ``subject``, and then acknowledge it. Where it cannot be stored it is delivered again,
        or stays here until it can."""
        while True:
            message.in_progress()  # the answer may take a while
            try:
                await self._store(message, subject, error, failures)
            except HeadraceError as refused:
                self._refused += 1
                self._report(message, refused)
            else:
                self._refused = 0
                self.dead_letters += 1
                message.ack()
                return
            if self._session.is_closed:
                return
            delay = pause_s(self._refused, REFUSED_FIRST_S, REFUSED_MAX_S)
            if not await self._goes_on(message, delay):
                return

    async def _store(
        self, message: JetStreamMessage, subject: str, error: Exception, failures: int
    ) -> None:
        about = message.metadata
        headers = letter_headers(
            message,
            error,
            [
                (STREAM, about.stream),
                (CONSUMER, about.consumer),
                (SUBJECT, message.subject),
                (SEQUENCE, str(about.stream_seq)),
                (ATTEMPTS, str(failures)),
            ],
        )
        headers[_MSG_ID] = [id_of_message(about, about.consumer)]
        session = self._session
        answer = await session.requests.ask(
            subject, header_block(headers), message.payload, session.options.request_timeout
        )
        try:
            stored = decode_response(answer[5], PubAck)
        except DocumentError as misread:
            raise ProtocolError(
                f"the answer to the dead letter on {subject!r} is not understood: {misread}"
            ) from misread
        if not stored.stream:
            raise ProtocolError(f"who answered on {subject!r} is no stream: {answer[5][:80]!r}")


def _is_ending() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
