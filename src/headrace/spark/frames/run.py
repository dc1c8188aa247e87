"""Runs: many messages of which only the payloads were read, and the bytes that tell the rest of each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

from ...sink_markers import may_hold_markers
from ...wire import Frame, Parser, PayloadReader

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
