"""The edges of a batch read that move with its stream: ``earliest`` and ``latest``.

Spark asks a source in Python for the tasks of a frame once, and keeps them for everything that is done with
the frame: the second count, each micro-batch that joins it. With the edges of the first time these would
never see a message that came later. So a task whose edge is the stream's looks where that is when it begins:
the first one of a stream at its start, the last one at its end. All others are in between and do not move.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..links.control import Control, settled_head
from ..links.link import Link
from ..links.outages import Patience
from ..offsets import Offset, check_epoch, reset_of
from .positions import locate
from .slices import Slice

if TYPE_CHECKING:
    from ..options import SourceOptions


def with_open_ends(
    pieces: list[Slice], nothing: Slice, options: SourceOptions, last_seq: int
) -> list[Slice]:
    """The tasks of one stream, told which of their edges move.

    Args:
        nothing: a task without messages at the end of the range, for a range that has none yet.
        last_seq: where the stream ends.
    """
    to_last = _is_open(options, nothing.hi, last_seq)
    if to_last and not pieces:
        return [nothing._replace(to_last=True)]
    # Each task has partitions of the whole range, or it has all of a part of the range.
    whole = options.split_by == "partition"
    from_first = options.starting.kind == "earliest"
    last = len(pieces) - 1
    return [
        piece._replace(
            from_first=from_first and (whole or number == 0),
            to_last=to_last and (whole or number == last),
        )
        for number, piece in enumerate(pieces)
    ]


def _is_open(options: SourceOptions, hi: int, last_seq: int) -> bool:
    """Whether messages that come later belong to the range."""
    ending = options.ending
    if ending.kind == "sequence":
        return ending.sequence > last_seq
    return hi >= last_seq  # a time that has not come yet is behind all messages


def as_it_is_now(options: SourceOptions, piece: Slice, connect: Callable[[], Link]) -> Slice:
    """The task with its edges where the stream has them now; they do not move any more.

    Raises:
        DataLossError: the stream was made again since the task was planned.
        ConnectionClosedError, TimeoutError_: as ``reader.read_range``.
    """
    patience = Patience(options.reconnect_timeout_s, f"stream {options.stream!r}")
    links: list[Link] = []

    def look() -> Slice:
        links.append(connect())
        return _moved(options, piece, Control(links[-1], options.stream), patience)

    def let_go() -> None:
        while links:
            links.pop().close()

    return patience.persist(look, let_go)


def _moved(options: SourceOptions, piece: Slice, control: Control, patience: Patience) -> Slice:
    planned = Offset(piece.hi, piece.epoch)
    head, _ = settled_head(control, planned, patience)
    fixed = piece._replace(from_first=False, to_last=False)
    if piece.epoch and reset_of(planned, head, options.stream):
        if options.on_stream_reset == "fail":
            check_epoch(planned, head, options.stream)
        return fixed  # the reader says so, and reads none
    lo, hi = piece.lo, piece.hi
    if piece.to_last:
        hi = max(hi, min(locate(control, options.ending, head, as_end=True), head.last_seq))
    if piece.from_first:
        lo = min(max(lo, head.first_seq - 1), hi)
    size = piece.size + max(0, hi - piece.hi) * head.mean_bytes
    return fixed._replace(lo=lo, hi=hi, size=size)
