"""Where pull requests come to their consumer: one by one, or with the acknowledgements before them.

What a worker says all day is an acknowledgement and its next request. ``net.short_way`` cuts both out of a
chunk as it came; here it is found whose they are, before anything is done.
"""

from __future__ import annotations

from typing import Final

from ...ports import Origin, Sink
from .acks import AckDispatch
from .pulls import Pulls

_DOTS: Final = 6  # of "$JS.API.CONSUMER.MSG.NEXT.<stream>.<consumer>"


class PullPath:
    """The sink of ``$JS.API.CONSUMER.MSG.NEXT.>``, and the ``ports.ShortWay`` there."""

    def __init__(self, acks: AckDispatch) -> None:
        self._acks = acks
        self._pulls: dict[bytes, Pulls] = {}
        self.ack_sink: Sink = acks.sink
        self.request_sink: Sink = self.sink
        """Whoever stands before this one puts its own here."""

    def add(self, stream: str, consumer: str, pulls: Pulls) -> None:
        self._pulls[_subject(stream, consumer)] = pulls

    def remove(self, stream: str, consumer: str) -> None:
        self._pulls.pop(_subject(stream, consumer), None)

    def sink(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        """Take a pull request; False when there is no such consumer."""
        pulls = self._pulls.get(subject)
        if pulls is None:
            return subject.count(b".") != _DOTS
        if reply:
            pulls.receive(reply, headers, payload, origin)
        return True

    def take(self, acks: bytes, subject: bytes, inbox: bytes, body: bytes, origin: Origin) -> int:
        """See ``ports.ShortWay``."""
        pulls = self._pulls.get(subject)
        if pulls is None and subject:
            return 0
        count = 0
        if acks:
            found = self._acks.read(acks)
            if found is None:
                return 0
            who, sequences = found
            who.receive_many(sequences)
            count = len(sequences)
        if pulls is None:
            return count
        pulls.receive(inbox, b"", body, origin)
        return count + 1


def _subject(stream: str, consumer: str) -> bytes:
    return f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}".encode()
