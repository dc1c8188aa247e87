"""A windowed publisher whose messages go in fast batches: one acknowledgement for hundreds of messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, cast

from ...errors import ConfigurationError, ConnectionClosedError
from ...subjects import check_subject
from ...wire.encode import pub
from ..message import HeadersLike, Payload, payload_bytes
from ..net.outbox import check_line
from .fast_answers import APPEND, END, with_reply
from .fast_batching import BatchingPublisher, State
from .publisher import HEADS_KEPT_MAX, NOT_OPEN, SEND_AT_ONCE_MAX, Publication

_NO_REPLY: Final = b"?"  # stands where the reply will be, in a command that has no place yet


class FastPublisher(BatchingPublisher):
    """Sends without waiting for each ack, in fast batches. Made by ``js.publisher(fast=True)``.

    Attributes are those of ``Publisher``; ``duplicates`` stays 0, since the stream does not tell.
    """

    # Beginning and end

    def _open(self) -> None:
        if self._entered:
            raise ConfigurationError("a publisher is entered once")
        self._entered = self._is_open = True
        self._enter()

    def _shut(self, reason: Exception) -> None:
        if not self._is_open:
            return
        self._is_open = False
        if self._state in (State.STARTING, State.OPEN) and self._session.link is not None:
            self._steer(END)  # so that the stream need not keep the batch
        sent = max(len(self._placed), self._maybe_stored)
        self._leave_batch()
        if self._finding is not None:
            self._finding.cancel()
        self._leave()
        self._fail_front(sent, reason)
        self._fail_front(len(self._waiting), ConnectionClosedError(f"{reason}; it was not sent"))
        self._progress()
        self._add_to_counts()

    def _check_open(self) -> None:
        if self._broken is not None:
            raise self._broken
        if not self._is_open:
            raise ConnectionClosedError(NOT_OPEN)
        self._session.check_linked()

    async def _wait_for_answers(self) -> None:
        if self._waiting or self._placed or self._state is State.OPEN:
            flusher = self._session.loop.create_future()
            self._flushers.append(flusher)
            self._pump()
            await flusher

    # Sending

    def _send_one(self, subject: str, payload: Payload, headers: HeadersLike, msg_id: str) -> int:
        head = self._heads.get(subject)
        if (
            head is None
            or headers
            or msg_id
            or self._adds_headers
            or self._state is not State.OPEN
            or type(payload) is not bytes
            or len(payload) > self._max_payload
            or self._session.link is None
        ):
            self._queue([self._command(self.sent, subject, payload, headers, msg_id)])
            return self.sent - 1
        # The usual message of a batch that goes on.
        self._place = place = self._place + 1
        data = b"%b%b%d.1.$FI %d\r\n%b\r\n" % (head, self._prefix, place, len(payload), payload)
        self._placed.append(data)
        self._session.counts.published += 1
        self._session.outbox.put_once(data)
        self._unacked_bytes += len(data)
        self.sent = number = self.sent + 1
        if not self._probe or self._unacked_bytes >= self._window_bytes:
            self._after_sending()
        return number - 1

    def _after_sending(self) -> None:
        if not self._probe:
            self._probe, self._probed_at = self._place, self._session.loop.time()
        if self._unacked_bytes >= self._window_bytes:
            self._end()  # no answer may be due for what is under way

    def _send_some(self, iterator: Iterator[Publication]) -> bool:
        if self._state is not State.OPEN or self._session.link is None:
            for message in iterator:
                self._queue([self._command(self.sent, *message)])
                return False
            return True
        command, size_max, window_bytes = self._command, self._max_payload, self._window_bytes
        heads = {} if self._adds_headers else self._heads
        size, place = self._unacked_bytes, self._place
        last = place + min(self._limit - len(self._placed), SEND_AT_ONCE_MAX)
        prefix = self._prefix
        out: list[bytes] = []
        try:
            for message in iterator:
                payload = message[1]
                # As `_send_one` makes it. A call per message costs the client 13 % more processor time.
                if (
                    len(message) == 2
                    and type(payload) is bytes
                    and (length := len(payload)) <= size_max
                    and (head := heads.get(message[0]))
                ):
                    place += 1
                    data = b"%b%b%d.1.$FI %d\r\n%b\r\n" % (head, prefix, place, length, payload)
                else:
                    given = command(self.sent + len(out), *message)
                    place += 1
                    data = with_reply(given, prefix, place, APPEND)
                out.append(data)
                size += len(data)
                if place == last or size >= window_bytes:
                    return False
            return True
        finally:
            self._placed += out
            self._place, self._unacked_bytes = place, size
            self.sent += len(out)
            if out:
                self._put(out)
                self._after_sending()

    async def _send_ready(self, commands: deque[object]) -> None:
        ready = cast("deque[bytes]", commands)  # what `_command` has made
        while ready:
            if self._is_open and self._broken is None and self._is_full:
                await self._wait_for_window()
            if not self._is_open or self._broken is not None:
                self._refuse_ready(ready)
                return
            room = self._limit - len(self._placed) if self._state is State.OPEN else 1
            count = min(max(room, 1), len(ready), SEND_AT_ONCE_MAX)
            self._queue([ready.popleft() for _ in range(count)])

    def _refuse_ready(self, commands: deque[bytes]) -> None:
        reason = self._broken or ConnectionClosedError(
            "the publisher was closed before it was sent"
        )
        while commands:
            self._waiting.append(commands.popleft())
            self._unacked_bytes += len(self._waiting[-1])
            self.sent += 1
        self._fail_front(len(self._waiting), reason)
        self._progress()

    def _queue(self, commands: list[bytes]) -> None:
        """Send commands without a place, or keep them until they may be sent."""
        self._waiting += commands
        self._unacked_bytes += sum(map(len, commands))
        self.sent += len(commands)
        self._pump()

    def _command(
        self,
        index: int,
        subject: str,
        payload: Payload,
        headers: HeadersLike = None,
        msg_id: str = "",
    ) -> bytes:
        """What publishes a message, but for its reply."""
        if type(payload) is not bytes:
            payload = payload_bytes(payload)
        head = self._heads.get(subject) or self._head(subject)
        if headers or msg_id or self._adds_headers:
            block = self._blocks.make(index, headers, msg_id)
            self._session.check_size(len(block) + len(payload))
            return pub(subject.encode(), _NO_REPLY, block, payload)
        if len(payload) > self._max_payload:
            self._session.check_size(len(payload))
        return b"%b%b %d\r\n%b\r\n" % (head, _NO_REPLY, len(payload), payload)

    def _head(self, subject: str) -> bytes:
        self._check_open()
        known = check_subject(subject.encode())
        check_line(known, self._reply_bytes)
        head = b"PUB %b " % known
        if len(self._heads) < HEADS_KEPT_MAX:
            self._heads[subject] = head
        return head
