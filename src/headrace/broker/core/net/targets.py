"""Targets of an inbox other than a single subscription: a sink, or several receivers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from ....limits import OUTBOUND_BYTES_MAX
from ....message import StoredRow
from ..ports.bus import Sink, Target


class _OneByOne(ABC):
    """Sends many messages as so many single ones."""

    __slots__ = ()

    @abstractmethod
    def send(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        """See ``Target.send``."""

    def send_stored(
        self, rows: Sequence[StoredRow], reply: bytes, consumer_seq: int, pending: int
    ) -> None:
        self.send_many(answered(rows, reply, consumer_seq, pending))

    def send_many(self, messages: Iterable[tuple[bytes, bytes, bytes, bytes]]) -> None:
        for message in messages:
            self.send(*message)


class SinkTarget(_OneByOne):
    """A sink at the end of an inbox."""

    __slots__ = ("_inbox", "_sink")
    blocked = False
    room = OUTBOUND_BYTES_MAX
    steady = False  # what it does with a message may end whatever is sent here

    def __init__(self, inbox: bytes, sink: Sink) -> None:
        self._inbox = inbox
        self._sink = sink

    def send(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        # A sink knows its messages by their address; `subject` is for the eyes of clients.
        self._sink(self._inbox, reply, headers, payload, None)


class FanOut(_OneByOne):
    """Several receivers of one inbox."""

    __slots__ = ("_receivers",)

    def __init__(self, receivers: list[Target]) -> None:
        self._receivers = receivers

    @property
    def blocked(self) -> bool:
        return any(receiver.blocked for receiver in self._receivers)

    @property
    def room(self) -> int:
        return min(receiver.room for receiver in self._receivers)

    @property
    def steady(self) -> bool:
        return all(receiver.steady for receiver in self._receivers)

    def send(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        for receiver in self._receivers:
            receiver.send(subject, reply, headers, payload)


Outgoing: TypeAlias = tuple[bytes, bytes, bytes, bytes]
"""Subject, reply, headers and payload, as ``Target.send`` takes them."""


def answered(
    rows: Sequence[StoredRow], reply: bytes, consumer_seq: int, pending: int
) -> Iterator[Outgoing]:
    """Stored messages with their reply subjects, for ``send``; see ``Target.send_stored``."""
    for at, (seq, subject, headers, payload, time_ns) in enumerate(rows):
        yield subject, reply % (seq, consumer_seq + at, time_ns, pending - at), headers, payload
