"""Positions and tasks of a batch, with what has to be asked of the server for them."""

from __future__ import annotations

from ..api.streams import StreamConfig
from ..errors import ConfigurationError
from .control import Control
from .offsets import StreamHead
from .options import SourceOptions, StartPosition
from .planning import Count, Slice, split_by_count, split_by_partition


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
    return info.delivered.stream_seq


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
) -> list[Slice]:
    """Split ``(lo, hi]``, stored at or after ``since_ns``, as the options say, without a gap at its start."""
    # Of one subject the server leaves out the others, if they are many; of several the reader does.
    subjects = options.subjects if len(options.subjects) == 1 else ()
    if hi > lo and (subjects or head.messages < head.last_seq - head.first_seq + 1):
        first = control.next_stored(lo + 1, subjects[0] if subjects else ">")
        lo = min(first - 1, hi) if first else hi
    if options.split_by == "partition":
        slices = split_by_partition(
            lo, hi, partitions=options.partitions, max_tasks=options.max_tasks
        )
    else:
        slices = split_by_count(
            lo,
            hi,
            max_tasks=options.max_tasks,
            min_messages=options.min_messages_per_task,
            count=counter(control, head, config, subjects),
        )
    return [piece._replace(since_ns=since_ns, epoch=head.epoch) for piece in slices]
