"""How processes share the tests: which files stay together, and the longest first.

A long file that is begun last would let the other processes wait. ``tests/seconds.txt`` says how long each
takes; ``make test-seconds`` writes it. Files whose tests share a session of Spark go to one process, and so
do those that share a browser: in each other one, Java or Chromium would have to start and to warm up, too.
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
    "BROWSER",
    "SECONDS",
    "SPARK",
    "Share",
    "Taken",
    "in_order",
    "known",
    "longest_first",
    "share_of",
]

ROOT: Final = Path(__file__).resolve().parents[1]
SECONDS: Final = ROOT / "tests" / "seconds.txt"
UNKNOWN_S: Final = 20.0
"""What a file is taken for that is not listed: better a short one begun early than a long one begun late."""


class Share(NamedTuple):
    """The files below a folder whose tests take what a process starts once."""

    name: str
    folder: str
    fixture: str
    """As tests take it, with its type."""

    def files(self) -> frozenset[str]:
        found = (ROOT / self.folder).rglob("test_*.py")
        taking = re.compile(rf"\b{re.escape(self.fixture)}\b")
        return frozenset(
            path.relative_to(ROOT).as_posix() for path in found if taking.search(path.read_text())
        )


SPARK: Final = Share("tests/spark with a session", "tests/spark", "spark: SparkSession")
BROWSER: Final = Share("tests/console with a page", "tests/console", "page: Any")


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
def _shares() -> dict[str, str]:
    return {file: share.name for share in (SPARK, BROWSER) for file in share.files()}


def share_of(file: str) -> str:
    """What goes to one process: a file, or all files that share what a process starts once."""
    return _shares().get(file, file)


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
