"""A received message: a thin view of one frame, decoded only as far as it is looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from ..errors import ConfigurationError, ServiceError
from ..wire.encode import pub
from ..wire.frames import Frame
from ..wire.headers import Headers as Headers  # part of a message, for those who handle one
from ..wire.headers import encode_headers, parse_headers
from .net.outbox import WORDS_BYTES_MAX, check_line

if TYPE_CHECKING:
    from .net.session import Session
else:
    Session = Any  # `inspect.signature` evaluates the annotations of a struct, and importing it is a cycle

Payload: TypeAlias = bytes | bytearray | memoryview
"""What may be given as a payload. What can change is copied."""

HeadersLike: TypeAlias = Headers | Mapping[str, str | Sequence[str]] | None
"""What may be given as headers: a mapping from name to one value or several, or received headers."""


def header_block(headers: HeadersLike, more: Sequence[tuple[str, str]] = ()) -> bytes:
    """The raw block of ``headers`` and then ``more``; ``b""`` for none.

    Raises ProtocolError for text that cannot be sent, ConfigurationError for what is no text.
    """
    if not headers and not more:
        return b""
    pairs: list[tuple[str, str]] = []
    try:
        for name, value in headers.items() if headers else ():
            if isinstance(value, str):
                pairs.append((name, value))
            else:
                pairs.extend((name, one) for one in value)
        pairs.extend(more)
        return encode_headers(pairs)
    except (TypeError, AttributeError):
        raise ConfigurationError(
            f"headers are {headers!r:.200}; accepted is a mapping from text to text, or to a list of texts"
        ) from None


def payload_bytes(payload: object) -> bytes:
    """A payload that is not ``bytes`` as bytes: a copy of a buffer of bytes.

    Raises ConfigurationError for anything else.
    """
    if isinstance(payload, (bytes, bytearray)):
        return bytes(payload)
    if isinstance(payload, memoryview):
        return payload.tobytes()
    how = "; text is sent as payload.encode()" if isinstance(payload, str) else ""
    raise ConfigurationError(
        f"a payload is {type(payload).__name__}; accepted are bytes, bytearray and memoryview{how}"
    )


ERROR: Final = "Nats-Service-Error"
ERROR_CODE: Final = "Nats-Service-Error-Code"
_FAILED: Final = b"Nats-Service-Error"
_DESCRIPTION_MAX: Final = 1024


def error_response(message: MessageView, error: Exception) -> bytes:
    """The command that answers with an error: its own words if it was raised to be told, else its class.

    The headers are those of services (ADR-32).
    """
    code, text, payload = 500, type(error).__name__, b""
    if isinstance(error, ServiceError):
        code, text, payload = error.code, error.description, error.payload
    line = " ".join(text.split())[:_DESCRIPTION_MAX]  # a header is one line
    return message._response(payload, {ERROR: line, ERROR_CODE: str(code)})


def raise_if_failed(frame: Frame) -> None:
    """Raise ServiceError if the answer to a request says that it failed."""
    if _FAILED not in frame[4]:
        return
    headers = parse_headers(frame[4])
    code = headers.get(ERROR_CODE)
    if code is not None:
        number = int(code) if code.isascii() and code.isdigit() else 500
        raise ServiceError(number, headers.get(ERROR) or "", frame[5])


_SHOWN_BYTES: Final = 40


def preview(payload: bytes) -> str:
    """How a payload begins, for people: as Python writes it, with its length where that is not all of it."""
    if len(payload) <= _SHOWN_BYTES:
        return repr(payload)
    return f"{payload[:_SHOWN_BYTES]!r}… {len(payload):,} bytes"


class MessageView(msgspec.Struct, eq=False):
    """A message as it was received.

    ``payload`` is bytes, ``subject`` and ``reply`` are text (an absent reply is ""), ``headers`` are
    parsed when first asked for.
    """

    # A struct, because one is made per message: it costs a third of what a class with slots does.
    _session: Session
    _frame: Frame
    _headers: Headers | None = None

    @property
    def subject(self) -> str:
        """What it was published to."""
        subject: bytes = self._frame[1]
        return subject.decode()

    @property
    def reply(self) -> str:
        """Where an answer goes, "" if nobody asked for one."""
        reply: bytes = self._frame[3]
        return reply.decode()

    @property
    def payload(self) -> bytes:
        """Its bytes, as they were published."""
        payload: bytes = self._frame[5]
        return payload

    @property
    def headers(self) -> Headers:
        """The headers, possibly empty. Raises ProtocolError if the block is malformed."""
        if self._headers is None:
            self._headers = parse_headers(self._frame[4])
        return self._headers

    @property
    def raw_headers(self) -> bytes:
        """The header block as it came, b"" for none."""
        headers: bytes = self._frame[4]
        return headers

    def __repr__(self) -> str:
        about = self._about()
        return f"<{type(self).__name__} {self.subject!r}{about}: {preview(self.payload)}>"

    def _about(self) -> str:
        """What there is to say of it besides subject and payload, with a space in front."""
        return f" reply={self.reply!r}" if self._frame[3] else ""

    def _response(self, payload: Payload, headers: HeadersLike) -> bytes:
        """The command that answers.

        Raises ConfigurationError if nobody asked, LimitExceededError if the reply subject fits into no line.
        """
        reply: bytes = self._frame[3]
        if not reply:
            raise ConfigurationError(
                f"the message on {self.subject!r} has no reply subject to respond to"
            )
        if len(reply) > WORDS_BYTES_MAX:
            check_line(reply)
        if type(payload) is not bytes:
            payload = payload_bytes(payload)
        block = header_block(headers)
        if (trace := self._session.trace) is not None:
            block = trace(block)
        return pub(reply, b"", block, payload)


class Message(MessageView, eq=False):
    """A message received by a subscription or as the answer to a request."""

    async def respond(self, payload: Payload = b"", *, headers: HeadersLike = None) -> None:
        """Send an answer to whoever asked. Raises ConfigurationError if nobody did; waits as
        ``Connection.publish``."""
        if self._session.outbox.over_limit:
            await self._session.outbox.wait_for_room()
        self._session.publish(self._response(payload, headers))
