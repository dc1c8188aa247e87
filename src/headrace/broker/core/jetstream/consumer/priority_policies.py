"""Priority policies: in which lane a pull request waits, and whether the first of a lane has a message.

Pure: they send nothing and read no clock. ``standard`` serves everybody in turn; overflow, prioritized and
pinned client follow the priority-group document.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .....api.consumers import ConsumerConfig
from ...ports import Origin
from ..statuses import WRONG_PIN_ID
from .pull_queue import Thresholds, WaitingRequest

SERVE: Final = b"serve"
"""The verdict: this request gets the message."""
SKIP: Final = b"skip"
"""The verdict: not this one now; it keeps its place. Any other verdict is a status that ends it."""
_NS: Final = 1_000_000_000


class Policy:
    """The order in which a consumer serves its requests: everybody in turn, unless it is overridden."""

    lanes = 1
    merged = False
    """Whether the lanes are served as one queue, as long as all of them are open."""
    steady = True
    """Whether a request that waits alone keeps its verdict for a whole batch."""
    pin_id = ""
    """The id that a request must have to be served without a look; "" while there is no pin."""

    @property
    def open_lanes(self) -> int:
        """How many lanes, from the first on, may be served now."""
        return self.lanes

    @property
    def takes_turns(self) -> bool:
        """Whether those in the open lanes are served in turn without a verdict on each."""
        return True

    def configure(self, config: ConsumerConfig) -> None:
        """Take an updated configuration; the kind of policy stays."""

    def lane(self, request: WaitingRequest) -> int:
        """Where a request waits; that may be another lane once it was served."""
        return 0

    def verdict(
        self, request: WaitingRequest, pending: int, ack_pending: int, now_ns: int
    ) -> bytes:
        """SERVE, SKIP, or the status that ends the request.

        ``pending`` counts the message in question, ``ack_pending`` does not.
        """
        return SERVE

    def header(self) -> bytes:
        """A header line for the message about to be delivered, or ``b""``."""
        return b""

    def rejected(self, request: WaitingRequest) -> None:
        """The message was too large for the request that was to have it."""


class Overflow(Policy):
    """Requests with thresholds wait until one is reached, and behind those without."""

    lanes = 2
    steady = False

    def lane(self, request: WaitingRequest) -> int:
        return 1 if request.terms.is_choosy else 0

    def verdict(
        self, request: WaitingRequest, pending: int, ack_pending: int, now_ns: int
    ) -> bytes:
        terms = request.terms
        met = not terms.is_choosy or Thresholds(pending, ack_pending, 0).are_met(terms, 0, 0)
        return SERVE if met else SKIP


class Prioritized(Policy):
    """The lowest ``priority`` first; within one, everybody in turn."""

    lanes = 10

    def lane(self, request: WaitingRequest) -> int:
        return request.terms.priority


class PinnedClient(Policy):
    """One client gets everything, the others stand by.

    Requests with an id wait in the first lane, those that stand by in the second. While there is a pin
    nobody looks at the second: a hundred clients that stand by cost a delivery nothing.

    The pin is given with a message, kept alive by pulls that carry it, and late after ``timeout_ns``
    without one. Clearing ``pin_id`` removes it. ``on_pinned`` is told whose request it was, and notes the
    time of the wall clock in ``pinned_ns``.
    """

    lanes = 2
    merged = True

    def __init__(self, timeout_ns: int, new_id: Callable[[], str]) -> None:
        self.timeout_ns = timeout_ns
        self._new_id = new_id
        self.pin_id = ""
        self.pinned_ns = 0
        self.deadline_ns = 0
        self._fresh: WaitingRequest | None = None
        self.on_pinned: Callable[[Origin | None], None] = lambda _origin: None

    def configure(self, config: ConsumerConfig) -> None:
        self.timeout_ns = round(config.priority_timeout * _NS)

    @property
    def open_lanes(self) -> int:
        return 1 if self.pin_id else 2

    @property
    def takes_turns(self) -> bool:
        return bool(self.pin_id)

    def lane(self, request: WaitingRequest) -> int:
        return 0 if request.pin_id else 1

    def pulled(self, request: WaitingRequest, now_ns: int) -> None:
        """A pull arrived: one that carries the pin keeps it alive."""
        if self.pin_id and request.pin_id == self.pin_id:
            self.deadline_ns = now_ns + self.timeout_ns

    def verdict(
        self, request: WaitingRequest, pending: int, ack_pending: int, now_ns: int
    ) -> bytes:
        self._fresh = None
        if self.pin_id:
            if request.pin_id == self.pin_id:
                return SERVE
            return WRONG_PIN_ID if request.pin_id else SKIP
        if request.pin_id:
            return WRONG_PIN_ID
        if not request.terms.plain:
            self.pin_id = request.pin_id = self._new_id()
            self.deadline_ns = now_ns + self.timeout_ns
            self._fresh = request
            self.on_pinned(request.origin)
        return SERVE

    def header(self) -> bytes:
        return b"Nats-Pin-Id: %b\r\n" % self.pin_id.encode()

    def rejected(self, request: WaitingRequest) -> None:
        if self._fresh is request:
            self.pin_id = ""
            self._fresh = None

    def is_late(self, now_ns: int) -> bool:
        """Whether the pinned client has not pulled in time."""
        return bool(self.pin_id) and now_ns >= self.deadline_ns


def make_policy(config: ConsumerConfig, new_id: Callable[[], str]) -> Policy:
    """The policy a consumer's configuration asks for."""
    if config.priority_policy == "overflow":
        return Overflow()
    if config.priority_policy == "prioritized":
        return Prioritized()
    if config.priority_policy == "pinned_client":
        return PinnedClient(round(config.priority_timeout * _NS), new_id)
    return Policy()
