"""The JSON in a backup, read by its types: a number is a sequence or a time that can be, or it is refused."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

import msgspec

from ..api.base import DocumentError, read_typed
from ..api.times import parse_time
from .contents import ConsumerState, Delivery, SnapshotFormatError

NUMBER_MAX: Final = (1 << 63) - 1

Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
_T = TypeVar("_T")


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
