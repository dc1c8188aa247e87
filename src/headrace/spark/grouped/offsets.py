"""Offsets of a query that is a member of a group: a position for each partition that it has. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ...errors import ConfigurationError

VERSION = 1


class GroupOffset(NamedTuple):
    """The last sequence read of each partition, in the stream created at ``epoch``.

    A partition that is not named was not the query's: all that is there of it is still to be read.
    ``begins``: where the batch that ends here begins in a partition, if not where the batch before ended;
    another member has handled what is before.
    """

    epoch: str
    positions: Mapping[int, int]
    begins: Mapping[int, int] = MappingProxyType({})

    def to_dict(self) -> dict[str, Any]:
        """The form Spark keeps in its checkpoint; keys sorted, as Spark compares the text."""
        raw: dict[str, Any] = {"b": _written(self.begins)} if self.begins else {}
        return raw | {"epoch": self.epoch, "p": _written(self.positions), "v": VERSION}

    @classmethod
    def from_dict(cls, raw: object) -> GroupOffset:
        """Read the output of ``to_dict``. Raises ConfigurationError that says what was found instead."""
        if not isinstance(raw, dict) or "p" not in raw:
            raise ConfigurationError(
                f"the checkpoint's offset is not that of a query with the option 'group': {raw!r}"
            )
        version, epoch, positions = raw.get("v"), raw.get("epoch"), raw["p"]
        if version != VERSION:
            raise ConfigurationError(
                f"the checkpoint's offset has version {version!r}; this release reads version {VERSION}"
            )
        found, begins = _read(positions), _read(raw.get("b", {}))
        if not isinstance(epoch, str) or found is None or begins is None:
            raise ConfigurationError(f"the checkpoint's offset is damaged: {raw!r}")
        return cls(epoch, found, begins)


def _written(positions: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): positions[partition] for partition in sorted(positions)}


def _read(raw: object) -> dict[int, int] | None:
    if not isinstance(raw, dict):
        return None
    for partition, position in raw.items():
        is_count = isinstance(position, int) and not isinstance(position, bool) and position >= 0
        if not (isinstance(partition, str) and partition.isdecimal() and is_count):
            return None
    return {int(partition): position for partition, position in raw.items()}


class Piece(NamedTuple):
    """One task: the sequences ``(lo, hi]`` of these partitions."""

    lo: int
    hi: int
    partitions: tuple[int, ...]


def split(
    start: GroupOffset, end: GroupOffset, *, max_tasks: int, min_messages: int
) -> list[Piece]:
    """The tasks of a batch. Each partition is in one task, so its messages stay in order.

    The tasks of a range read it together, each for its partitions. Those of which a range begins elsewhere,
    as they were somebody else's until now, have tasks of their own.
    """
    ranges: dict[tuple[int, int], list[int]] = {}
    for partition in sorted(end.positions):
        lo = end.begins.get(partition, start.positions.get(partition, 0))
        hi = end.positions[partition]
        if lo < hi:
            ranges.setdefault((lo, hi), []).append(partition)
    pieces = []
    for (lo, hi), partitions in sorted(ranges.items()):
        enough = -(-(hi - lo) // min_messages)
        tasks = max(1, min(max_tasks, len(partitions), enough))
        pieces += [Piece(lo, hi, tuple(partitions[n::tasks])) for n in range(tasks)]
    return pieces
