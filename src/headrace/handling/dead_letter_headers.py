"""What a dead letter says: where its message comes from, and why it could not be handled. Pure."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ..errors import ProtocolError
from ..wire.headers import encode_headers, parse_headers

if TYPE_CHECKING:
    from ..api.acks import AckTokens
    from ..wire.headers import Headers

REASON: Final = "Headrace-Failure"
GROUP: Final = "Headrace-Group"
CONSUMER: Final = "Headrace-Consumer"
SUBJECT: Final = "Headrace-Subject"
STREAM: Final = "Headrace-Stream"
SEQUENCE: Final = "Headrace-Sequence"
ATTEMPTS: Final = "Headrace-Attempts"
SINK: Final = "Headrace-Sink"
ROW: Final = "Headrace-Row"
HEADERS: Final = "Headrace-Headers"
"""The message's own headers as a block in base64: of one whose headers may be what is wrong with it."""
TRUNCATED: Final = "Headrace-Truncated"
"""How long the payload was that is cut off here."""
OURS: Final = frozenset(
    {REASON, GROUP, CONSUMER, SUBJECT, STREAM, SEQUENCE, ATTEMPTS, SINK, ROW, HEADERS, TRUNCATED}
)
_MSG_ID: Final = "Nats-Msg-Id"
_REASON_CHARACTERS_MAX: Final = 500


class Headed(Protocol):
    """A message with headers."""

    @property
    def headers(self) -> Headers: ...


def id_of_message(about: AckTokens, who: str) -> str:
    """The message id of what ``who`` makes of a message: the same whenever the message is delivered.

    Its time is in it: the first message of a stream that was made again has the sequence of another one, and
    would not be stored with the same id.
    """
    return f"{about.stream}.{about.stream_seq}.{about.timestamp_ns}.{who}"


def letter_headers(
    message: Headed, error: Exception, about: list[tuple[str, str]]
) -> dict[str, list[str]]:
    """The message's own headers, but for those that the server reads, then ``about`` and the reason."""
    found = own_headers(message)
    for name, value in [*about, (REASON, one_line(repr(error)))]:
        found[name] = [value]
    return found


def letter_block(msg_id: str, about: list[tuple[str, str]], reason: str, own: bytes = b"") -> bytes:
    """The header block of a dead letter whose message has this block, which need not be readable.

    Args:
        msg_id: the same whenever the letter is made again; its stream drops it then.
    """
    pairs = [(_MSG_ID, msg_id), *about, (REASON, one_line(reason))]
    if own:
        pairs.append((HEADERS, base64.b64encode(own).decode()))
    return encode_headers(pairs)


def own_headers(message: Headed) -> dict[str, list[str]]:
    """Those that whoever published it gave it; none where they cannot be read, which may be why it failed."""
    try:
        headers = message.headers
        if (block := headers.get(HEADERS)) is not None:
            headers = parse_headers(base64.b64decode(block))
    except (ProtocolError, ValueError):
        return {}
    return {
        name: list(headers.get_all(name))
        for name in headers
        if not name.startswith("Nats-") and name not in OURS
    }


def one_line(text: str) -> str:
    """As a header can be: without line breaks, and not for ever."""
    return " ".join(text.split())[:_REASON_CHARACTERS_MAX]


class Letter(NamedTuple):
    """A dead letter, read.

    Attributes:
        stream, subject, sequence: where its message comes from; "" and 0 if it does not say so. One whose
            payload is cut off has no subject to which it could be sent again.
        by: the consumer or the group whose handler failed, or the sink that could not write it.
        attempts: how often.
        reason: the last error.
        headers: the message's own.
    """

    stream: str
    subject: str
    sequence: int
    by: str
    attempts: int
    reason: str
    headers: dict[str, list[str]]

    @property
    def error(self) -> str:
        """What kind of error the reason is: its name, or that it is a sentence of Spark's source or sink."""
        name = self.reason.partition("(")[0]
        return name if name.isidentifier() else "bad message or row"


def letter_of(message: Headed) -> Letter | None:
    """What the message says as a dead letter; None if it is not a dead letter."""
    try:
        headers = message.headers
    except ProtocolError:
        return None
    if REASON not in headers:
        return None

    def text(name: str) -> str:
        return headers.get(name) or ""

    return Letter(
        text(STREAM),
        "" if TRUNCATED in headers else text(SUBJECT),
        _number(text(SEQUENCE)),
        text(CONSUMER) or text(GROUP) or text(SINK),
        _number(text(ATTEMPTS)),
        text(REASON),
        own_headers(message),
    )


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
