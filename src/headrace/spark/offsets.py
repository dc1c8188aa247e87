"""Offsets and ranges of the Spark source, as plain values.

A stream's sequences are one total order over all its subjects and partitions, so an offset is one number:
the sequence of the last message read. A range is ``(start, end]``. With it goes the time that message was
stored at: by both the stream is known again, wherever it was copied or restored to (see ``identity``). Spark
compares offsets as JSON *text*, so the dictionary's keys are always in the same (sorted) order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard

from ..api.times import format_time
from ..errors import ConfigurationError, HeadraceError
from ..identity import MessageIdentity, Sameness

OffsetDict: TypeAlias = dict[str, "int | str"]

VERSION = 1
SEQUENCE_MAX: Final = 2**63 - 1


class DataLossError(HeadraceError):
    """Messages that a query still had to read are gone, or the stream is no longer the same one."""


class StreamChangedError(DataLossError):
    """The stream became another one while a batch was read: the batch has to run again."""


class StreamHead(NamedTuple):
    """A stream as planning needs it: the sequences it holds, and when.

    ``epoch`` is the time of the stream's creation as the server writes it. It counts only where the message
    by which a stream is known is gone. An empty stream has ``first_seq == last_seq + 1``, or 0 and 0 if it
    never held a message. ``first_ns`` and ``last_ns`` are when its first and its last message were stored,
    ``now_ns`` the server's time; 0 where the server does not tell.
    """

    epoch: str
    first_seq: int
    last_seq: int
    messages: int
    bytes: int
    first_ns: int = 0
    now_ns: int = 0
    last_ns: int = 0

    @property
    def mean_bytes(self) -> int:
        """The average size of a stored message, at least 1."""
        return max(1, self.bytes // self.messages) if self.messages > 0 else 1


class Offset(NamedTuple):
    """The last sequence read (0: nothing yet) of a stream, and what the stream is known by.

    ``epoch``: when the stream was created. It is empty in checkpoints that do not name one; they are taken
    for the stream that is there. ``since_ns``: every later message was stored at or after this time (0: not
    known). It tells messages that aged from messages that were replaced; see ``loss``. ``begin``: the batch
    that ends here is the first of a stream made again and begins after this sequence of it, wherever the
    batch before ended. ``stored_ns``: when the message ``seq`` was stored; 0 where no message has it.
    """

    seq: int
    epoch: str
    since_ns: int = 0
    begin: int | None = None
    stored_ns: int = 0

    def identity(self, stream: str) -> MessageIdentity:
        """The message read last."""
        return MessageIdentity(stream, self.seq, self.stored_ns)

    def to_dict(self) -> OffsetDict:
        """The form Spark keeps in its checkpoint; keys sorted."""
        raw: OffsetDict = {} if self.begin is None else {"begin": self.begin}
        raw |= {"epoch": self.epoch, "seq": self.seq}
        if self.since_ns:
            raw["since"] = self.since_ns
        if self.stored_ns:
            raw["stored"] = self.stored_ns
        raw["v"] = VERSION
        return raw

    @classmethod
    def from_dict(cls, raw: object) -> Offset:
        """Read the output of ``to_dict``. Raises ConfigurationError that says what was found instead."""
        if not isinstance(raw, dict):
            raise ConfigurationError(f"not an offset of the jetstream source: {raw!r}")
        version, seq, epoch = raw.get("v"), raw.get("seq"), raw.get("epoch", "")
        if version != VERSION:
            raise ConfigurationError(
                f"the checkpoint's offset has version {version!r}; this release reads version {VERSION}"
            )
        if not is_sequence(seq):
            raise ConfigurationError(f"the checkpoint's offset has no valid sequence: {raw!r}")
        if not isinstance(epoch, str):
            raise ConfigurationError(f"the checkpoint's offset has no valid stream epoch: {raw!r}")
        since, begin, stored = raw.get("since", 0), raw.get("begin"), raw.get("stored", 0)
        if not _is_count(since) or not _is_count(stored):
            raise ConfigurationError(f"the checkpoint's offset has no valid time: {raw!r}")
        if not (begin is None or is_sequence(begin)):
            raise ConfigurationError(f"the checkpoint's offset has no valid begin: {raw!r}")
        return cls(seq, epoch, since, begin, stored)


def read_offsets(
    raw: object, streams: Sequence[str], source: str = "", others: Sequence[str] = ()
) -> dict[str, Offset]:
    """The offset of each stream, from what ``write_offsets`` wrote. An offset that names none, of a query of
    one stream, is the first one's.

    Args:
        source, others: the name of the source in its query, and those of the query's other sources.

    Raises:
        ConfigurationError: it is no offset of this source; the text says what was found.
    """
    if not isinstance(raw, dict):
        return {streams[0]: Offset.from_dict(raw)}
    _check_source(raw.get("source", ""), source, others)
    if "s" not in raw:
        name = raw.get("stream", streams[0])
        _check_streams([name], streams)
        return {name: Offset.from_dict(raw)}
    each = raw["s"]
    if not isinstance(each, dict) or not all(isinstance(one, dict) for one in each.values()):
        raise ConfigurationError(f"not an offset of the jetstream source: {raw!r}")
    _check_streams(list(each), streams)
    return {name: Offset.from_dict({**one, "v": raw.get("v")}) for name, one in each.items()}


def write_offsets(
    offsets: Mapping[str, Offset], streams: Sequence[str], source: str = ""
) -> dict[str, Any]:
    """The form Spark keeps in its checkpoint: one offset, or one for each of several streams.

    It names its streams, and the source if that has a name in its query.
    """
    if len(streams) == 1:
        raw: dict[str, Any] = {**offsets[streams[0]].to_dict(), "stream": streams[0]}
    else:
        each = {}
        for name in sorted(offsets):
            each[name] = dict(offsets[name].to_dict())
            del each[name]["v"]
        raw = {"s": each, "v": VERSION}
    if source:
        raw["source"] = source
    return dict(sorted(raw.items()))


_ANEW: Final = (
    "begin the query anew with a new checkpoint (headrace pipeline reset begins a new generation)"
)


def _check_source(found: object, source: str, others: Sequence[str]) -> None:
    """Whether what another source of the query has read stands where this one's offset is to stand."""
    if found and source and found != source and found in others:
        raise ConfigurationError(
            f"the checkpoint has here what source {found!r} has read, and the query now reads source "
            f"{source!r} here: its sources were put in another order, as the two sides of a join or a union. "
            f"Put them back in that order, or {_ANEW}"
        )


