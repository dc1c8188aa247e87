"""What a dead letter says: where its message comes from, and why it could not be handled. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ...errors import ProtocolError

if TYPE_CHECKING:
    from ...api.acks import AckTokens
    from ...wire.headers import Headers

REASON: Final = "Headrace-Failure"
GROUP: Final = "Headrace-Group"
CONSUMER: Final = "Headrace-Consumer"
SUBJECT: Final = "Headrace-Subject"
STREAM: Final = "Headrace-Stream"
SEQUENCE: Final = "Headrace-Sequence"
ATTEMPTS: Final = "Headrace-Attempts"
OURS: Final = frozenset({REASON, GROUP, CONSUMER, SUBJECT, STREAM, SEQUENCE, ATTEMPTS})
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


def own_headers(message: Headed) -> dict[str, list[str]]:
    """Those that whoever published it gave it; none where they cannot be read, which may be why it failed."""
    try:
        headers = message.headers
    except ProtocolError:
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
        stream, subject, sequence: where its message comes from; "" and 0 if it does not say so.
        by: the consumer or the group whose handler failed.
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
        """What kind of error the reason is: its name."""
        return self.reason.partition("(")[0]


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
        text(SUBJECT),
        _number(text(SEQUENCE)),
        text(CONSUMER) or text(GROUP),
        _number(text(ATTEMPTS)),
        text(REASON),
        own_headers(message),
    )


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
