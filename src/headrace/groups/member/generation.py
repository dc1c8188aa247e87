"""One time of ownership: from the pin to its loss."""

from __future__ import annotations

from collections.abc import Callable

from .lease import Lease


class Generation:
    """A consumer's pin, as long as it is ours.

    Attributes:
        number: grows with every change of owner: the server's time at which it gave the pin, in
            nanoseconds.
        partitions: those of the consumer.
        lease: until when it is surely ours.
    """

    __slots__ = ("_time", "lease", "number", "partitions")

    def __init__(
        self, number: int, partitions: tuple[int, ...], lease: Lease, time: Callable[[], float]
    ) -> None:
        self.number = number
        self.partitions = partitions
        self.lease = lease
        self._time = time

    @property
    def is_owned(self) -> bool:
        """Whether it is surely ours, now."""
        return self.lease.holds(self._time())
