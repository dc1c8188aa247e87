"""Sessions of clients in this process: message frames go in and out without becoming bytes.

Everything else (permissions, limits, counters, reasons to close) is the same as for a client behind a socket.
Control lines are still bytes, read by the same parser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ....wire.frames import MSG, Frame
from ....wire.inprocess import FRAME_BYTES, Chunk, FrameBatch, PublishRun
from ..deliveries import NUMBERS, Deliveries
from .publishing import ANOTHERS_REPLY
from .session import Session
from .subscription import GuardedSubscription

if TYPE_CHECKING:
    pass


class _FrameSubscription(GuardedSubscription):
    """Appends frames. It is guarded, so the router delivers to it by ``admits`` and ``send`` alone."""

    __slots__ = ()

    def send(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        if self.closed:
            return
        if self._checked:
            if not self.admits(subject):
                return
            if reply and self._answers is not None:
                self._answers.expect(reply)
        output = self.output
        if headers and not output.has_headers:
            headers = b""
        parts = output.parts
        if not parts:
            output.touched.append(output)
        parts.append((MSG, subject, self.name, reply, headers, payload))  # type: ignore[arg-type]
        size = len(subject) + len(reply) + len(headers) + len(payload) + FRAME_BYTES
        output.size = size = output.size + size
        output.payload_bytes += len(headers) + len(payload)
        if size > output.room:
            output.session.overflow()
        self.delivered = delivered = self.delivered + 1
        if delivered == self.messages_max:
            self.exhausted()

    def send_many(self, messages: Iterable[tuple[bytes, bytes, bytes, bytes]]) -> None:
        if self.closed or self._checked or self.messages_max >= 0 or not self.output.has_headers:
            super().send_many(messages)
            return
        sid = self.name
        self._put([(MSG, s, sid, r, h, p) for s, r, h, p in messages])

    def send_stored(self, deliveries: Deliveries, prefix: bytes) -> None:
        if self.closed or self._checked or self.messages_max >= 0 or not self.output.has_headers:
            super().send_stored(deliveries, prefix)
            return
        sid = self.name
        frames: list[Frame] = [
            (MSG, subject, sid, prefix + NUMBERS % (seq, at, time_ns, left), headers, payload)
            for (seq, subject, headers, payload, time_ns), at, left in deliveries.numbered()
        ]
        self._put(frames)

    @property
    def send_payloads(self) -> Callable[[Sequence[tuple[bytes, bytes]]], None] | None:
        return None if self._checked or self.messages_max >= 0 else self._send_payloads

    def _send_payloads(self, messages: Sequence[tuple[bytes, bytes]]) -> None:
        if not self.closed:
            sid = self.name
            self._put([(MSG, s, sid, b"", b"", p) for s, p in messages])

    def _put(self, frames: list[Frame]) -> None:
        """Add frames to the output."""
        output = self.output
        nbytes = sum([len(f[4]) + len(f[5]) for f in frames])
        size = nbytes + sum([len(f[1]) + len(f[3]) for f in frames])
        output.payload_bytes += nbytes
        if not output.parts:
            output.touched.append(output)
        output.parts += frames  # type: ignore[arg-type]
        output.size = size = output.size + size + FRAME_BYTES * len(frames)
        self.delivered += len(frames)
        if size > output.room:
            output.session.overflow()


class InProcessSession(Session):
    """A session that accepts frames, and whose output holds frames among the bytes."""

    __slots__ = ()
    subscription_kinds = (None, _FrameSubscription)

    def receive_chunks(self, chunks: list[Chunk]) -> None:
        """Handle what the client said; as ``receive``."""
        for chunk in chunks:
            self.receive(chunk)

    def _handle_piece(self, piece: Any) -> int:
        if isinstance(piece, PublishRun):
            self.in_bytes += sum(map(len, piece.payloads))
            frames = self._hand_over_run(piece)
            self._budget.charge(len(piece.payloads) - len(frames))
        elif isinstance(piece, FrameBatch):
            frames = piece.frames
            self.in_bytes += sum([len(frame[3]) + len(frame[4]) for frame in frames])
        else:
            return super()._handle_piece(piece)
        return self._handle_batch(frames)

    def _hand_over_run(self, run: PublishRun) -> list[Frame]:
        """Hand a run to its sink if that is the only receiver and accepts runs. Returns the frames left."""
        sink = self.router.find(run.subject).only_sink if self._relaxed else None
        hand_over = None if sink is None else self.router.run_of(sink)
        if hand_over is None or run.prefix[:1] == b"$":  # maybe a reserved reply
            return run.frames
        if self.router.answers_others and run.prefix.startswith(ANOTHERS_REPLY):
            return run.frames
        left = [*hand_over(run, self)]
        self.in_messages += len(run.payloads) - len(left)
        return left
