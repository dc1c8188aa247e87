"""How processes share the tests: which files stay together, and the longest first.

A long file that is begun last would let the other processes wait. ``tests/seconds.txt`` says how long each
takes; ``make test-seconds`` writes it. Files whose tests share a session of Spark go to one process: in each
other one, Java would have to start and to warm up, too.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

__all__ = [
    "SECONDS",
    "SPARK",
    "Taken",
    "in_order",
    "known",
    "longest_first",
    "share_of",
    "with_spark",
]

ROOT: Final = Path(__file__).resolve().parents[1]
SECONDS: Final = ROOT / "tests" / "seconds.txt"
SPARK: Final = "tests/spark with a session"
UNKNOWN_S: Final = 20.0
"""What a file is taken for that is not listed: better a short one begun early than a long one begun late."""


class Taken(NamedTuple):
    """How many tests a file or a room has, and how long they take."""

    tests: int
    seconds: float


def known() -> dict[str, Taken]:
    """What is listed of each file."""
    found = {}
    for line in SECONDS.read_text().splitlines():
        file, tests, seconds = line.split()
        found[file] = Taken(int(tests), float(seconds))
    return found


@cache
def with_spark() -> frozenset[str]:
    """The files whose tests share a session of Spark."""
    files = (ROOT / "tests" / "spark").rglob("test_*.py")
    found = (path for path in files if re.search(r"\bspark: SparkSession\b", path.read_text()))
    return frozenset(path.relative_to(ROOT).as_posix() for path in found)


def share_of(file: str) -> str:
    """What goes to one process: a file, or all files that share a session of Spark."""
    return SPARK if file in with_spark() else file


def longest_first(files: Iterable[str], times: Mapping[str, Taken]) -> list[str]:
    """Each file once, by how long its share takes. Those that take equally long stay in their order."""
    shares: dict[str, list[str]] = defaultdict(list)
    for file in dict.fromkeys(files):
        shares[share_of(file)].append(file)
    unknown = Taken(1, UNKNOWN_S)

    def seconds_of(share: list[str]) -> float:
        return sum(times.get(file, unknown).seconds for file in share)

    return [
        file for share in sorted(shares.values(), key=seconds_of, reverse=True) for file in share
    ]


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests, in the order of their files; those of a file stay together, as they were."""
    files = [item.path.relative_to(ROOT).as_posix() for item in items]
    place = {file: number for number, file in enumerate(longest_first(files, known()))}
    return [
        item for _, item in sorted(zip(files, items, strict=True), key=lambda pair: place[pair[0]])
    ]
