"""A change of an elastic group that is under way, as the group's record holds it. Pure.

Members of other implementations, and of older versions, do not know the field and go on with what they know
until the record's own fields change; then they end, as they do at any change that they cannot follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from ..errors import GroupRecordError
from .assignment import MemberMapping
from .reader import PartitioningFilter, RecordReader

ChangePhase = Literal["closing", "draining", "switching", "undoing"]
CLOSED_BYTES: Final = 1
"""The limit of a work queue that takes nothing: no message is so small. Its copy waits, as at a full one."""

_PHASES: Final[tuple[str, ...]] = get_args(ChangePhase)


@dataclass(frozen=True, slots=True)
class GroupChange:
    """A change that is under way. It has the settings that the record itself has not: up to the switch those
    that are to come, from the switch on those that were.

    Attributes:
        phase: ``closing``: the work queue is being closed; ``draining``: it takes nothing more, and
            the members handle what is in it; ``switching``: it is empty, the record has the new settings, and
            the work queue gets them; ``undoing``: it is being opened again.
        max_members, partitioning_filters, max_buffered_messages, max_buffered_bytes: as of the group.
        member_mappings: the distribution by hand, if the change gives one.
        boundary: the last message of the stream, as a sequence, that belongs to the former settings; 0: none.
        copied: the last sequence of the work queue when it was closed.
        queue_bytes: the limit in bytes that the work queue had before it was closed.
    """

    phase: ChangePhase
    max_members: int
    partitioning_filters: tuple[PartitioningFilter, ...] | None = None
    max_buffered_messages: int = 0
    max_buffered_bytes: int = 0
    member_mappings: tuple[MemberMapping, ...] = ()
    boundary: int = 0
    copied: int = 0
    queue_bytes: int = -1

    def fields(self) -> dict[str, object]:
        """What is stored."""
        filters = self.partitioning_filters
        return {
            "phase": self.phase,
            "max_members": self.max_members,
            "partitioning_filters": None if filters is None else [f._asdict() for f in filters],
            "max_buffered_msg": self.max_buffered_messages,
            "max_buffered_bytes": self.max_buffered_bytes,
            "member_mappings": [each._asdict() for each in self.member_mappings],
            "boundary": self.boundary,
            "copied": self.copied,
            "queue_bytes": self.queue_bytes,
        }


def read_change(what: str, fields: Mapping[str, Any] | None) -> GroupChange | None:
    """The change in a record, if there is one. Raises GroupRecordError."""
    if fields is None:
        return None
    read = RecordReader(f"the change of {what}", fields)
    phase: Any = read.text("phase")
    if phase not in _PHASES:
        raise GroupRecordError(
            f"{what} is being changed and is {phase!r}, which this version does not know; it knows "
            f"{', '.join(map(repr, _PHASES))}"
        )
    return GroupChange(
        phase,
        read.whole("max_members"),
        read.partitioning_filters(),
        read.whole("max_buffered_msg"),
        read.whole("max_buffered_bytes"),
        read.mappings(),
        read.whole("boundary"),
        read.whole("copied"),
        read.whole("queue_bytes"),
    )
