"""The windowed publisher of in-process connections: its commands are frames, made a piece at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import islice, repeat
from operator import itemgetter
from typing import Any, Final, TypeAlias

from ..errors import LimitExceededError
from ..limits import CONTROL_LINE_BYTES_MAX
from ..subjects import check_subject
from ..wire.direct import FRAME_BYTES, FrameBatch
from ..wire.frames import PUB
from .message import HeadersLike, payload_bytes
from .publisher import HEADS_KEPT_MAX, Publisher

__all__ = ["DirectPublisher"]

Publication: TypeAlias = tuple[str, bytes] | tuple[str, bytes, HeadersLike]

_FIELDS_BYTES: Final = 64  # what verb, subject and reply of a publish count, about
_PIECE_MAX: Final = 256  # handed over together: few enough to be still in the processor's cache
_SUBJECT: Final = itemgetter(0)
_PAYLOAD: Final = itemgetter(1)


class _Source:
    """Messages to publish, taken by the piece. An error of theirs is raised behind those before it."""

    def __init__(self, messages: Iterable[Publication]) -> None:
        self._iterator = iter(messages)
        self._held: list[Publication] = []
        self._error: Exception | None = None
        self._ended = False

    @property
    def over(self) -> bool:
        """Whether all were taken."""
        return self._ended and not self._held

    def take(self, count: int) -> list[Publication]:
        """The next ones, at most so many; none only at the end."""
        if not self._held and not self._ended and self._error is None:
            try:
                self._held.extend(islice(self._iterator, count))
            except Exception as error:
                self._error = error
            else:
                self._ended = len(self._held) < count
        if self._error is not None and not self._held:
            raise self._error
        piece, self._held = self._held[:count], self._held[count:]
        return piece

    def give_back(self, piece: list[Publication]) -> None:
        """Have the piece taken last taken again."""
        self._held = piece + self._held

    def __iter__(self) -> Iterator[Publication]:
        while piece := self.take(1):
            yield piece[0]


class DirectPublisher(Publisher):
    """A publisher whose commands are frames."""

    @staticmethod
    def _size(command: Any) -> int:
        return len(command[3]) + len(command[4]) + _FIELDS_BYTES

    def _total(self, commands: list[Any]) -> int:
        fields = sum([len(command[3]) + len(command[4]) for command in commands])
        return fields + _FIELDS_BYTES * len(commands)

    async def send_many(self, messages: Iterable[Publication]) -> int:
        before = self.sent
        source = _Source(messages)
        exhausted = False
        while not exhausted:
            if self._is_full:
                await self._wait_for_window()
            alike = self._blocks.start or not self._adds_headers
            ended = self._send_alike(source) if alike else None
            exhausted = self._send_some(iter(source)) if ended is None else ended
            await asyncio.sleep(0)  # the broker works on this piece while it is still at hand
        return self.sent - before

    def _send_alike(self, source: _Source) -> bool | None:
        """``_send_some`` for a piece without headers but ids of ours, of known subjects.

        None, and nothing, if it is not.
        """
        piece = source.take(min(self._window - len(self._unacked), _PIECE_MAX))
        count = len(piece)
        if set(map(len, piece)) != {2}:
            source.give_back(piece)
            return None
        heads = list(map(self._heads.get, map(_SUBJECT, piece)))
        payloads = list(map(_PAYLOAD, piece))
        sizes = list(map(len, payloads))
        start, end, extra = self._blocks.start, self._blocks.end, self._blocks.extra_max
        size = sum(sizes) + (_FIELDS_BYTES + extra) * count
        if (
            None in heads
            or set(map(type, payloads)) != {bytes}
            or max(sizes) > self._max_payload - extra
            or self._unacked_bytes + size > self._window_bytes
        ):
            source.give_back(piece)
            return None
        prefix, index = self._prefix, self.sent
        keys = [b"%d" % number for number in range(index, index + count)]
        blocks: Iterable[bytes] = repeat(b"")
        if start:
            blocks = [b"%b%b%b" % (start, key, end) for key in keys]
        frames: list[Any] = [
            (PUB, head, prefix + key, block, payload)
            for head, key, block, payload in zip(heads, keys, blocks, payloads, strict=False)
        ]
        if start:
            size = self._total(frames)
        self._unacked.update(zip(keys, frames, strict=True))
        self._unacked_bytes += size
        self.sent += count
        if self._session.link is not None:
            self._put(frames, size)
        return source.over

    def _send_some(self, iterator: Iterator[Publication]) -> bool:
        unacked, prefix, command = self._unacked, self._prefix, self._command
        heads = {} if self._adds_headers else self._heads
        index, size = self.sent, self._unacked_bytes
        last = index + min(self._window - len(unacked), _PIECE_MAX)
        size_max, window_bytes = self._max_payload, self._window_bytes
        out: list[Any] = []
        try:
            for message in iterator:
                subject, payload, *headers = message
                head = heads.get(subject)
                key = b"%d" % index
                if head and not headers and type(payload) is bytes and len(payload) <= size_max:
                    frame = unacked[key] = (PUB, head, prefix + key, b"", payload)
                    size += len(payload) + _FIELDS_BYTES
                else:
                    frame = unacked[key] = command(index, *message)
                    size += len(frame[3]) + len(frame[4]) + _FIELDS_BYTES
                out.append(frame)
                index += 1
                if index == last or size >= window_bytes:
                    return False
            return True
        finally:
            before, self._unacked_bytes = self._unacked_bytes, size
            self.sent = index
            if out and self._session.link is not None:
                self._put(out, size - before)

    def _put(self, commands: list[Any], size: int) -> None:
        self._session.counts.published += len(commands)
        self._session.outbox.put_once(FrameBatch(commands, size))

    def _command(
        self,
        index: int,
        subject: str,
        payload: bytes,
        headers: HeadersLike = None,
        msg_id: str = "",
    ) -> Any:
        if type(payload) is not bytes:
            payload = payload_bytes(payload)  # a copy: the caller may change what it has given
        head = self._heads.get(subject) or self._head(subject)
        block = b""
        if headers or msg_id or self._adds_headers:
            block = self._blocks.make(index, headers, msg_id)
        if len(payload) + len(block) > self._max_payload:
            self._connection._check_size(len(block) + len(payload))
        return (PUB, head, b"%b%d" % (self._prefix, index), block, payload)

    def _head(self, subject: str) -> bytes:
        """The subject, checked once; its length, too, since no parser will."""
        self._check_open()
        head = check_subject(subject.encode())
        if len(head) + len(self._prefix) + FRAME_BYTES > CONTROL_LINE_BYTES_MAX:
            raise LimitExceededError(
                f"a subject of {len(head)} bytes; with its reply subject it must fit into a line "
                f"of {CONTROL_LINE_BYTES_MAX}"
            )
        if len(self._heads) < HEADS_KEPT_MAX:
            self._heads[subject] = head
        return head

    @staticmethod
    def _subject_of(command: Any) -> str:
        subject: bytes = command[1]
        return subject.decode()
