"""What a group's settings may be. The texts are those of the shipped Go implementation. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ...subjects import is_valid_pattern
from ..errors import GroupConfigurationError
from .assignment import MemberMapping
from .names import check_member_name

PARTITIONS_MAX: Final = 65_536
"""More partitions would make filter lists and assignments that no server takes."""


def check_partitions(partitions: int) -> None:
    """The number of partitions, which is the most members that can have work."""
    if not isinstance(partitions, int) or isinstance(partitions, bool):
        raise GroupConfigurationError(f"max_members is {partitions!r}; accepted: a whole number")
    if partitions < 1:
        raise GroupConfigurationError("the max number of members must be >= 1")
    if partitions > PARTITIONS_MAX:
        raise GroupConfigurationError(
            f"max_members is {partitions}; accepted: at most {PARTITIONS_MAX}"
        )


def check_filter(pattern: str) -> None:
    """A pattern of a static group, without the partition."""
    if not isinstance(pattern, str) or not is_valid_pattern(pattern.encode()):
        raise GroupConfigurationError(
            f"filter {pattern!r}: accepted are subject patterns without the partition, "
            "such as 'orders.*' or 'orders.>'"
        )


def check_partitioning_filter(pattern: str, wildcards: Sequence[int]) -> None:
    """A pattern of an elastic group and the numbers of its wildcards that are the key."""
    if not pattern:
        raise GroupConfigurationError("partitioning filters must have a non-empty filter")
    check_filter(pattern)
    tokens = pattern.split(".")
    count = tokens.count("*")
    where = f" (filter {pattern!r})"
    if not count and tokens[-1] != ">":
        raise GroupConfigurationError(
            "partitioning filters must have at least one * wildcard or end with > wildcard" + where
        )
    if len(wildcards) > count:
        raise GroupConfigurationError(
            "the number of partitioning wildcards must not be larger than the total number of * "
            "wildcards in the filter" + where
        )
    if len(set(wildcards)) != len(wildcards):
        raise GroupConfigurationError("partitioning wildcard indexes must be unique" + where)
    if not all(1 <= index <= count for index in wildcards):
        raise GroupConfigurationError(
            "partitioning wildcard indexes must be between 1 and the number of * wildcards in the "
            "filter" + where
        )


def check_buffer(name: str, size: int) -> None:
    """A limit of the work queue; 0 and -1 mean none."""
    if not isinstance(size, int) or isinstance(size, bool) or size < -1:
        raise GroupConfigurationError(
            f"{name} is {size!r}; accepted: 0 (no limit) or a positive number"
        )


def check_membership(
    partitions: int,
    members: Sequence[str],
    mappings: Sequence[MemberMapping],
    said_of_mappings: str = "",
) -> None:
    """Members or mappings, not both; mappings name each partition once."""
    if members and mappings:
        raise GroupConfigurationError(
            "either members or member mappings must be provided, not both"
        )
    for name in (*members, *(mapping.member for mapping in mappings)):
        check_member_name(name)
    if not mappings:
        return
    if len(mappings) > partitions:
        raise GroupConfigurationError(
            "the number of member mappings must be between 1 and the max number of members"
        )
    if len({mapping.member for mapping in mappings}) != len(mappings):
        raise GroupConfigurationError("member names must be unique")
    numbers = [number for mapping in mappings for number in mapping.partitions]
    if len(set(numbers)) != len(numbers):
        raise GroupConfigurationError("partition numbers must be used only once")
    if not all(0 <= number < partitions for number in numbers):
        raise GroupConfigurationError(
            "partition numbers must be between 0 and one less than the max number of members"
        )
    if len(numbers) != partitions:
        raise GroupConfigurationError(
            f"the number of unique partition numbers {said_of_mappings}must be equal to the max "
            "number of members"
        )


def texts_given(name: str, given: Iterable[str]) -> tuple[str, ...]:
    """A list of texts that a caller gave; one text alone would be taken for a list of letters."""
    if isinstance(given, str):
        raise GroupConfigurationError(f"{name} is {given!r}; accepted: a list, such as [{given!r}]")
    return tuple(given)


def mappings_given(given: Iterable[MemberMapping]) -> tuple[MemberMapping, ...]:
    """Mappings that a caller gave, whatever their partitions are listed in."""
    return tuple(MemberMapping(member, tuple(partitions)) for member, partitions in given)
