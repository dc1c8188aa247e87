"""What is written on the command line for filters and mappings. Pure."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

from ...groups import AfterConsumer, AfterGroup, MemberMapping, PartitioningFilter
from ...groups.start import Start
from ..shared.units import parse_moment

_INDEXES: Final = re.compile(r"(.*):((?:\d+(?:,\d+)*)?)", re.DOTALL)
_NUMBERS: Final = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*")
_PARTITIONS_MAX: Final = 65_536


def partitioning_filter(text: str) -> PartitioningFilter:
    """``orders.*.*:1,2``: the first and the second * are the key. Without numbers the subject is."""
    found = _INDEXES.fullmatch(text)
    if found is None:
        return PartitioningFilter(text)
    pattern, indexes = found.groups()
    return PartitioningFilter(pattern, tuple(map(int, indexes.split(","))) if indexes else ())


def filter_text(each: PartitioningFilter) -> str:
    """A filter as it is written on the command line."""
    if each.partitioning_wildcards:
        return f"{each.filter}:{','.join(map(str, each.partitioning_wildcards))}"
    return each.filter


def start(text: str, now: datetime) -> Start:
    """Where a group begins: ``all``, ``now``, a sequence, a time, how long ago, or where another one
    is. Raises ValueError."""
    if text in ("all", "now"):
        return "all" if text == "all" else "now"
    if text.isdigit():
        return int(text)
    word, colon, name = text.partition(":")
    if colon and name and word == "consumer":
        return AfterConsumer(name)
    if colon and name and word in ("group", "static", "elastic"):
        kind: Any = "" if word == "group" else word
        return AfterGroup(name, kind)
    try:
        return parse_moment(text, now)
    except ValueError:
        raise ValueError(
            f"{text!r}: accepted are all, now, a sequence, a time, how long ago, such as 1h, and "
            "consumer:NAME or group:NAME, where that one is"
        ) from None


def mapping(text: str) -> MemberMapping:
    """``m1:0,2-4``: a member and its partitions. Raises ValueError."""
    member, colon, numbers = text.partition(":")
    if not colon or _NUMBERS.fullmatch(numbers) is None:
        raise ValueError(f"{text!r}: accepted is a member with its partitions, such as m1:0,2-4")
    partitions: list[int] = []
    for part in numbers.split(","):
        first, _, last = part.partition("-")
        if int(last or first) >= _PARTITIONS_MAX:
            raise ValueError(f"{text!r}: a partition is below {_PARTITIONS_MAX}")
        partitions.extend(range(int(first), int(last or first) + 1))
    return MemberMapping(member, tuple(partitions))


def mapping_text(each: MemberMapping) -> str:
    """A mapping as it is written on the command line."""
    return f"{each.member}:{ranges(each.partitions)}"


def ranges(numbers: tuple[int, ...]) -> str:
    """Numbers in short: ``0-2,5``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)
