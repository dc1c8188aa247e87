"""What follows when a callback of a consume fails: by its policy it is called again, or its message is put
elsewhere, or the consume ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from ....api.base import DocumentError
from ....api.envelope import decode_response
from ....api.messages import PubAck
from ....errors import ConfigurationError, HandlerFailedError, ProtocolError
from ....handling.dead_letter_headers import CONSUMER
from ....handling.failing import Failing
from ....handling.failure import DeadLetter, OnFailure, Retry, Stop, pause
from ...message import header_block
from ..message import JetStreamMessage, place_of

if TYPE_CHECKING:
    from ....api.consumers import ConsumerConfig
    from ...net.session import Session
    from .feed import Feed

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


class ConsumeFailing(Failing[JetStreamMessage]):
    """Keeps the policy of a consume.

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
        super().__init__(policy, session.random.random)
        self._session = session
        self._feed = feed
        self._tell = report
        self._keeps_order = keeps_order
        self._max_deliver = max_deliver
        self._renew_s = (ack_wait or RENEWED_EVERY_S) / RENEWALS

    def pause(self, delivered: int) -> float:
        """How long a message that is sent back waits after so many deliveries."""
        if isinstance(self._policy, Stop):
            return 0.0
        return pause(self._policy, delivered, self._random())

    async def failed(self, message: JetStreamMessage, error: Exception, again: AgainCall) -> None:
        """The callback raised ``error``. Returns when the message is answered, or will be delivered again."""
        try:
            await self.follow(message, error, again, message.metadata.delivered)
        except asyncio.CancelledError:
            if not self._session.is_closed:
                message.nak(0)
            raise

    def _takes(self, message: JetStreamMessage, error: Exception, verdict: object) -> bool:
        self._tell(message, error)
        return not (message.is_answered or self._session.is_closed)

    async def _waits(self, message: JetStreamMessage, seconds: float) -> bool:
        if self._session.is_closed:
            return False
        is_last = 0 < self._max_deliver <= message.metadata.delivered
        if self._keeps_order or is_last:
            left = await self._wait(message, seconds)
            if left <= 0:
                return True
            seconds = left
        message.nak(seconds)
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

    def _by(self, message: JetStreamMessage) -> tuple[str, str, str]:
        consumer = message.metadata.consumer
        return CONSUMER, consumer, consumer

    def _keep(self, message: JetStreamMessage) -> None:
        message.in_progress()

    def _report(self, message: JetStreamMessage, error: Exception) -> None:
        self._tell(message, error)

    async def _store(
        self, message: JetStreamMessage, subject: str, headers: dict[str, list[str]], msg_id: str
    ) -> None:
        block = header_block({**headers, _MSG_ID: [msg_id]})
        session = self._session
        answer = await session.requests.ask(
            subject, block, message.payload, session.options.request_timeout
        )
        try:
            stored = decode_response(answer[5], PubAck)
        except DocumentError as misread:
            raise ProtocolError(
                f"the answer to the dead letter on {subject!r} is not understood: {misread}"
            ) from misread
        if not stored.stream:
            raise ProtocolError(f"who answered on {subject!r} is no stream: {answer[5][:80]!r}")
