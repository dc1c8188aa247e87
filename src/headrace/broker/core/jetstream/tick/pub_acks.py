"""What a PubAck waits for, and says: the acknowledgements of a stream's publishes until a flush is over."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import msgspec

from .....api.envelope import encode_pub_error
from ...ports import Bus
from .flush_barrier import Release, store_refusal

_DUPLICATE: Final = b',"duplicate":true'
_NO_EXTRAS: Final[Mapping[int, bytes]] = {}


class PubAcks:
    """The publish acknowledgements of one stream that wait for the next flush."""

    __slots__ = ("_begun", "_extras", "_name", "_plain", "waiting")

    def __init__(self, stream: str, domain: str = "") -> None:
        self._name = stream
        of_domain = b'"domain":%b,' % msgspec.json.encode(domain) if domain else b""
        start = b'{"stream":%b,%b"seq":' % (msgspec.json.encode(stream), of_domain)
        start = start.replace(b"%", b"%%")
        self._plain = start + b"%d}"
        self._begun = start + b"%d"
        self.waiting: list[tuple[int, bytes]] = []
        """``(sequence, reply)`` in the order of publishing."""
        self._extras: dict[int, bytes] = {}

    def add(self, sequence: int, reply: bytes, extra: bytes) -> None:
        """Confirm with more fields, as ``,"duplicate":true``, after the next flush."""
        self._extras[len(self.waiting)] = extra
        self.waiting.append((sequence, reply))

    def add_duplicate(self, sequence: int, reply: bytes) -> None:
        """Confirm once more, after the next flush, a message that was stored before."""
        self.add(sequence, reply, _DUPLICATE)

    def duplicate(self, sequence: int) -> bytes:
        """The acknowledgement of a message that was stored before and is durable."""
        return self._begun % sequence + _DUPLICATE + b"}"

    def begin_flush(self) -> Release:
        """What releases the acknowledgements gathered so far; gathering starts anew."""
        waiting, self.waiting = self.waiting, []
        if not self._extras:
            return partial(self._release, waiting, _NO_EXTRAS)
        extras, self._extras = self._extras, {}
        return partial(self._release, waiting, extras)

    def _release(
        self,
        waiting: list[tuple[int, bytes]],
        extras: Mapping[int, bytes],
        _bus: Bus,
        error: Exception | None,
    ) -> list[tuple[bytes, bytes]]:
        plain = self._plain
        if error is not None:
            refusal = encode_pub_error(self._name, store_refusal(error))
            return [(reply, refusal) for _, reply in waiting]
        if extras:
            begun = self._begun
            return [
                (reply, begun % sequence + extras.get(position, b"") + b"}")
                for position, (sequence, reply) in enumerate(waiting)
            ]
        return [(reply, plain % sequence) for sequence, reply in waiting]
