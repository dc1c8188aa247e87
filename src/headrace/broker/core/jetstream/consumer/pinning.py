"""What happens around the pin of a pinned client, in the six steps of the specification of priority groups.

Deliveries stop until the messages in flight are completed, the next client is pinned with the next message,
an advisory tells, and every waiting request with another id is ended. With the operator's ``pin_handover =
"immediate"`` the first step is left out, as nats-server does, and requests with another id are ended when it
is their turn.
"""

from __future__ import annotations

from typing import Any

from ...ports import Origin
from ..statuses import WRONG_PIN_ID
from .delivery_state import DeliveryState
from .priority_policies import PinnedClient
from .pull_queue import EndRequest, PullQueue, WaitingRequest
from .view import ConsumerView


class Handover:
    """The wait between two pinned clients: the first finishes what it has in hand.

    A message in hand was delivered and is neither acknowledged, terminated nor refused, nor out of time.
    Nobody waits longer than the consumer's ack wait (the longest of its backoff), counted from the loss
    of the pin: progress reports may prolong a message's time, but not the handover.
    """

    __slots__ = ("_in_hand", "until_ns")

    def __init__(self, state: DeliveryState, now_ns: int) -> None:
        self._in_hand = state.in_hand()
        self.until_ns = now_ns + max((state.ack_wait_ns, *state.backoff_ns))
        """When it ends at the latest; a reading of the monotonic clock."""

    def is_over(self, state: DeliveryState, now_ns: int) -> bool:
        """Whether the next client may be pinned. Each message is looked at once when it is done."""
        in_hand = self._in_hand
        if now_ns >= self.until_ns:
            in_hand.clear()
        while in_hand and not state.is_in_hand(in_hand[-1]):
            in_hand.pop()
        return not in_hand


class Pinning:
    """The pin of one consumer. Times are readings of the monotonic clock."""

    def __init__(
        self,
        consumer: ConsumerView,
        policy: PinnedClient,
        queue: PullQueue,
        end_request: EndRequest,
    ) -> None:
        self._consumer = consumer
        self._policy = policy
        self._queue = queue
        self._end_request = end_request
        self._drains = consumer.context.options.pin_handover == "drain"
        self._handover: Handover | None = None
        self._news: list[tuple[str, dict[str, Any] | None]] = []
        self._client: dict[str, Any] | None = None
        policy.on_pinned = self._pinned

    def let_go(self) -> None:
        """The consumer is closed: there is nobody to pin."""
        self._policy.on_pinned = lambda _origin: None

    @property
    def _now_ns(self) -> int:
        return self._consumer.context.clock.monotonic_ns()

    # -- requests

    def admits(self, request: WaitingRequest, now_ns: int) -> bool:
        """A pull arrived; False when its id is not that of the pin.

        During a handover no id is right. Without a pin and a handover a request with an id waits.
        """
        policy = self._policy
        if request.pin_id and request.pin_id != policy.pin_id:
            return not policy.pin_id and not self.holds(now_ns)
        policy.pulled(request, now_ns)
        return True

    def holds(self, now_ns: int) -> bool:
        """Whether deliveries wait for what the client before has in hand."""
        handover = self._handover
        if handover is not None and handover.is_over(self._consumer.state, now_ns):
            self._handover = None
        return self._handover is not None

    # -- losing the pin

    def unpin(self, reason: str) -> None:
        """Remove the pin, if a client has it, and tell why: ``admin`` or ``timeout``."""
        consumer, policy = self._consumer, self._policy
        client, self._client = self._client, None
        consumer.context.advisories.unpinned(consumer, reason, client)
        if policy.pin_id:
            policy.pin_id = ""
            self.begin_handover()
        consumer.wake()
        consumer.timer.arm()

    def begin_handover(self) -> None:
        """The client before is gone, by order, by silence or by a restart: let it finish first."""
        if self._drains:
            handover = Handover(self._consumer.state, self._now_ns)
            if not handover.is_over(self._consumer.state, self._now_ns):
                self._handover = handover

    # -- giving it

    def _pinned(self, origin: Origin | None) -> None:
        policy = self._policy
        # Owners tell their times apart by it, so a later one is never that of before, or less.
        policy.pinned_ns = max(self._consumer.context.clock.now_ns(), policy.pinned_ns + 1)
        self._client = None if origin is None else origin.describe()
        self._news.append((self._policy.pin_id, self._client))

    def after_pass(self) -> None:
        """Messages went out: tell which client was pinned with them, and end the requests of others."""
        news, self._news = self._news, []
        for pin_id, client in news:
            self._consumer.context.advisories.pinned(self._consumer, pin_id, client)
        pin_id = self._policy.pin_id
        if news and pin_id and self._drains:
            for request in list(self._queue.in_lane(0)):
                if request.pin_id != pin_id:
                    self._end_request(request, WRONG_PIN_ID)

    # -- time

    def next_time_ns(self) -> int | None:
        if self._handover is not None:
            return self._handover.until_ns
        return self._policy.deadline_ns if self._policy.pin_id else None

    def run_due(self, now_ns: int) -> None:
        """The pin's time is over, or that of a handover."""
        if self._handover is not None:
            if not self.holds(now_ns):
                self._consumer.wake()
        elif self._policy.is_late(now_ns):
            self.unpin("timeout")
