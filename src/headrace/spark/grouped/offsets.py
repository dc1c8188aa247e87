"""Offsets of a query that is a member of a group: a position for each partition that it has. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ...errors import ConfigurationError
from ..offsets import Offset, is_sequence

VERSION = 1


class GroupOffset(NamedTuple):
    """The last sequence read of each partition, in the stream created at ``epoch``.

    ``stored_ns``: when the message at the highest of them was stored (0: no message has that sequence).

    A partition that is not named was not the query's: all that is there of it is still to be read.
    ``begins``: where the batch that ends here begins in a partition, if not where the batch before ended;
    another member has handled what is before.
    """

    epoch: str
    positions: Mapping[int, int]
    begins: Mapping[int, int] = MappingProxyType({})
    stored_ns: int = 0

    @property
    def highest(self) -> Offset:
        """What the stream is known by: the highest position."""
        last = max(self.positions.values(), default=0)
        return Offset(last, self.epoch, stored_ns=self.stored_ns)

    def up_to(self, sequence: int) -> GroupOffset:
        """No position beyond a sequence; others are not what they were in this stream."""
        return self._replace(
            positions={p: min(position, sequence) for p, position in self.positions.items()},
            begins={p: min(position, sequence) for p, position in self.begins.items()},
            stored_ns=0,
        )

    def to_dict(self) -> dict[str, Any]:
        """The form Spark keeps in its checkpoint; keys sorted, as Spark compares the text."""
        raw: dict[str, Any] = {"b": _written(self.begins)} if self.begins else {}
        raw |= {"epoch": self.epoch, "p": _written(self.positions)}
        return raw | ({"stored": self.stored_ns} if self.stored_ns else {}) | {"v": VERSION}

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
        stored = raw.get("stored", 0)
        is_time = isinstance(stored, int) and not isinstance(stored, bool) and stored >= 0
        if not isinstance(epoch, str) or found is None or begins is None or not is_time:
            raise ConfigurationError(f"the checkpoint's offset is damaged: {raw!r}")
        return cls(epoch, found, begins, stored)


def _written(positions: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): positions[partition] for partition in sorted(positions)}


def _read(raw: object) -> dict[int, int] | None:
    if not isinstance(raw, dict):
        return None
    for partition, position in raw.items():
        if not (isinstance(partition, str) and partition.isdecimal() and is_sequence(position)):
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
