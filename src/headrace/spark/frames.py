"""Delivered messages between a link and a batch: as frames, or many together as runs of payloads."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ..api.acks import parse_ack_subject
from ..sink_markers import is_marker, may_hold_markers
from ..wire import Frame, Parser, PayloadReader

if TYPE_CHECKING:
    import pyarrow as pa


DELETIONS: Final = (b"\nKV-Operation: DEL", b"\nKV-Operation: PURGE", b"\nNats-Marker-Reason:")


def is_deletion(headers: bytes) -> bool:
    """Whether a message with this header block deletes its key."""
    return bool(headers) and any(sign in headers for sign in DELETIONS)


class Chunk(NamedTuple):
    """Rows, column by column.

    The position of a row in the stream is either in its ack subject (``acks``, parsed in bulk later), or in
    ``sequences`` and ``times`` (RFC 3339); what is not used is empty.
    """

    subjects: list[bytes]
    payloads: list[bytes]
    headers: list[bytes]
    acks: list[bytes]
    sequences: list[int]
    times: list[bytes]


class Rows(NamedTuple):
    """Messages as the ways without a consumer bring them; ``times`` as the server writes them."""

    subjects: list[bytes]
    payloads: list[bytes]
    headers: list[bytes]
    sequences: list[int]
    times: list[bytes]

    def add(self, more: Rows) -> None:
        """Append the others."""
        self.subjects.extend(more.subjects)
        self.payloads.extend(more.payloads)
        self.headers.extend(more.headers)
        self.sequences.extend(more.sequences)
        self.times.extend(more.times)

    def as_chunk(self, hi: int) -> Chunk:
        """The rows up to ``hi``."""
        count = bisect_right(self.sequences, hi)
        return Chunk(
            self.subjects[:count],
            self.payloads[:count],
            self.headers[:count],
            [],
            self.sequences[:count],
            self.times[:count],
        )


def no_rows() -> Rows:
    """Rows to add to."""
    return Rows([], [], [], [], [])


_RUN_BYTES_MIN: Final = 4 * 1024  # for less, it is not worth beginning
_CUT_BYTES_MAX: Final = 2 * PayloadReader.MESSAGE_BYTES_MAX
_PAUSE_MAX: Final = 64  # after runs that ended early, so many reads at most are left to the parser


class _Source:
    """The bytes of a run, and what is parsed of them only when something asks for it."""

    def __init__(self, raw: bytes, last_reply: bytes, *, has_headers: bool) -> None:
        self.raw = raw
        self.last_reply = last_reply
        self._has_headers = has_headers

    @cached_property
    def may_hold_markers(self) -> bool:
        return self._has_headers and may_hold_markers(self.raw)

    @cached_property
    def frames(self) -> list[Frame]:
        return Parser.for_client().feed(self.raw)


class Run:
    """Messages in the order of their stream, of which only the payloads were read.

    Args:
        each: the payloads.
        source: of these messages and of those before and after them in the same run.
        begin: how many are before them.
        is_end: whether none are after them.
    """

    __slots__ = ("_begin", "_each", "_is_end", "_source")

    def __init__(self, each: list[bytes], source: _Source, begin: int, *, is_end: bool) -> None:
        self._each = each
        self._source = source
        self._begin = begin
        self._is_end = is_end

    @classmethod
    def of(
        cls, payloads: list[bytes], raw: bytes, last_reply: bytes, *, has_headers: bool = True
    ) -> Run:
        """A whole run, from its bytes."""
        source = _Source(raw, last_reply, has_headers=has_headers)
        return cls(payloads, source, 0, is_end=True)

    def __len__(self) -> int:
        return len(self._each)

    @property
    def payload_bytes(self) -> int:
        return sum(map(len, self._each))

    def reply(self, row: int) -> bytes:
        if self._is_end and row == len(self._each) - 1:
            return self._source.last_reply
        reply: bytes = self._source.frames[self._begin + row][3]
        return reply

    def payload_sizes(self) -> Sequence[int]:
        return list(map(len, self._each))

    def may_hold_markers(self) -> bool:
        return self._source.may_hold_markers

    def part(self, begin: int, end: int) -> Run:
        is_end = self._is_end and end == len(self._each)
        return Run(self._each[begin:end], self._source, self._begin + begin, is_end=is_end)

    def frames(self) -> list[Frame]:
        return self._source.frames[self._begin : self._begin + len(self._each)]

    def payloads(self) -> list[bytes]:
        return self._each


class RunReader:
    """Looks for runs in what is received for one subscription.

    Where less than half of much that came was a run (payloads of different sizes with carriage returns in
    them, header blocks of different sizes), the next reads are left to the parser: one at first, then twice
    as many each time.
    """

    def __init__(self, sid: bytes) -> None:
        self._payloads = PayloadReader(sid)
        self._left_out = 0
        self._pause = 1

    def read(self, buf: bytes) -> tuple[Run | None, bytes]:
        """The run at the start, and the bytes after it; None if there is none, or none is looked for."""
        if len(buf) < _RUN_BYTES_MIN:
            return None, buf
        if self._left_out:
            self._left_out -= 1
            return None, buf
        payloads, end, last_reply, has_headers = self._payloads.read(buf)
        # A message that is cut may be all there is after the run.
        if len(buf) - end <= max(end, _CUT_BYTES_MAX):
            self._pause = 1
        else:
            self._left_out = self._pause
            self._pause = min(2 * self._pause, _PAUSE_MAX)
        if not payloads:
            return None, buf
        run = Run.of(payloads, buf[:end], last_reply, has_headers=has_headers)
        return run, buf[end:]


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


class Backlog:
    """Delivered messages, in order. The same messages are always cut at the same places, however they came.

    Attributes:
        payload_bytes: the size of all payloads.
    """

    def __init__(self) -> None:
        self._parts: deque[Messages] = deque()
        self._count = 0
        self.payload_bytes = 0

    def __len__(self) -> int:
        return self._count

    def add(self, messages: Messages) -> None:
        """Append some."""
        self._parts.append(messages)
        self._count += len(messages)
        self.payload_bytes += messages.payload_bytes

    def first(self, rows_max: int, bytes_max: int) -> tuple[Messages, ...]:
        """The first ``rows_max`` messages, or as many as have ``bytes_max`` bytes, but at least one.

        They stay here until they are dropped.
        """
        found = self._up_to(min(rows_max, self._count))
        if sum(part.payload_bytes for part in found) > bytes_max:
            sizes = [size for part in found for size in part.payload_sizes()]
            found = self._up_to(sum(1 for total in accumulate(sizes) if total <= bytes_max) or 1)
        return tuple(found)

    def drop(self, first: tuple[Messages, ...]) -> None:
        """Let go of what ``first`` gave."""
        for part in first:
            whole = self._parts.popleft()
            if len(whole) > len(part):
                self._parts.appendleft(whole.part(len(part), len(whole)))
            self._count -= len(part)
            self.payload_bytes -= part.payload_bytes

    def _up_to(self, count: int) -> list[Messages]:
        found: list[Messages] = []
        for part in self._parts:
            found.append(part if len(part) <= count else part.part(0, count))
            count -= len(found[-1])
            if not count:
                break
        return found
