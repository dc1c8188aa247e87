"""Stored messages without a consumer: by direct get in batches, or by STREAM.MSG.GET one by one."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Sequence
from operator import itemgetter
from typing import Final

import msgspec

from ...api.envelope import decode_response
from ...api.errors import Errors
from ...api.messages import GetMessageResponse
from ...errors import (
    ConnectionClosedError,
    HeadraceError,
    JetStreamApiError,
    NoRespondersError,
    ProtocolError,
)
from ...wire import Frame
from ...wire.headers import status_of
from ..frames import Rows, no_rows
from ..links.link import Link

_PLACE: Final = b"\r\nNats-Stream: "
_NAMES: Final = (b"Nats-Subject: ", b"Nats-Sequence: ", b"Nats-Time-Stamp: ")
_BARE: Final = len(b"NATS/1.0")  # of a block in which nothing stands before the place
_NO_RESPONDERS: Final = 503
_ENDS: Final = (204, 404)


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
            code = status_of(frames[-1][4])
            if code in _ENDS:
                return _rows(found[:-1])
            if code:
                raise self._refused(code, frames[-1])

    def _refused(self, code: int, frame: Frame) -> HeadraceError:
        if code == _NO_RESPONDERS:
            return NoRespondersError(f"nobody answers on {self._subject}")
        self._link.close()
        said = frame[4].split(b"\r\n", 1)[0][_BARE:].decode(errors="replace").strip()
        return ConnectionClosedError(f"the server answered a direct get with {said}")


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


_MESSAGE_NOT_FOUND: Final = Errors.NO_MESSAGE_FOUND.err_code
_SUBJECT, _PAYLOAD = itemgetter(1), itemgetter(5)  # of a MSG frame


class _Message(msgspec.Struct, gc=False):
    """``StoredMessageDocument`` with bytes, which msgspec reads from base64."""

    subject: str
    seq: int
    time: str
    hdrs: bytes = b""
    data: bytes = b""


class _Error(msgspec.Struct, gc=False):
    err_code: int = 0


class _GetAnswer(msgspec.Struct, gc=False):
    message: _Message | None = None
    error: _Error | None = None


_decode = msgspec.json.Decoder(list[_GetAnswer]).decode


class MessageGets:
    """Reads one stream over a link, some sequences at a time. Close it, so that late answers are dropped."""

    def __init__(self, link: Link, stream: str, timeout_s: float) -> None:
        self._link = link
        self._subject = link.api("STREAM", "MSG", "GET", stream)
        self._timeout_s = timeout_s
        self._below, self._sid = link.subscribe_below()
        self._asked: deque[Sequence[int]] = deque()
        self._answers: dict[bytes, bytes] = {}

    @property
    def waiting(self) -> bool:
        """Whether something was asked for that was not taken."""
        return bool(self._asked)

    def close(self) -> None:
        """Drop what still comes."""
        if not self._link.closed:
            self._link.unsubscribe(self._sid)

    def ask(self, sequences: Sequence[int]) -> None:
        """Request each of these messages."""
        start = b"PUB %b %b" % (self._subject.encode(), self._below)
        bodies = [b'{"seq":%d}' % sequence for sequence in sequences]
        self._link.send(
            b"".join(
                [
                    b"%b%d %d\r\n%b\r\n" % (start, sequence, len(body), body)
                    for sequence, body in zip(sequences, bodies, strict=True)
                ]
            )
        )
        self._asked.append(sequences)

    def take(self) -> Rows:
        """Wait for the messages of the oldest ``ask``; those that do not exist are left out.

        Raises:
            ConnectionClosedError: an answer did not come in time.
            NoRespondersError: no server answers for streams.
            JetStreamApiError: the server refused a request.
        """
        below = self._below
        names = [b"%b%d" % (below, sequence) for sequence in self._asked[0]]
        answers = self._answers
        while len(answers) < len(names) or not answers.keys() >= set(names):
            frames = self._link.poll(self._timeout_s)
            if not frames:
                self._link.close()
                raise ConnectionClosedError("the server stopped in the middle of a read")
            answers.update(zip(map(_SUBJECT, frames), map(_PAYLOAD, frames), strict=True))
        self._asked.popleft()
        found = [answers.pop(name) for name in names]
        if not all(found):
            raise NoRespondersError(f"nobody answers on {self._subject}")
        return read_answers(found)


def read_answers(answers: list[bytes]) -> Rows:
    """The messages of these answers, in order. Raises JetStreamApiError for a refusal."""
    try:
        read = _decode(b"[" + b",".join(answers) + b"]")
    except (msgspec.DecodeError, RecursionError):
        return read_answers_plainly(answers)
    messages = [answer.message for answer in read]
    if None in messages:
        for answer in read:
            error = answer.error
            if answer.message is None and (error is None or error.err_code != _MESSAGE_NOT_FOUND):
                return read_answers_plainly(answers)
    found = [message for message in messages if message is not None]
    return Rows(
        [message.subject.encode() for message in found],
        [message.data for message in found],
        [message.hdrs for message in found],
        [message.seq for message in found],
        [message.time.encode() for message in found],
    )


def read_answers_plainly(answers: list[bytes]) -> Rows:
    """Read the answers one document after the other, which says what is wrong with one."""
    rows = no_rows()
    for answer in answers:
        try:
            message = decode_response(answer, GetMessageResponse).message
        except JetStreamApiError as error:
            if error.err_code == _MESSAGE_NOT_FOUND:
                continue
            raise
        rows.subjects.append(message.subject.encode())
        rows.payloads.append(base64.b64decode(message.data))
        rows.headers.append(base64.b64decode(message.hdrs))
        rows.sequences.append(message.seq)
        rows.times.append(message.time.encode())
    return rows
