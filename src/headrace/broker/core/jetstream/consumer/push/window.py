"""How much may be on its way to a push consumer's client, and how fast. Pure: times and ids are handed in."""

from __future__ import annotations

from typing import Final

from ......limits import FLOW_WINDOW_BYTES_FIRST, FLOW_WINDOW_BYTES_MAX

_NS: Final = 1_000_000_000


class FlowWindow:
    """Flow control: the client is asked to say when it has come so far.

    Half-way through the window a request goes behind the messages; its answer proves that everything
    before it arrived, and doubles the window up to its limit. With the window full nothing is sent.
    """

    __slots__ = ("_asked_at", "_size", "outstanding", "request")

    def __init__(self) -> None:
        self._size = FLOW_WINDOW_BYTES_FIRST
        self._asked_at = 0
        self.outstanding = 0
        """Bytes sent that no answer has covered yet."""
        self.request = b""
        """Where the answer to the open request goes; empty when there is none."""

    @property
    def is_full(self) -> bool:
        return self.outstanding > self._size

    @property
    def should_ask(self) -> bool:
        """Whether it is time to ask, and nobody has."""
        return not self.request and self.outstanding > self._size // 2

    @property
    def slack(self) -> int:
        """So many bytes go out before it is time to ask, or the window is full; at least 1."""
        edge = self._size if self.request else self._size // 2
        return max(edge - self.outstanding, 0) + 1

    def sent(self, size: int) -> None:
        self.outstanding += size

    def ask(self, request: bytes) -> None:
        """A request goes out behind everything sent so far."""
        self.request = request
        self._asked_at = self.outstanding

    def answered(self, request: bytes) -> bool:
        """An answer came; False when it is not to the open request."""
        if not request or request != self.request:
            return False
        self._size = min(self._size * 2, FLOW_WINDOW_BYTES_MAX)
        self.outstanding -= self._asked_at
        self.request = b""
        return True

    def forget(self) -> None:
        """The client is gone: the next one begins with nothing on its way."""
        self.outstanding = 0
        self.request = b""


class RateLimit:
    """So many bits per second on average, and one burst on top.

    A message may go while the burst is not used up, and is charged afterwards: so one that is larger than
    the whole burst gets through, too.
    """

    __slots__ = ("_burst_ns", "_bytes_per_second", "due_ns")

    def __init__(self, bits_per_second: int, burst_bytes: int, now_ns: int) -> None:
        self._bytes_per_second = max(bits_per_second // 8, 1)
        self._burst_ns = burst_bytes * _NS // self._bytes_per_second
        self.due_ns = now_ns - self._burst_ns
        """From when on the next message may go."""

    def sent(self, size: int, now_ns: int) -> None:
        earliest_ns = max(self.due_ns, now_ns - self._burst_ns)
        self.due_ns = earliest_ns + size * _NS // self._bytes_per_second
