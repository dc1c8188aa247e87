"""The pin of one consumer: taking it away, handing it over, and telling about it.

The policy decides who is pinned; this is what happens around it, in the six steps of the specification
of priority groups: deliveries stop until the messages in flight are completed, the next client is
pinned with the next message, an advisory tells, and every waiting request with another id is ended.
With the operator's ``pin_handover = "immediate"`` the first step is left out, as nats-server does, and
requests with another id are ended when their turn comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....ports import Origin
from ...headers.statuses import WRONG_PIN_ID
from .handover import Handover
from .policy import PinnedClient
from .queue import WaitingRequest

if TYPE_CHECKING:
    from ..consumer import Consumer

__all__ = ["Pinning"]


class Pinning:
    """See the module. Times are readings of the monotonic clock."""

    def __init__(self, consumer: Consumer, policy: PinnedClient) -> None:
        self._consumer = consumer
        self._policy = policy
        self._drains = consumer.context.options.pin_handover == "drain"
        self._handover: Handover | None = None
        self._news: list[tuple[str, dict[str, Any] | None]] = []
        self._client: dict[str, Any] | None = None
        policy.on_pinned = self._pinned

    @property
    def _now_ns(self) -> int:
        return self._consumer.context.clock.monotonic_ns()

    # -- requests

    def take(self, request: WaitingRequest, now_ns: int) -> bool:
        """A pull arrived; False when its id is not that of the pin.

        During a handover no id is right. Without a pin and a handover an id waits for its turn.
        """
        policy = self._policy
        if request.pin_id and request.pin_id != policy.pin_id:
            return not policy.pin_id and not self._waits(now_ns)
        policy.pulled(request, now_ns)
        return True

    def holds(self, now_ns: int) -> bool:
        """Whether deliveries wait for what the client before has in hand."""
        if not self._waits(now_ns):
            return False
        consumer = self._consumer
        consumer.acks.stalled = True  # the next ack makes the consumer look again
        if consumer.queue.has_one_shots:
            consumer.pulls.end_one_shots()
        return True

    def _waits(self, now_ns: int) -> bool:
        handover = self._handover
        if handover is not None and handover.is_over(self._consumer.state, now_ns):
            self._handover = None
        return self._handover is not None

    # -- losing the pin

    def unpin(self, reason: str) -> None:
        """Take the pin away, if somebody has it, and tell: ``admin`` or ``timeout``."""
        consumer, policy = self._consumer, self._policy
        client, self._client = self._client, None
        consumer.context.advisories.unpinned(consumer, reason, client)
        if policy.pin_id:
            policy.pin_id = ""
            self.begin_handover()
        consumer.wake()
        consumer.alarm.arm()

    def begin_handover(self) -> None:
        """The client before is gone, by order, by silence or by a restart: let it finish first."""
        if self._drains:
            handover = Handover(self._consumer.state, self._now_ns)
            if not handover.is_over(self._consumer.state, self._now_ns):
                self._handover = handover

    # -- giving it

    def _pinned(self, origin: Origin | None) -> None:
        self._client = None if origin is None else origin.describe()
        self._news.append((self._policy.pin_id, self._client))

    def after_turn(self) -> None:
        """Messages went out: tell who was pinned with them, and end the requests of others."""
        news, self._news = self._news, []
        consumer = self._consumer
        for pin_id, client in news:
            consumer.context.advisories.pinned(consumer, pin_id, client)
        pin_id = self._policy.pin_id
        if news and pin_id and self._drains:
            for request in list(consumer.queue):
                if request.pin_id not in ("", pin_id):
                    consumer.pulls.end(request, WRONG_PIN_ID, with_pending=True)

    # -- time

    def next_time_ns(self) -> int | None:
        """When ``run_due`` has something to do."""
        if self._handover is not None:
            return self._handover.until_ns
        return self._policy.deadline_ns if self._policy.pin_id else None

    def run_due(self, now_ns: int) -> None:
        """The pin's time is over, or that of a handover."""
        if self._handover is not None:
            if not self._waits(now_ns):
                self._consumer.wake()
        elif self._policy.is_late(now_ns):
            self.unpin("timeout")
