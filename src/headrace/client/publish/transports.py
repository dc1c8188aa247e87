"""Windowed publishers by what their commands are: bytes for a socket, frames for a broker in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, repeat
from operator import itemgetter
from typing import Final

from ...wire.frames import PUB, Frame
from ...wire.inprocess import FrameBatch, PublishRun
from ..jetstream.calls import Api
from ..message import HeadersLike, Payload, payload_bytes
from .fast_publisher import FastPublisher
from .publisher import (
    SEND_AT_ONCE_MAX,
    Publication,
    Publisher,
    PublisherSettings,
)
from .window import OK_START, WindowPublisher


class WirePublisher(WindowPublisher[bytes]):
    """A publisher whose commands are bytes."""

    def _send_some(self, iterator: Iterator[Publication]) -> bool:
        # The usual message is made here, as `_command` would make it. A call per message costs the client
        # 10 to 20 % more processor time.
        unacked, command = self.unacked, self._command
        start, end, extra = self._blocks.start, self._blocks.end, self._blocks.extra
        heads = {} if self._adds_headers and not start else self._heads
        size_max, window_bytes = self._max_payload - self._blocks.extra_max, self._window_bytes
        index, size = self.sent, self._unacked_bytes
        last = index + min(self._window - self.in_flight, SEND_AT_ONCE_MAX)
        out: list[bytes] = []
        try:
            for message in iterator:
                key = b"%d" % index
                payload = message[1]
                if (
                    len(message) != 2
                    or type(payload) is not bytes
                    or (length := len(payload)) > size_max
                    or not (head := heads.get(message[0]))
                ):
                    data = command(index, *message)
                elif not start:
                    data = b"%b%b %d\r\n%b\r\n" % (head, key, length, payload)
                else:
                    block = b"%b%b%b" % (start, key, end)
                    sizes = b"%d %d" % (extra + len(key), extra + len(key) + length)
                    data = b"H%b%b %b\r\n%b%b\r\n" % (head, key, sizes, block, payload)
                unacked[key] = data
                out.append(data)
                index += 1
                size += len(data)
                if index == last or size >= window_bytes:
                    return False
            return True
        finally:
            before, self._unacked_bytes = self._unacked_bytes, size
            self.sent = index
            if out and self._flowing:
                self._put(out, size - before)

    def _command(
        self,
        index: int,
        subject: str,
        payload: Payload,
        headers: HeadersLike = None,
        msg_id: str = "",
    ) -> bytes:
        # As `_parts` does it: a call more costs `send` with headers 6 to 8 % more processor time.
        if type(payload) is not bytes:
            payload = payload_bytes(payload)
        head = self._heads.get(subject) or self._head(subject)
        block = b""
        if headers or msg_id or self._adds_headers:
            block = self._blocks.make(index, headers, msg_id)
        size = len(block) + len(payload)
        if size > self._max_payload:
            self._session.check_size(size)
        if block:
            return b"H%b%d %d %d\r\n%b%b\r\n" % (head, index, len(block), size, block, payload)
        return b"%b%d %d\r\n%b\r\n" % (head, index, size, payload)

    def _opening(self, subject: bytes) -> bytes:
        return b"PUB %b %b" % (subject, self._prefix)

    @staticmethod
    def _size(command: bytes) -> int:
        return len(command)

    def _total(self, commands: list[bytes]) -> int:
        return sum(map(len, commands))

    def _put(self, commands: list[bytes], size: int) -> None:
        self._session.counts.published += len(commands)
        self._session.outbox.put_once(b"".join(commands))

    @staticmethod
    def subject_of(command: bytes) -> str:
        return command.split(b" ", 2)[1].decode()


_FIELDS_BYTES: Final = 64  # what verb, subject and reply of a publish count, about
_PIECE_MAX: Final = 256  # handed over together: few enough to be still in the processor's cache
_SUBJECT: Final = itemgetter(0)
_PAYLOAD: Final = itemgetter(1)


class _Source:
    """Messages to publish, handed out by the piece. An error of theirs is raised behind those before it."""

    def __init__(self, messages: Iterable[Publication]) -> None:
        self._iterator = iter(messages)
        self._held: list[Publication] = []
        self._error: Exception | None = None
        self._ended = False

    @property
    def over(self) -> bool:
        """Whether all were handed out."""
        return self._ended and not self._held

    def piece(self, count: int) -> list[Publication]:
        """The next ones, at most ``count``; it is empty only at the end."""
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
        """Hand the last piece out again."""
        self._held = piece + self._held

    def __iter__(self) -> Iterator[Publication]:
        while piece := self.piece(1):
            yield piece[0]


class InProcessPublisher(WindowPublisher[Frame]):
    """A publisher whose commands are frames.

    Neighbours of one subject without headers go over as a run. The stream that can store all of it sends
    one answer. Otherwise the run is split into commands like all others, and as that is likely to
    happen again, no more runs are made.
    """

    def __init__(self, api: Api, settings: PublisherSettings) -> None:
        super().__init__(api, settings)
        self._runs: dict[bytes, PublishRun] = {}  # unanswered, by key
        self._in_runs = 0
        self._has_runs = False  # or had
        self._makes_runs = True

    @property
    def in_flight(self) -> int:
        return len(self.unacked) + self._in_runs

    @staticmethod
    def _size(command: Frame) -> int:
        return len(command[3]) + len(command[4]) + _FIELDS_BYTES

    def _total(self, commands: list[Frame]) -> int:
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
        """``_send_some`` for messages of known subjects without headers of their own.

        None if the next piece is not like that; then nothing was sent.
        """
        piece = source.piece(min(self._window - self.in_flight, _PIECE_MAX))
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
        runs = self._makes_runs and self._flowing
        if runs and not start and count > 1 and heads.count(heads[0]) == count:
            run = PublishRun(self._heads[piece[0][0]], prefix, index, payloads, size)
            self._runs[run.key] = run
            self._has_runs = True
            self._in_runs += count
            self._unacked_bytes += size
            self.sent += count
            self._session.counts.published += count
            self._session.outbox.put_once(run)
            return source.over
        keys = [b"%d" % number for number in range(index, index + count)]
        blocks: Iterable[bytes] = repeat(b"")
        if start:
            blocks = [b"%b%b%b" % (start, key, end) for key in keys]
        frames: list[Frame] = [
            (PUB, head, prefix + key, block, payload)
            for head, key, block, payload in zip(heads, keys, blocks, payloads, strict=False)
        ]
        if start:
            size = self._total(frames)
        self.unacked.update(zip(keys, frames, strict=True))
        self._unacked_bytes += size
        self.sent += count
        if self._flowing:
            self._put(frames, size)
        return source.over

    def _send_some(self, iterator: Iterator[Publication]) -> bool:
        unacked, make, size_of = self.unacked, self._command, self._size
        window_bytes = self._window_bytes
        index, size = self.sent, self._unacked_bytes
        last = index + min(self._window - self.in_flight, _PIECE_MAX)
        out: list[Frame] = []
        try:
            for message in iterator:
                command = make(index, *message)
                unacked[b"%d" % index] = command
                out.append(command)
                index += 1
                size += size_of(command)
                if index == last or size >= window_bytes:
                    return False
            return True
        finally:
            before, self._unacked_bytes = self._unacked_bytes, size
            self.sent = index
            if out and self._flowing:
                self._put(out, size - before)

    # Runs

    def _receive(self, frames: list[Frame]) -> None:
        if self._has_runs:
            frames = [single for frame in frames for single in self._singles(frame)]
        super()._receive(frames)

    def _singles(self, frame: Frame) -> Sequence[Frame]:
        """The answers to single messages in this one: none, if it acknowledges a run."""
        start = len(self._prefix)
        key = frame[1][start:]
        if key.isdigit():
            if key not in self.unacked and self._runs:
                split = [run for run in self._runs.values() if int(key) in run]
                self._split(split)
                self._makes_runs = self._makes_runs and not split
            return (frame,)
        run = self._runs.get(key)
        if run is None:
            first, _, count = key.partition(b"-")
            if not (first.isdigit() and count.isdigit() and int(count) <= _PIECE_MAX):
                return ()
            numbers = range(int(first), int(first) + int(count))  # was split meanwhile
        elif frame[5].startswith(OK_START):
            del self._runs[key]
            self._in_runs -= len(run.payloads)
            self._unacked_bytes -= len(run)
            self.acked += len(run.payloads)
            self._last_ack = frame[5]
            return ()
        else:
            self._split([run])
            numbers = range(run.first, run.first + len(run.payloads))
        return [(frame[0], b"%b%d" % (self._prefix, n), *frame[2:]) for n in numbers]

    def _split(self, runs: list[PublishRun]) -> None:
        """From here on, the messages are commands of their own."""
        for run in runs:
            del self._runs[run.key]
            self._in_runs -= len(run.payloads)
            keys = [b"%d" % number for number in range(run.first, run.first + len(run.payloads))]
            self.unacked.update(zip(keys, run.frames, strict=True))
        if runs:  # they are in the order sent
            self.unacked = dict(sorted(self.unacked.items(), key=lambda item: int(item[0])))

    def hold(self) -> None:
        super().hold()
        self._split(list(self._runs.values()))

    def _tick(self) -> None:
        overdue = [run for run in self._runs.values() if run.first < self._sent_at_tick]
        self._split(overdue)
        super()._tick()

    def _fail_all(self, error: Exception) -> None:
        self._split(list(self._runs.values()))
        super()._fail_all(error)

    def connection_lost(self) -> None:
        self._split(list(self._runs.values()))
        super().connection_lost()

    # Commands

    def _put(self, commands: list[Frame], size: int) -> None:
        self._session.counts.published += len(commands)
        self._session.outbox.put_once(FrameBatch(commands, size))

    def _command(
        self,
        index: int,
        subject: str,
        payload: Payload,
        headers: HeadersLike = None,
        msg_id: str = "",
    ) -> Frame:
        head, block, payload = self._parts(index, subject, payload, headers, msg_id)
        return (PUB, head, b"%b%d" % (self._prefix, index), block, payload)

    def _opening(self, subject: bytes) -> bytes:
        return subject

    @staticmethod
    def subject_of(command: Frame) -> str:
        subject: bytes = command[1]
        return subject.decode()


def make_publisher(api: Api, settings: PublisherSettings, *, fast: bool) -> Publisher:
    """A publisher in fast batches, or one whose messages are answered one by one."""
    return FastPublisher(api, settings) if fast else make_window_publisher(api, settings)


def make_window_publisher(
    api: Api, settings: PublisherSettings
) -> WirePublisher | InProcessPublisher:
    """A publisher whose messages are answered one by one."""
    frames = api.session.outbox.carries_frames
    return InProcessPublisher(api, settings) if frames else WirePublisher(api, settings)
