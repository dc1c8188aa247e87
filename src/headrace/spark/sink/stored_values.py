"""What a stream has stored last on each of many subjects: one request for all of them, where it may be.

A batched direct get answers with the messages that there are, in any order, and an end. A server before 2.11,
or a user who may not ask so, is asked for each subject by itself.
"""

from __future__ import annotations

import base64
from typing import Final

import msgspec

from ...api import base
from ...api.envelope import decode_response
from ...api.messages import DirectGetRequest, GetMessageRequest, GetMessageResponse
from ...errors import AuthorizationError, JetStreamApiError, NoRespondersError, RequestTimeoutError
from ..links.link import Link, Reply
from .marker_store import MESSAGE_NOT_FOUND

SUBJECTS_MAX: Final = 1_000
"""Of one request; a server takes 1,024."""
_SEQUENCE: Final = b"\r\nNats-Sequence: "
_SUBJECT: Final = b"\r\nNats-Subject: "
_ABSENT: Final = b"NATS/1.0 404"
_END: Final = b"NATS/1.0 204"
_NOBODY: Final = b"NATS/1.0 503"
_STATUS: Final = b"NATS/1.0 "
_ALL: Final = b"Nats-Num-Pending: 0\r\n"


class Stored(msgspec.Struct, frozen=True, gc=False):
    """What is stored on a subject: its sequence, 0 for nothing, and its header block."""

    sequence: int
    headers: bytes


NOTHING: Final = Stored(0, b"")


class RefusedError(Exception):
    """The server does not answer for many subjects at once; it is no failure."""


class Asked:
    """A request that is under way; ``take`` its answer before another one is made on the link.

    Raises, from all methods: as ``Link``.
    """

    def __init__(self, link: Link, stream: str, subjects: list[bytes]) -> None:
        self._link = link
        self._subjects = subjects
        names = tuple(subject.decode() for subject in subjects)
        body = base.encode(DirectGetRequest(multi_last=names, batch=len(names)))
        inbox, self._sid = link.subscribe()
        link.publish(link.api("DIRECT", "GET", stream), body, inbox)

    def take(self, quiet_s: float) -> list[Stored]:
        """What is stored on each of the subjects.

        Raises:
            RefusedError: the server does not answer so, or not all of it.
            RequestTimeoutError: nothing came for so long.
        """
        try:
            return self._take(quiet_s)
        finally:
            if not self._link.closed:
                self._link.unsubscribe(self._sid)

    def _take(self, quiet_s: float) -> list[Stored]:
        found: dict[bytes, Stored] = {}
        while True:
            frames = self._link.poll(quiet_s)
            if not frames:
                raise RequestTimeoutError(f"no direct answer within {quiet_s:g} s")
            for _, _, sid, _, headers, _ in frames:
                if sid == self._sid and headers.startswith(_STATUS):
                    return self._whole(headers, found)
                if sid == self._sid:
                    subject, sequence = _place_of(headers)
                    found[subject] = Stored(sequence, headers)

    def _whole(self, end: bytes, found: dict[bytes, Stored]) -> list[Stored]:
        if end.startswith(_NOBODY):
            raise NoRespondersError("nobody answers direct gets of the stream")
        if end.startswith(_ABSENT):
            found = {}
        elif not end.startswith(_END) or _ALL not in end:
            raise RefusedError(end.split(b"\r\n", 1)[0].decode(errors="replace"))
        return [found.get(subject, NOTHING) for subject in self._subjects]


def stored_of(headers: bytes) -> Stored:
    """Of the header block of a direct answer that is a message."""
    return Stored(_place_of(headers)[1], headers)


def _place_of(headers: bytes) -> tuple[bytes, int]:
    """Subject and sequence of a direct answer that is a message."""
    at = headers.rfind(_SUBJECT)
    begin = at + len(_SUBJECT)
    end = headers.find(b"\r\n", begin)
    if at < 0 or not headers.startswith(_SEQUENCE, end):  # as servers write them
        return _behind(headers, _SUBJECT), int(_behind(headers, _SEQUENCE))
    after = end + len(_SEQUENCE)
    return headers[begin:end], int(headers[after : headers.index(b"\r\n", after)])


def _behind(headers: bytes, name: bytes) -> bytes:
    """The value of a header that the server has added: its lines are behind the publisher's, who may have
    written the same names."""
    at = headers.rfind(name)
    if at < 0:
        said = headers.split(b"\r\n", 1)[0].decode(errors="replace")
        raise NoRespondersError(f"the server answered a direct get with {said}")
    return headers[at + len(name) : headers.index(b"\r\n", at + len(name))]


class LastValues:
    """Asks for what a stream has stored last.

    Args:
        direct: the stream answers direct gets.
    """

    def __init__(self, stream: str, quiet_s: float, *, direct: bool) -> None:
        self._stream = stream
        self._quiet_s = quiet_s
        self._direct = direct
        self._many = direct

    def ask(self, link: Link, subjects: list[bytes]) -> Asked | None:
        """Ask for these, beside what else is done with the link; None where that is not to be had."""
        return Asked(link, self._stream, subjects) if self._many and subjects else None

    def take(self, asked: Asked) -> list[Stored] | None:
        """What is stored on each; None if the server does not answer so: ``read`` then."""
        try:
            return asked.take(self._quiet_s)
        except RefusedError:
            self._many = False
            return None

    def read(self, link: Link, subjects: list[bytes], *, exact: bool) -> list[Stored] | None:
        """What is stored on each of these subjects.

        Args:
            exact: as the leader has it; a copy that lags may answer a direct get.

        Returns:
            None if this user may not ask so: ask again, on another connection.
        """
        if exact or not self._direct:
            return [_of_leader(each) for each in link.request_many(self._of_each(link, subjects))]
        try:
            if (asked := self.ask(link, subjects)) is not None and (
                found := self.take(asked)
            ) is not None:
                return found
            get = link.api("DIRECT", "GET", self._stream)
            each = [(f"{get}.{subject.decode()}", b"") for subject in subjects]
            return [_of_direct(reply) for reply in link.request_many(each)]
        except (AuthorizationError, NoRespondersError):
            # This user may not, or the stream does so no longer. First less is asked for, then the leader.
            self._direct, self._many = self._many, False
            return None

    def _of_each(self, link: Link, subjects: list[bytes]) -> list[tuple[str, bytes]]:
        get = link.api("STREAM", "MSG", "GET", self._stream)
        wanted = [GetMessageRequest(last_by_subj=subject.decode()) for subject in subjects]
        return [(get, base.encode(each)) for each in wanted]


def _of_direct(reply: Reply) -> Stored:
    return NOTHING if reply.headers.startswith(_ABSENT) else stored_of(reply.headers)


def _of_leader(reply: Reply) -> Stored:
    try:
        message = decode_response(reply.payload, GetMessageResponse).message
    except JetStreamApiError as error:
        if error.err_code != MESSAGE_NOT_FOUND:
            raise
        return NOTHING
    return Stored(message.seq, base64.b64decode(message.hdrs))