def _check_streams(found: Sequence[str], streams: Sequence[str]) -> None:
    """Whether the offset is of other streams altogether."""
    if not set(found) & set(streams):
        raise ConfigurationError(
            f"the checkpoint is of stream {', '.join(map(repr, found))}, and the source reads "
            f"{', '.join(map(repr, streams))} here: it was given another stream, or the query's sources were "
            f"put in another order. Put it back, or {_ANEW}"
        )


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_sequence(value: object) -> TypeGuard[int]:
    """Whether it is a sequence, or 0. Raises ConfigurationError: it is larger than any stream has."""
    if not _is_count(value):
        return False
    if value > SEQUENCE_MAX:
        raise ConfigurationError(
            f"the checkpoint's offset has the sequence {value}, and no stream has one beyond {SEQUENCE_MAX}: "
            f"the file was changed or damaged. Put the checkpoint back from a copy, or {_ANEW}"
        )
    return True


def reset_of(offset: Offset, head: StreamHead, stream: str, same: Sameness) -> str:
    """A sentence about why the query cannot simply go on at this offset; "" if it can.

    Args:
        same: what was found of the message read last. Where that is gone, or was never noted, the stream
            counts as the same one if it was created at the same time.
    """
    if same is Sameness.SAME:
        return ""
    made_again = bool(offset.epoch) and offset.epoch != head.epoch
    anew = f" (it was created at {head.epoch}, the one before at {offset.epoch})"
    if same is Sameness.GONE:
        if not made_again:
            return ""
        return (
            f"stream {stream!r} was made again{anew}, and whether it is the same one cannot be told: message "
            f"{offset.seq}, which this query read last, is not there any more"
        )
    if offset.seq > head.last_seq:
        what = f"it ends at sequence {head.last_seq}, before {offset.seq} which this query already read"
        how = (
            "it was made again"
            if made_again
            else "it lost its end, or was restored from an older copy"
        )
    else:
        what = f"it has no message {offset.seq} stored at {_time(offset.stored_ns)}, which it read last"
        how = (
            "it was made again"
            if made_again
            else "it lost its end and gave sequences to other messages, or was restored from an older copy"
        )
    return (
        f"stream {stream!r} is not the one this query read before: {what}; {how}"
        f"{anew if made_again else ''}"
    )


def refusal(reason: str, offset: Offset, same: Sameness) -> DataLossError:
    """The error of a query that does not go on by itself, with what leads on and is right for any query."""
    anew = "start again with a new checkpoint (headrace pipeline reset --to earliest begins a new generation)"
    if offset.stored_ns:
        text = (
            "Set onStreamReset=continue to go on with the messages stored after that one: none is read "
            f"twice, and state is kept. To read all that is there as new, {anew}"
        )
    elif same is Sameness.GONE:
        text = (
            f"If it is the same one, set onStreamReset=continue to go on after {offset.seq}, and state is "
            f"kept; if it is not, {anew}"
        )
    else:
        text = (
            f"When message {offset.seq} was stored is not known, so neither is what of the stream was read: "
            f"{anew}"
        )
    return DataLossError(f"{reason}. {text}")


def check_unchanged(epoch: str, head: StreamHead, stream: str) -> None:
    """Raise StreamChangedError if a stream was made again since a read of it was planned."""
    if epoch and epoch != head.epoch:
        raise StreamChangedError(
            f"stream {stream!r} was made again at {head.epoch}, while the one made at {epoch} was read: "
            "read it again"
        )


def _time(at_ns: int) -> str:
    return format_time(at_ns) if at_ns else "a time that was not noted"


def check_range(
    start: Offset, end: Offset, head: StreamHead, stream: str, *, fail_on_loss: bool
) -> tuple[int, int]:
    """The sequences ``(lo, hi]`` to read for a batch, after a check for removed messages.

    Raises:
        DataLossError: messages at the start of the range were removed (age, size or purge) and
            ``fail_on_loss`` is set. Without it the rest is read.
    """
    if start.seq >= end.seq:
        if start.seq > end.seq and fail_on_loss:
            raise DataLossError(
                f"stream {stream!r}: the first batch of this query was planned up to sequence "
                f"{end.seq}, but the messages before {start.seq + 1} are gone now. "
                "Start again with a new checkpoint, or set failOnDataLoss=false"
            )
        return end.seq, end.seq
    if head.first_seq > start.seq + 1:
        lost = min(head.first_seq - 1, end.seq) - start.seq
        if fail_on_loss:
            raise DataLossError(
                f"stream {stream!r} begins at sequence {head.first_seq} now; up to {lost} messages from "
                f"{start.seq + 1} on were removed before this query read them (limits or purge). "
                "Set failOnDataLoss=false to go on without them"
            )
        return min(head.first_seq - 1, end.seq), end.seq
    return start.seq, end.seq
