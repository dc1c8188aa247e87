"""The windowed publisher of a connection with a socket: its commands are bytes."""

from __future__ import annotations

from ...subjects import check_subject
from ..message import HeadersLike, payload_bytes
from .publisher import HEADS_KEPT_MAX
from .window import WindowPublisher

__all__ = ["WirePublisher"]


class WirePublisher(WindowPublisher[bytes]):
    """A publisher whose commands are bytes."""

    def _command(
        self,
        index: int,
        subject: str,
        payload: bytes,
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
        head = b"PUB %b %b" % (check_subject(subject.encode()), self._prefix)
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
    def _subject_of(command: bytes) -> str:
        return command.split(b" ", 2)[1].decode()
