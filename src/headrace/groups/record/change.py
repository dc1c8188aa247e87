"""The next step of a change of an elastic group, decided of its record. Pure."""

from __future__ import annotations

import dataclasses
from enum import Enum, auto
from typing import Literal, NamedTuple

from .records import ElasticGroup, GroupChange

Numbering = Literal["record", "other", "neither"]


class Queue(NamedTuple):
    """What is seen of a work queue.

    Attributes:
        is_closed: whether it takes nothing.
        numbering: whose partitions it numbers: those of the record, of its change, or of neither.
        messages: how many are in it, not handled and confirmed yet.
        copied: its last sequence.
    """

    is_closed: bool
    numbering: Numbering
    messages: int
    copied: int


class Step(Enum):
    """What is to be done."""

    CLOSE = auto()
    MARK = auto()
    CLOSE_AGAIN = auto()
    WAIT = auto()
    SWITCH = auto()
    RENUMBER = auto()
    FINISH = auto()
    REOPEN = auto()
    FORGET = auto()
    RECOVER = auto()
    NOTHING = auto()


def next_step(record: ElasticGroup, queue: Queue) -> Step:
    """What follows from the record and the queue."""
    change = record.change
    if change is None:
        if not queue.is_closed:
            return Step.NOTHING
        # Others, who do not know of changes, have written the record anew without it.
        return Step.REOPEN if queue.numbering == "record" else Step.RECOVER
    if change.phase == "undoing":
        return Step.REOPEN if queue.is_closed else Step.FORGET
    if change.phase == "closing":
        return Step.MARK if queue.is_closed else Step.CLOSE
    if change.phase == "switching":
        is_new = queue.numbering == "record" and not queue.is_closed
        return Step.FINISH if is_new else Step.RENUMBER
    if not queue.is_closed or queue.copied != change.copied:
        return (
            Step.CLOSE_AGAIN
        )  # somebody has opened it, and more was handled than the boundary says
    return Step.WAIT if queue.messages else Step.SWITCH


def begun(record: ElasticGroup, wanted: ElasticGroup, queue_bytes: int) -> ElasticGroup:
    """The record of a group that is to become ``wanted``."""
    return dataclasses.replace(record, change=_side("closing", wanted, queue_bytes=queue_bytes))


def marked(record: ElasticGroup, boundary: int, copied: int) -> ElasticGroup:
    """The record once the queue is closed."""
    return _with(record, phase="draining", boundary=boundary, copied=copied)


def closing_again(record: ElasticGroup) -> ElasticGroup:
    """The record of a change whose queue was opened by somebody."""
    return _with(record, phase="closing", boundary=0, copied=0)


def switched(record: ElasticGroup) -> ElasticGroup:
    """The record with the new settings; its change has the former ones."""
    change, wanted = record.change, record.other_side()
    assert change is not None
    assert wanted is not None
    former = _side(
        "switching",
        record,
        boundary=change.boundary,
        copied=change.copied,
        queue_bytes=change.queue_bytes,
    )
    return dataclasses.replace(wanted, changed=record.changed + 1, change=former)


def recovered(record: ElasticGroup, boundary: int, copied: int) -> ElasticGroup:
    """The record of a change that was switched, and lost by others before the queue had its new numbers."""
    change = _side("switching", record, boundary=boundary, copied=copied)
    return dataclasses.replace(record, change=change)


def undoing(record: ElasticGroup) -> ElasticGroup:
    """The record of a change that goes no further."""
    return _with(record, phase="undoing")


def ended(record: ElasticGroup) -> ElasticGroup:
    """The record without a change."""
    return dataclasses.replace(record, change=None)


def _side(phase: Literal["closing", "switching"], group: ElasticGroup, **more: int) -> GroupChange:
    return GroupChange(
        phase,
        group.max_members,
        group.partitioning_filters,
        group.max_buffered_messages,
        group.max_buffered_bytes,
        group.member_mappings,
        **more,
    )


def _with(record: ElasticGroup, **values: object) -> ElasticGroup:
    assert record.change is not None
    change = dataclasses.replace(record.change, **values)  # type: ignore[arg-type]
    return dataclasses.replace(record, change=change)
