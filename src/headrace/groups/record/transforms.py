"""How an elastic group's work queue stream numbers the subjects it copies. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ...api.streams import SubjectTransformConfig
from .records import PartitioningFilter


def destination(subject_filter: str, wildcards: Iterable[int], partitions: int) -> str:
    """The destination that puts the partition's number before a subject.

    ``foo.*.>`` by wildcard 1 in 4 partitions is ``{{Partition(4,1)}}.foo.{{Wildcard(1)}}.>``. Without
    ``wildcards`` the whole subject decides.
    """
    count = 0
    parts = []
    for part in subject_filter.split("."):
        if part == "*":
            count += 1
            part = f"{{{{Wildcard({count})}}}}"
        parts.append(part)
    arguments = ",".join(map(str, (partitions, *wildcards)))
    return f"{{{{Partition({arguments})}}}}.{'.'.join(parts)}"


def transforms(
    filters: Iterable[PartitioningFilter], partitions: int
) -> tuple[SubjectTransformConfig, ...]:
    """The transforms of the stream's source: one for each filter, or one for everything."""
    wanted = tuple(filters) or (PartitioningFilter(">"),)
    return tuple(
        SubjectTransformConfig(
            src=each.filter,
            dest=destination(each.filter, each.partitioning_wildcards or (), partitions),
        )
        for each in wanted
    )
