"""One client's interest in one pattern, and the quickest way to its output."""

from __future__ import annotations

from collections.abc import Callable

from .output import Output, head_of, tail_of

__all__ = ["Subscription"]


class Subscription:
    """Made by a session, kept by the router; by itself the ``Target`` of its inbox.

    ``sid`` stands between spaces, as it is written. ``messages_max`` of -1: no end.
    """

    __slots__ = (
        "_on_exhausted",
        "client_id",
        "closed",
        "delivered",
        "messages_max",
        "output",
        "pattern",
        "queue",
        "sid",
    )

    def __init__(
        self,
        client_id: int,
        output: Output,
        pattern: bytes,
        queue: bytes,
        sid: bytes,
        on_exhausted: Callable[[Subscription], None],
    ) -> None:
        self.client_id = client_id
        self.output = output
        self.pattern = pattern
        self.queue = queue
        self.sid = b" " + sid + b" "
        self.delivered = 0
        self.messages_max = -1
        self.closed = False
        self._on_exhausted = on_exhausted

    @property
    def blocked(self) -> bool:
        return self.output.blocked

    def send(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        """Deliver one message; headers are left out for a client that cannot read them."""
        if self.closed:
            return  # ended within the batch it was resolved for
        output = self.output
        if headers and not output.has_headers:
            headers = b""
        tail, large = tail_of(reply, headers, payload)
        output.write_message(head_of(subject, headers), self.sid, tail, large)
        self.delivered = delivered = self.delivered + 1
        if delivered == self.messages_max:
            self._on_exhausted(self)

    def exhausted(self) -> None:
        """The last message it asked for has been delivered."""
        self._on_exhausted(self)
