"""What a backup says: the stream's state, its consumers, its messages, and that it is whole.

The JSON in a backup is read by its types: a number is a sequence or a time that can be, or it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from ..api.base import DocumentError, read_typed
from ..api.times import parse_time
from ..errors import SnapshotFormatError as SnapshotFormatError

DOCUMENT_BYTES_MAX: Final = 8 << 20
"""Of a configuration or a consumer's state: read in one go, in a tenth of a second; more is refused."""
DOCUMENTS_BYTES_MAX: Final = 64 << 20
"""Of all consumers' configurations and states together, which are kept until the end; more is refused."""
MESSAGE_BYTES_MAX: Final = (64 << 20) + (64 << 10)
"""Of a message's headers and payload: the most nats-server can be set to; more is refused."""
NUMBER_MAX: Final = (1 << 63) - 1
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Began:
    """The first of a backup: what it will hold. Sequences are 0 where it is told at the end only."""

    first_seq: int = 0
    last_seq: int = 0
    created: str = ""
    """When the stream was made, where the backup tells."""


class Delivery(NamedTuple):
    """One message under way to a client."""

    consumer_seq: int
    """The number of its first delivery."""
    delivered_ns: int
    """When it was delivered last, since the epoch."""


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """How far a consumer is: (consumer sequence, stream sequence) of what was delivered and is done."""

    delivered: tuple[int, int] = (0, 0)
    ack_floor: tuple[int, int] = (0, 0)
    pending: Mapping[int, Delivery] = field(default_factory=dict)
    """By stream sequence."""
    redelivered: Mapping[int, int] = field(default_factory=dict)
    """How often a pending message was delivered beyond the first time, by stream sequence."""


@dataclass(frozen=True, slots=True)
class ConsumerContent:
    """A consumer: ``config`` is the document of its configuration."""

    name: str
    config: Mapping[str, object]
    state: ConsumerState
    created: str = ""


class MessageContent(NamedTuple):
    """One message, as it is stored."""

    sequence: int
    subject: bytes
    headers: bytes
    payload: bytes
    timestamp_ns: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The last of a backup: it is whole. ``last_seq`` is the last sequence the stream has given out."""

    last_seq: int
    first_seq: int
    removed: Sequence[int] = ()
    """Sequences of messages that came before and were deleted after they were written."""


Content: TypeAlias = Began | ConsumerContent | MessageContent | Ended


Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]


def read(body: bytes, kind: type[_T], what: str) -> _T:
    """A document of that type. Raises SnapshotFormatError, in which ``what`` names it."""
    try:
        return read_typed(body, kind)
    except DocumentError as error:
        raise SnapshotFormatError(f"{what} cannot be read: {error}") from None


def created(document: dict[str, Any], what: str) -> str:
    """Take out when something was made, "" if that is not told. Raises SnapshotFormatError."""
    text = document.pop("Created", "")
    try:
        if not isinstance(text, str):
            raise DocumentError(f"{text!r} is no time")
        parse_time(text)
    except DocumentError as error:
        raise SnapshotFormatError(f"{what}: {error}") from None
    return text


class StreamDocument(msgspec.Struct):
    """``state.json``, as far as it matters."""

    first_seq: Number
    last_seq: Number
    consumer_count: Number = 0


class Pair(msgspec.Struct):
    """How far a consumer is."""

    consumer_seq: Number
    stream_seq: Number


class PendingDelivery(msgspec.Struct, rename="pascal"):
    """A delivery under way."""

    sequence: Number
    timestamp: Number


class StateDocument(msgspec.Struct):
    """Where a consumer is; pending messages by stream sequence."""

    delivered: Pair
    ack_floor: Pair
    pending: dict[Number, PendingDelivery] | None = None
    redelivered: dict[Number, Number] | None = None

    def state(self) -> ConsumerState:
        """The state without the words of JSON."""
        return ConsumerState(
            (self.delivered.consumer_seq, self.delivered.stream_seq),
            (self.ack_floor.consumer_seq, self.ack_floor.stream_seq),
            {s: Delivery(at.sequence, at.timestamp) for s, at in (self.pending or {}).items()},
            self.redelivered or {},
        )


class ConsumerDocument(msgspec.Struct):
    """A consumer, as an archive has it."""

    config: dict[str, Any]
    state: StateDocument
