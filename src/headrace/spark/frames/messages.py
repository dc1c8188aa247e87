"""What a reader does with delivered messages, whichever way they were parsed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ...api.acks import parse_ack_subject
from ...sink_markers import is_marker
from ...wire import Frame
from .rows import Chunk

if TYPE_CHECKING:
    import pyarrow as pa

_SUBJECT, _REPLY, _HEADERS, _PAYLOAD = (itemgetter(at) for at in (1, 3, 4, 5))  # of a MSG frame


class Messages(Protocol):
    """Messages in the order of their stream, each with an ack subject as its reply."""

    def __len__(self) -> int:
        """How many there are."""
        ...

    @property
    def payload_bytes(self) -> int:
        """The size of all payloads."""
        ...

    def reply(self, row: int) -> bytes:
        """The ack subject of one."""
        ...

    def payload_sizes(self) -> Sequence[int]:
        """The size of each payload, in bytes."""
        ...

    def part(self, begin: int, end: int) -> Messages:
        """Those from ``begin`` up to ``end``, without that."""
        ...

    def frames(self) -> list[Frame]:
        """Each as a MSG frame."""
        ...

    def payloads(self) -> list[bytes]:
        """The payloads alone."""
        ...

    def may_hold_markers(self) -> bool:
        """False: none of them is a marker of a sink."""
        ...


@dataclass(frozen=True, slots=True)
class Frames:
    """Messages that were parsed one by one."""

    each: list[Frame]

    def __len__(self) -> int:
        return len(self.each)

    @property
    def payload_bytes(self) -> int:
        return sum(map(len, map(_PAYLOAD, self.each)))

    def reply(self, row: int) -> bytes:
        reply: bytes = self.each[row][3]
        return reply

    def payload_sizes(self) -> Sequence[int]:
        return [len(frame[5]) for frame in self.each]

    def part(self, begin: int, end: int) -> Frames:
        return Frames(self.each[begin:end])

    def frames(self) -> list[Frame]:
        return self.each

    def payloads(self) -> list[bytes]:
        return list(map(_PAYLOAD, self.each))

    def may_hold_markers(self) -> bool:
        return any(frame[4] and is_marker(frame[1], frame[4]) for frame in self.each)


def sequence_of(messages: Messages, row: int) -> int:
    """The stream sequence of one of them."""
    return parse_ack_subject(messages.reply(row).decode()).stream_seq


def up_to(messages: Messages, sequence: int) -> Messages:
    """Those up to a stream sequence, of at least one."""
    count = len(messages)
    if sequence_of(messages, count - 1) <= sequence:
        return messages
    rows = range(count)
    return messages.part(
        0, bisect_right(rows, sequence, key=lambda row: sequence_of(messages, row))
    )


class PayloadChunk(NamedTuple):
    """Rows of which only the payloads are wanted; the rest of each is made when something asks for it."""

    parts: tuple[Messages, ...]

    def payloads(self) -> pa.BinaryArray:
        """All payloads, in order."""
        import pyarrow as pa

        each = chain.from_iterable([part.payloads() for part in self.parts])
        return pa.array(list(each), pa.binary())

    def may_hold_markers(self) -> bool:
        """False: none of them is a marker of a sink."""
        return any(part.may_hold_markers() for part in self.parts)

    def as_rows(self) -> Chunk:
        """The rows with all there is of each."""
        if len(self.parts) == 1:
            return chunk_of(self.parts[0].frames())
        return chunk_of(list(chain.from_iterable([part.frames() for part in self.parts])))


def chunk_of(frames: Sequence[Frame]) -> Chunk:
    """The rows of delivered messages."""
    return Chunk(
        list(map(_SUBJECT, frames)),
        list(map(_PAYLOAD, frames)),
        list(map(_HEADERS, frames)),
        list(map(_REPLY, frames)),
        [],
        [],
    )
