"""What a backup says: the stream's state, its consumers, its messages, and that it is whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from ..errors import SnapshotFormatError as SnapshotFormatError

DOCUMENT_BYTES_MAX: Final = 8 << 20
"""Of a configuration or a consumer's state: read in one go, in a tenth of a second; more is refused."""
DOCUMENTS_BYTES_MAX: Final = 64 << 20
"""Of all consumers' configurations and states together, which are kept until the end; more is refused."""
MESSAGE_BYTES_MAX: Final = (64 << 20) + (64 << 10)
"""Of a message's headers and payload: the most nats-server can be set to; more is refused."""


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
