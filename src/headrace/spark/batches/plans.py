"""Positions and tasks of a batch, with what has to be asked of the server for them."""

from __future__ import annotations

import logging
import secrets
from dataclasses import replace
from typing import Final, NamedTuple

from ...api.streams import StreamConfig
from ...errors import HeadraceError
from ..links.control import Control, StreamMissingError
from ..links.link import Link
from ..loss import may_be_loss, stored_after
from ..lost_messages import Loss, tell
from ..offsets import Offset, StreamHead, check_range
from ..options import SourceOptions
from ..positions import locate, with_open_ends
from ..slices import ROUTED_BYTES_MAX, Count, Slice, share_out, split_by_count, split_by_partition

_LOG: Final = logging.getLogger("headrace.spark")

CHECK_S: Final = 1.0  # how long a frame that is being defined waits for a server


def counter(
    control: Control, head: StreamHead, config: StreamConfig, subjects: tuple[str, ...]
) -> Count:
    """Counts messages, by arithmetic where the stream has no gaps and no subject is left out.

    A work queue allows no consumer that could count; there every sequence counts as a message.
    """
    has_gaps = head.messages < head.last_seq - head.first_seq + 1
    if config.retention == "workqueue" or not (has_gaps or subjects):
        return lambda lo, hi: max(0, hi - lo)
    return lambda lo, hi: control.count(lo, hi, subjects)


def plan_tasks(
    options: SourceOptions,
    lo: int,
    hi: int,
    since_ns: int,
    control: Control,
    head: StreamHead,
    config: StreamConfig,
    *,
    max_tasks: int | None = None,
    min_tasks: int | None = None,
    end: tuple[int, int] = (0, 0),
) -> list[Slice]:
    """Split ``(lo, hi]``, stored at or after ``since_ns``, as the options say, without a gap at its start.

    ``max_tasks`` and ``min_tasks`` are what other streams of the query leave of the options'.
    """
    most = options.max_tasks if max_tasks is None else max_tasks
    least = options.min_tasks if min_tasks is None else min_tasks
    # Of one subject the server leaves out the others, if they are many; of several the reader does.
    subjects = options.subjects if len(options.subjects) == 1 else ()
    if hi > lo and (subjects or head.messages < head.last_seq - head.first_seq + 1):
        first = control.next_stored(lo + 1, subjects[0] if subjects else ">")
        lo = min(first - 1, hi) if first else hi
    if options.split_by == "partition":
        # Every task has to go over the whole range, or share it with the others: a small one gets few.
        most = min(most, max(1, (hi - lo) // options.min_messages_per_task))
        slices = split_by_partition(lo, hi, partitions=options.partitions, max_tasks=most)
        if len(slices) > 1 and (hi - lo) * head.mean_bytes <= ROUTED_BYTES_MAX:
            route = secrets.token_hex(8)
            slices = [piece._replace(route=route, tasks=len(slices)) for piece in slices]
    else:
        fair = -(-(hi - lo) // least) if least > 1 else options.min_messages_per_task
        slices = split_by_count(
            lo,
            hi,
            max_tasks=max(most, least),
            min_messages=max(1, min(options.min_messages_per_task, fair)),
            count=counter(control, head, config, subjects),
        )
    return [
        piece._replace(
            since_ns=since_ns,
            epoch=head.epoch,
            stream=options.stream,
            size=piece.width * head.mean_bytes,
            end=end,
        )
        for piece in slices
    ]


def plan_batch(options: SourceOptions) -> list[Slice]:
    """The tasks of a batch read: of each stream what the options say, as it is now, with edges that move with
    the stream where the options say ``earliest`` and ``latest``.

    Raises:
        DataLossError: messages of the range were removed, and ``failOnDataLoss`` is set.
    """
    link = Link.open(options.connection)
    try:
        found = [_bounds(each, Control(link, each.stream)) for each in options.each()]
        if options.last_per_subject:
            return [
                Slice(
                    0, bounds.head.last_seq, epoch=bounds.head.epoch, stream=bounds.control.stream
                )
                for bounds in found
            ]
        widths = {bounds.control.stream: bounds.hi - bounds.lo for bounds in found}
        most = share_out(options.max_tasks, widths)
        least = share_out(options.min_tasks, widths)
        return [
            piece
            for each, bounds in zip(options.each(), found, strict=True)
            for piece in with_open_ends(
                _pieces(each, bounds, max(1, most[each.stream]), max(1, least[each.stream])),
                Slice(
                    bounds.hi,
                    bounds.hi,
                    (),
                    bounds.since_ns,
                    bounds.head.epoch,
                    each.stream,
                    end=bounds.end,
                ),
                each,
                bounds.head.last_seq,
                secrets.token_hex(16),
            )
        ]
    finally:
        link.close()


class _Bounds(NamedTuple):
    """What a batch read takes of a stream: the sequences ``(lo, hi]``, as ``plan_tasks`` wants them.

    ``end``: what the stream is known by, as in a ``Slice``.
    """

    lo: int
    hi: int
    since_ns: int
    control: Control
    head: StreamHead
    config: StreamConfig
    end: tuple[int, int]


def _pieces(options: SourceOptions, bounds: _Bounds, most: int, least: int) -> list[Slice]:
    if bounds.hi <= bounds.lo:
        return []
    return plan_tasks(
        options,
        bounds.lo,
        bounds.hi,
        bounds.since_ns,
        bounds.control,
        bounds.head,
        bounds.config,
        max_tasks=most,
        min_tasks=least,
        end=bounds.end,
    )


def _bounds(options: SourceOptions, control: Control) -> _Bounds:
    head, config = control.head()
    lo = locate(control, options.starting, head, as_end=False)
    hi = min(locate(control, options.ending, head, as_end=True), head.last_seq)
    since_ns = stored_after(head, lo)
    if hi > lo:
        is_loss = may_be_loss(config, head, since_ns)
        fail = options.fail_on_data_loss and is_loss
        start, end = Offset(lo, head.epoch), Offset(hi, head.epoch)
        lo, hi = check_range(start, end, head, options.stream, fail_on_loss=fail)
        if is_loss and lo > start.seq:
            tell(Loss(options.stream, start.seq + 1, lo, lo - start.seq))
    hi = max(lo, hi)
    return _Bounds(lo, hi, since_ns, control, head, config, (hi, control.stored_ns(hi, head)))


def check_streams(options: SourceOptions) -> None:
    """Ask whether the streams exist, while the user still looks at the line that names them.

    A server that does not answer soon is no reason to fail: a query says so when it starts.

    Raises:
        StreamMissingError: a stream does not exist; the text names similar ones.
    """
    connection = options.connection
    soon = replace(
        connection,
        connect_timeout_s=min(CHECK_S, connection.connect_timeout_s),
        request_timeout_s=min(CHECK_S, connection.request_timeout_s),
    )
    try:
        link = Link.open(soon)
        try:
            for stream in options.streams:
                Control(link, stream).stream_info()
        finally:
            link.close()
    except StreamMissingError:
        raise
    except HeadraceError as error:
        _LOG.debug("streams not checked yet: %s", error)
