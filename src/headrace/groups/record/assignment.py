"""Which partition belongs to which member. Pure.

Every member computes this from the same record, so nobody has to be asked. The distribution is that of the
shipped Go implementation: the names are sorted and cut to the number of partitions; each gets one block of
neighbouring partitions, and what does not divide evenly is dealt out from the first name on.
Source: partitioned consumer groups document, "Partition to member distribution".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...api.streams import SubjectTransformConfig


class PartitioningFilter(NamedTuple):
    """Subjects that an elastic group takes, and which of their tokens are the key.

    Attributes:
        filter: a subject pattern with at least one ``*``, or ending in ``>``.
        partitioning_wildcards: which ``*`` of it, counted from 1, make up the key; none: the whole
            subject is the key.
    """

    filter: str
    partitioning_wildcards: tuple[int, ...] | None = None


def key_positions(each: PartitioningFilter) -> tuple[int, ...]:
    """Which tokens of a subject that matches the filter are its key, from 0; empty: the whole subject."""
    positions = [i for i, part in enumerate(each.filter.split(".")) if part == "*"]
    return tuple(positions[index - 1] for index in each.partitioning_wildcards or ())


class MemberMapping(NamedTuple):
    """The partitions that one member was given by hand.

    Attributes:
        member: the member's name.
        partitions: numbers from 0 up to the number of partitions, exclusively.
    """

    member: str
    partitions: tuple[int, ...]


def assign(
    partitions: int, members: Iterable[str] = (), mappings: Iterable[MemberMapping] = ()
) -> dict[str, tuple[int, ...]]:
    """The partitions of every member, in the order of the names; a member may have none.

    Args:
        partitions: how many there are.
        members: names among which all are distributed; doubles count once. They win over ``mappings``.
        mappings: the distribution, where it was given by hand.
    """
    names = sorted(set(members), key=str.encode)
    if not names:
        return {mapping.member: tuple(mapping.partitions) for mapping in mappings}
    owned: dict[str, list[int]] = {name: [] for name in names}
    sharing = names[:partitions]
    block, even = partitions // len(sharing), partitions - partitions % len(sharing)
    for number in range(partitions):
        owner = number // block if number < even else number - even
        owned[sharing[owner]].append(number)
    return {name: tuple(numbers) for name, numbers in owned.items()}


def filter_subjects(
    partitions: Iterable[int], filters: Sequence[str] = (), *, mapped: bool = False
) -> tuple[str, ...]:
    """What a member's consumer reads: each of its partitions, within each of the group's filters.

    Members of other implementations create the same consumer, so the order matters, and so does that a
    group with mappings (``mapped``) ignores the filters.
    """
    numbers = tuple(partitions)
    wanted = tuple(dict.fromkeys(filters)) if filters and not mapped else (">",)
    return tuple(f"{number}.{subject}" for subject in wanted for number in numbers)


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
