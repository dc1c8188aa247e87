"""Where positions lie in a stream: a time, or an edge that moves with it (``earliest``, ``latest``).

Spark asks a source in Python for the tasks of a frame once, and keeps them for everything that is done with
the frame: the second count, each micro-batch that joins it. With the edges of the first time these would
never see a message that came later. So a task whose edge is the stream's looks where that is when it begins:
the first one of a stream at its start, the last one at its end. All others are in between and do not move.

Within a job the end does not move: a job that reads a stream and appends to it would meet its own rows, and a
task that runs again would find others. The first job of a frame reads what was there when it was planned. For
a later one the end is looked up by the task that begins first on a host, and noted for its other tasks there.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..documents import read_json
from ..errors import ConfigurationError
from .links.control import Control, settled_head
from .links.link import Link
from .links.outages import ServerPatience
from .offsets import DataLossError, Offset, StreamHead, reset_of
from .options import StartPosition
from .slices import Slice

if TYPE_CHECKING:
    from .options import SourceOptions


def locate(control: Control, position: StartPosition, head: StreamHead, *, as_end: bool) -> int:
    """A position as an offset: the sequence before the first one to read.

    As the end of a batch (``as_end``) a given sequence is included, so it is its own offset.
    """
    if position.kind == "earliest":
        return max(0, head.first_seq - 1)
    if position.kind == "latest":
        return head.last_seq
    if position.kind == "sequence":
        if as_end:
            return position.sequence
        if position.sequence > head.last_seq + 1:
            raise ConfigurationError(
                f"jetstream source: startingOffsets is {position.sequence}, but stream {control.stream!r} "
                f"ends at sequence {head.last_seq}"
            )
        return max(0, position.sequence - 1)
    info = control.create_ephemeral(
        deliver_policy="by_start_time", opt_start_time=position.time, inactive_threshold=5.0
    )
    control.delete_consumer(info.name)
    found = info.delivered.stream_seq
    if position.must_exist and not as_end and found >= head.last_seq:
        raise ConfigurationError(
            f"jetstream source: stream {control.stream!r} has no message stored at or after {position.time}; "
            "set startingOffsetsByTimestampStrategy=latest to begin with the next one"
        )
    return found


try:
    import fcntl
except ImportError:  # Windows: there the end is where it was planned
    fcntl = None  # type: ignore[assignment]


_LOCKS: Final = fcntl is not None
JOBS_KEPT: Final = 256
"""Of each frame: so many jobs of one may run at the same time."""
KEPT_S: Final = 30 * 86_400.0  # notes of a frame that was not used for so long are removed


def with_open_ends(
    pieces: list[Slice], nothing: Slice, options: SourceOptions, last_seq: int, plan: str
) -> list[Slice]:
    """The tasks of one stream, told which of their edges move.

    Args:
        nothing: a task without messages at the end of the range, for a range that has none yet.
        last_seq: where the stream ends.
        plan: names this plan of the frame and of the stream.
    """
    to_last = _is_open(options, nothing.hi, last_seq)
    if to_last and not pieces:
        return [nothing._replace(to_last=True, plan=plan)]
    # Each task has partitions of the whole range, or it has all of a part of the range.
    whole = options.split_by == "partition"
    from_first = options.starting.kind == "earliest"
    last = len(pieces) - 1
    return [
        piece._replace(
            from_first=from_first and (whole or number == 0),
            to_last=to_last and (whole or number == last),
            plan=plan if to_last else "",
        )
        for number, piece in enumerate(pieces)
    ]


def _is_open(options: SourceOptions, hi: int, last_seq: int) -> bool:
    """Whether messages that come later belong to the range."""
    ending = options.ending
    if ending.kind == "sequence":
        return ending.sequence > last_seq
    return hi >= last_seq  # a time that has not come yet is behind all messages


def as_it_is_now(
    options: SourceOptions, piece: Slice, connect: Callable[[], Link], job: str, home: Path
) -> Slice:
    """The task with its edges where they are for this job; they do not move any more.

    Args:
        job: names what is done with the frame; "" where Spark does not tell, and the end stays as planned.
        home: a directory that the tasks of this host share.

    Raises:
        DataLossError: the stream was made again since the task was planned.
        ConnectionClosedError, RequestTimeoutError: as ``reader.read_range``.
        OSError: the end cannot be noted.
    """
    patience = ServerPatience(options.reconnect_timeout_s, f"stream {options.stream!r}")
    links: list[Link] = []

    def move() -> Slice:
        links.append(connect())
        edges = _Edges(options, piece, Control(links[-1], options.stream), patience)
        # A task that is at no edge has its part in the note: it may be the first one of its job.
        end = _noted(home, piece.plan, job, edges.end) if piece.plan and job else 0
        lo, hi, size = piece.lo, piece.hi, piece.size
        if piece.to_last and end > hi:
            size += (end - hi) * edges.head.mean_bytes
            hi = end
        if piece.from_first:
            lo = min(max(lo, edges.head.first_seq - 1), hi)
        return piece._replace(lo=lo, hi=hi, size=size, from_first=False, to_last=False, plan="")

    def let_go() -> None:
        while links:
            links.pop().close()

    return patience.persist(move, let_go)


class _Edges:
    """Where a stream begins and ends, asked when somebody wants to know."""

    def __init__(
        self, options: SourceOptions, piece: Slice, control: Control, patience: ServerPatience
    ) -> None:
        self._options, self._piece = options, piece
        self._control, self._patience = control, patience

    @cached_property
    def head(self) -> StreamHead:
        """Raises DataLossError: the stream was made again since the task was planned."""
        piece, control, stream = self._piece, self._control, self._options.stream
        planned = Offset(piece.end[0], piece.epoch, stored_ns=piece.end[1])
        head, _ = settled_head(control, planned, self._patience)
        if reason := reset_of(planned, head, stream, control.sameness(planned, head)):
            raise DataLossError(f"{reason}. Load the frame anew")
        return head

    def end(self) -> int:
        head = self.head
        return min(locate(self._control, self._options.ending, head, as_end=True), head.last_seq)


def _noted(home: Path, plan: str, job: str, find: Callable[[], int]) -> int:
    """The end of the stream for a job: noted, or found now; 0 for the first job of a plan, which has its."""
    if not _LOCKS:
        return 0
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(home / plan, os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = file.read()
        if not text:
            _remove_unused(home)
        ends = _ends(text)
        if job not in ends:
            ends[job] = find() if text else 0
            file.seek(0)
            file.truncate()
            json.dump(dict(list(ends.items())[-JOBS_KEPT:]), file)
        return ends[job]


def _ends(text: str) -> dict[str, int]:
    """The end for each job that is noted; none where a full disk has cut the note."""
    try:
        found = read_json(text) if text else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _remove_unused(home: Path) -> None:
    for note in home.iterdir():
        if time.time() - note.stat().st_mtime > KEPT_S:
            note.unlink(missing_ok=True)
