"""The wait between two pinned clients: what the one before has in hand is finished first.

Pure state. A message in hand is one that was delivered and is neither acknowledged, terminated or refused
nor out of its time. Nobody waits longer than the consumer's ack wait (the longest of its backoff),
counted from the loss of the pin: progress reports may prolong a message's time, but not the handover.
"""

from __future__ import annotations

from ..delivery_state import DeliveryState

__all__ = ["Handover"]


class Handover:
    """One handover, from the loss of a pin to the moment the next may be given."""

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
