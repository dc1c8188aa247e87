"""The tasks' side: reads single messages of a stream, those that a batch has."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ...errors import HeadraceError
from ..frames import Chunk, Rows, no_rows
from ..links.control import Control, settled_head
from ..links.link import Link
from ..links.outages import ServerPatience, may_pass
from ..offsets import Offset, StreamChangedError, reset_of
from ..reading.gets import MessageGets
from ..reading.reader import CHUNK_BYTES, GETS_IN_FLIGHT, PULL_BYTES
from ..slices import Slice

_LOG: Final = logging.getLogger("headrace.spark")


def pick(
    connect: Callable[[], Link],
    piece: Slice,
    rows_per_chunk: int,
    read_timeout_s: float,
    patience: ServerPatience,
) -> Iterator[Chunk]:
    """The messages of one task, in the stream's order.

    In a batch that runs again some may be gone: another worker has got and acknowledged them meanwhile. A
    warning says how many.

    Raises:
        DataLossError: the stream was made again.
    """
    left = [sequence for first, last in piece.runs for sequence in range(first, last + 1)]
    wanted, found = len(left), 0
    link: Link | None = None
    while True:
        try:
            link = connect()
            control = Control(link, piece.stream)
            window = max(
                1, min(GETS_IN_FLIGHT, PULL_BYTES // _mean_bytes(control, piece, patience))
            )
            gets = MessageGets(link, piece.stream, read_timeout_s)
            try:
                while left:
                    rows, count = _read(gets, left, window, rows_per_chunk)
                    _mean_bytes(control, piece, patience)  # still the same stream
                    del left[:count]
                    patience.restart()
                    found += len(rows.sequences)
                    if rows.sequences:
                        yield rows.as_chunk(rows.sequences[-1])
            except GeneratorExit:
                link.close()  # nobody wants what still comes
                raise
            gets.close()
            break
        except HeadraceError as error:
            if not may_pass(error):
                raise
            if link is not None:
                link.close()
            patience.pause(error)
    if found < wanted:
        _LOG.warning(
            "stream %r: %d of the %d messages of a task are gone: acknowledged by a worker who got them "
            "again, or removed",
            piece.stream,
            wanted - found,
            wanted,
        )


def _mean_bytes(control: Control, piece: Slice, patience: ServerPatience) -> int:
    """How large messages are. Raises DataLossError if the stream is not the one that was planned for."""
    end = Offset(piece.end[0], piece.epoch, stored_ns=piece.end[1])
    head, _ = settled_head(control, end, patience)
    if reason := reset_of(end, head, piece.stream, control.sameness(end, head)):
        raise StreamChangedError(
            f"{reason}. It happened while a batch was read; start the query again"
        )
    return head.mean_bytes


def _read(gets: MessageGets, wanted: Sequence[int], window: int, most: int) -> tuple[Rows, int]:
    """At most ``most`` of the wanted messages that are there, and how many of ``wanted`` are done with it."""
    rows = no_rows()
    size = done = 0
    while done < len(wanted) and len(rows.sequences) < most and size < CHUNK_BYTES:
        some = wanted[done : done + min(window, most - len(rows.sequences))]
        gets.ask(some)
        came = gets.take()
        rows.add(came)
        size += sum(map(len, came.payloads))
        done += len(some)
    return rows, done
