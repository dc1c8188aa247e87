"""What is said about a fast batch: the reply subjects its messages carry, and the answers that come there.

A batch has an inbox of its own; a message's reply is ``<inbox>.<flow>.fail.<place>.<operation>.$FI``, its
place counted from 1. ``fail``: a message that is missing or refused ends the batch, so that its last answer
says exactly what was stored. Several kinds of answer come, told apart by their fields.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, NamedTuple

import msgspec

from ...api.errors import Errors, api_error
from ...errors import (
    ConfigurationError,
    HeadraceError,
    JetStreamApiError,
    NoRespondersError,
    ProtocolError,
)
from ...wire.frames import Frame
from ...wire.headers import status_of

START: Final = 0
APPEND: Final = 1
END: Final = 3
"""End the batch; what carries it is no message of it."""
PING: Final = 4
"""Say how far the batch has come; what carries it is no message of it."""
FLOW_MAX: Final = 65_535

_TAIL: Final = b".$FI"
_NO_RESPONDERS: Final = 503
_UNKNOWN: Final = 10208
_UNAVAILABLE: Final = frozenset(
    error.err_code
    for error in (
        Errors.FAST_BATCH_DISABLED,
        Errors.FAST_BATCH_INVALID_PATTERN,
        Errors.FAST_BATCH_INVALID_ID,
    )
)


class Kind(Enum):
    """What an answer means."""

    FLOW = "all up to ``seq`` is stored, and an answer comes every ``messages``"
    GAP = "a message is missing; the total follows"
    REFUSED = "the message at ``seq`` is refused; the total follows"
    ALONE = "what carried this reply is refused, whatever becomes of the batch"
    TOTAL = "the batch is over; ``stored`` messages of it are there"
    STORED = "the message was stored as an ordinary one: the server knows no fast batches"


class FastAnswer(NamedTuple):
    """``place`` and ``operation`` are those of the reply subject the answer came to."""

    kind: Kind
    place: int
    operation: int
    seq: int = 0
    messages: int = 0
    stored: int = 0
    error: HeadraceError | None = None


class _Document(msgspec.Struct):
    type: str = ""
    seq: int = 0
    msgs: int = 0
    count: int = 0
    batch: str = ""
    stream: str = ""
    error: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Document).decode


def read_answer(prefix: bytes, frame: Frame) -> FastAnswer | None:
    """What a message says that came to a reply beginning with ``prefix``; None if to another one.

    ``frame`` is a MSG frame. What is not understood is an answer of kind ALONE.
    """
    subject: bytes = frame[1]
    tokens = subject[len(prefix) :].split(b".")
    numbers = [token for token in tokens[:2] if token.isdigit()]
    if not subject.startswith(prefix) or len(tokens) != 3 or len(numbers) != 2:
        return None
    place, operation = int(tokens[0]), int(tokens[1])
    if frame[4] and status_of(frame[4]) == _NO_RESPONDERS:
        error: HeadraceError = NoRespondersError("no stream has the subject")
        return FastAnswer(Kind.ALONE, place, operation, error=error)
    try:
        found = _decode(frame[5])
    except (msgspec.DecodeError, RecursionError) as failure:
        error = ProtocolError(f"the answer to a publish is not understood: {failure}")
        return FastAnswer(Kind.ALONE, place, operation, error=error)
    if found.error is not None:
        kind = Kind.REFUSED if found.type == "err" else Kind.ALONE
        return FastAnswer(kind, place, operation, found.seq, error=api_error(found.error))
    if found.type == "ack":
        return FastAnswer(Kind.FLOW, place, operation, found.seq, found.msgs)
    if found.type == "gap":
        return FastAnswer(Kind.GAP, place, operation, found.seq)
    if not found.stream:
        error = ProtocolError(f"the answer to a publish is not understood: {frame[5][:60]!r}")
        return FastAnswer(Kind.ALONE, place, operation, error=error)
    kind = Kind.TOTAL if found.batch else Kind.STORED
    return FastAnswer(kind, place, operation, found.seq, stored=found.count)


def is_unavailable(error: HeadraceError | None) -> bool:
    """Whether a stream says that it takes no fast batches at all."""
    return isinstance(error, JetStreamApiError) and error.err_code in _UNAVAILABLE


def with_reply(command: bytes, prefix: bytes, place: int, operation: int) -> bytes:
    """A PUB or HPUB command with another reply."""
    verb, subject, _, rest = command.split(b" ", 3)
    return b"%b %b %b%d.%d%b %b" % (verb, subject, prefix, place, operation, _TAIL, rest)


def in_words(error: HeadraceError, subject: str) -> HeadraceError:
    """A refusal of a message with this subject, as its sender reads it."""
    if isinstance(error, NoRespondersError):
        return NoRespondersError(f"no stream has the subject {subject!r}")
    if isinstance(error, JetStreamApiError) and error.err_code == _UNKNOWN:
        return ConfigurationError(
            f"{subject!r} is of another stream than the messages before it: a fast publisher is for the "
            "subjects of one stream"
        )
    return error
