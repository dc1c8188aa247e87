"""Stored messages by direct get: raw messages in batches, without a consumer and without JSON.

Any server with a copy of the stream answers, also one that lags behind the leader. So the end of the answers
is not the end of the messages: whoever reads a range asks the leader whether there are more.
"""

from __future__ import annotations

from typing import Final

from ...errors import ConnectionClosedError, HeadraceError, NoRespondersError, ProtocolError
from ...wire import Frame
from ..frames.rows import Rows
from ..links.link import Link

_PLACE: Final = b"\r\nNats-Stream: "
_NAMES: Final = (b"Nats-Subject: ", b"Nats-Sequence: ", b"Nats-Time-Stamp: ")
_BARE: Final = len(b"NATS/1.0")  # of a block in which nothing stands before the place
_NO_RESPONDERS: Final = b"503"
_ENDS: Final = (b"204", b"404")


class DirectGets:
    """Reads one stream in batches over a link. Close it, so that late answers are dropped."""

    def __init__(self, link: Link, stream: str, timeout_s: float) -> None:
        self._link = link
        self._subject = link.api("DIRECT", "GET", stream)
        self._timeout_s = timeout_s
        self._inbox, self._sid = link.subscribe()

    def close(self) -> None:
        """Drop what still comes."""
        if not self._link.closed:
            self._link.unsubscribe(self._sid)

    def ask(self, first: int, messages: int, size: int) -> None:
        """Request up to so many messages from sequence ``first`` on, and about so many bytes of them."""
        body = b'{"seq":%d,"batch":%d,"max_bytes":%d}' % (first, messages, size)
        self._link.publish(self._subject, body, self._inbox)

    def take_all(self) -> Rows:
        """Wait for the messages of one request.

        Raises:
            ConnectionClosedError: nothing came in time, or the server ended the request.
            NoRespondersError: no server answers for the stream; it may not allow direct gets.
        """
        found: list[Frame] = []
        while True:
            frames = self._link.poll(self._timeout_s)
            if not frames:
                self._link.close()
                raise ConnectionClosedError("the server stopped in the middle of a direct get")
            found += frames
            code = _status(frames[-1])
            if code in _ENDS:
                return _rows(found[:-1])
            if code:
                raise self._refused(code, frames[-1])

    def _refused(self, code: bytes, frame: Frame) -> HeadraceError:
        if code == _NO_RESPONDERS:
            return NoRespondersError(f"nobody answers on {self._subject}")
        self._link.close()
        said = frame[4].split(b"\r\n", 1)[0][_BARE:].decode(errors="replace").strip()
        return ConnectionClosedError(f"the server answered a direct get with {said}")


def _status(frame: Frame) -> bytes:
    """The code of a status without a message; ``b""`` for a message."""
    block: bytes = frame[4]
    return block[_BARE + 1 : _BARE + 4] if block[_BARE : _BARE + 1] == b" " else b""


def _rows(frames: list[Frame]) -> Rows:
    subjects, headers, sequences, times = [], [], [], []
    for frame in frames:
        block = frame[4]
        # The server's lines are behind the publisher's, who may have written the same names.
        at = block.rfind(_PLACE)
        lines = block[at + 2 :].split(b"\r\n", 4)
        if at < 0 or len(lines) < 5 or not all(map(bytes.startswith, lines[1:4], _NAMES)):
            raise ProtocolError(f"a direct get without the message's place: {block[:200]!r}")
        subjects.append(lines[1][14:])
        sequences.append(int(lines[2][15:]))
        times.append(lines[3][17:])
        headers.append(block[: at + 2] + b"\r\n" if at > _BARE else b"")
    return Rows(subjects, [frame[5] for frame in frames], headers, sequences, times)
