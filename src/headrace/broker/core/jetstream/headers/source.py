"""``Nats-Stream-Source``: where a copied message comes from, kept with it in the stream.

The value is ``<origin> <sequence> <filters> <destinations> <subject> <identity>``: enough to go on after
a restart at the message after it. Several filters or destinations are separated by form feeds. The
identity is that of one life of the origin: a stream deleted and made anew has another one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ..config.sources import short_hash
from .published import MARK

_BEGIN: Final = b"NATS/1.0\r\n"
_NAME: Final = b"Nats-Stream-Source: "
_FIND: Final = b"\r\nNats-Stream-Source:"
_FIELDS: Final = 5  # the identity came later than the others


class Origination(NamedTuple):
    """What a stored header says: the source it came through, and the message it was there."""

    source: str
    sequence: int
    identity: str
    subject: bytes


def identity_of(created_ns: int) -> str:
    """A short name for one life of a stream."""
    return short_hash(str(created_ns))


class SourceStamp:
    """Makes the header block of copied messages, for one source and one life of its origin."""

    __slots__ = ("_alone", "_line")

    def __init__(self, index: str, identity: str) -> None:
        name, filters, destinations = (part.encode() for part in index.split(" "))
        line = b"%b%b \0 %b %b \0 %b\r\n\r\n" % (
            _NAME,
            name,
            filters,
            destinations,
            identity.encode(),
        )
        # The two places to fill in are marked by a byte no subject has; all else is taken literally.
        before, between, after = line.replace(b"%", b"%%").split(b"\0")
        self._line = before + b"%d" + between + b"%b" + after
        self._alone = _BEGIN + self._line

    def put(self, headers: bytes, sequence: int, subject: bytes) -> bytes:
        """The header block to store with a message; ``headers`` is what it had."""
        if not headers:
            return self._alone % (sequence, subject)
        kept = without_expectations(headers, source=True) if MARK in headers else headers
        if not kept:
            return self._alone % (sequence, subject)
        return kept[:-2] + self._line % (sequence, subject)


def without_expectations(headers: bytes, *, source: bool = False) -> bytes:
    """A block without what was meant for the stream it was published to; ``b""`` if nothing is left.

    ``source`` takes away the mark of an earlier copy, too.
    """
    drop = (b"Nats-Expected-", b"Nats-Batch-", *((b"Nats-Stream-Source:",) if source else ()))
    lines = headers.split(b"\r\n")
    kept = [line for line in lines if not line.startswith(drop)]
    if len(kept) == len(lines):
        return headers
    if not any(kept[1:]) and kept[0] == b"NATS/1.0":
        return b""
    return b"\r\n".join(kept)


def read_origination(headers: bytes) -> Origination | None:
    """What a stored block says about where the message comes from; None if it was published here."""
    start = headers.find(_FIND)
    if start < 0:
        return None
    start += len(_FIND)
    line = headers[start : headers.index(b"\r\n", start)].strip(b" ")
    fields = line.decode(errors="replace").split(" ")
    if len(fields) < _FIELDS or not fields[1].isdecimal():
        return None
    name, sequence, filters, destinations = fields[:4]
    identity = fields[_FIELDS] if len(fields) > _FIELDS else ""
    subject = line.split(b" ")[_FIELDS - 1]
    return Origination(f"{name} {filters} {destinations}", int(sequence), identity, subject)
