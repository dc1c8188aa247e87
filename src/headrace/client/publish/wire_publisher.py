"""The windowed publisher of a connection with a socket: its commands are bytes."""

from __future__ import annotations

from collections.abc import Iterator

from ...subjects import check_subject
from ..message import HeadersLike, Payload, payload_bytes
from ..net.outbox import check_line
from .publisher import HEADS_KEPT_MAX, SEND_AT_ONCE_MAX, Publication
from .window import WindowPublisher


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

    def _head(self, subject: str) -> bytes:
        """The start of a subject's PUB line, checked once per subject."""
        self._check_open()
        known = check_subject(subject.encode())
        check_line(known, self._reply_bytes)
        head = b"PUB %b %b" % (known, self._prefix)
        if len(self._heads) < HEADS_KEPT_MAX:
            self._heads[subject] = head
        return head

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
