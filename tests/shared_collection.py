"""Processes that share the tests find them together, too: each imports the files of its share.

Each of them needs the names of all tests, and runs those of some files. It tells the others which tests are
in the files of its share; a file of another's share is imported when its first test is to run.
"""

from __future__ import annotations

import gc
import zlib
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any, Final, SupportsIndex, overload

import pytest

from waiting import until_here

__all__ = ["OnDemand", "SharedCollection", "file_of", "share_of_file"]

WITHIN_S: Final = 600.0
"""How long the others may take to find theirs: on a fresh clone, pytest compiles each file."""

Order = Callable[[list[pytest.Item]], list[pytest.Item]]


def file_of(test: str) -> str:
    """The file in which a test of this name is."""
    return test.partition("::")[0]


def share_of_file(file: str, of: int) -> int:
    """Which of so many processes finds the tests in a file."""
    return zlib.crc32(file.encode()) % of


class Postponed(pytest.Item):
    """Stands for a test in a file that is not imported yet. It fails where the file has no such test then:
    somebody changed the file meanwhile, or its tests are not the same in every process."""

    def runtest(self) -> None:
        raise RuntimeError(f"{self.nodeid} was found by another process, and not by this one")


class OnDemand(list[pytest.Item]):
    """Tests, of which those in a file are found when one of them is looked at by its place."""

    def __init__(self, items: Iterable[pytest.Item], find: Callable[[Postponed], Any]) -> None:
        super().__init__(items)
        self._find = find
        self._places: dict[str, list[int]] = defaultdict(list)
        for place, item in enumerate(self):
            if isinstance(item, Postponed):
                self._places[file_of(item.nodeid)].append(place)

    @overload
    def __getitem__(self, place: SupportsIndex) -> pytest.Item: ...
    @overload
    def __getitem__(self, place: slice) -> list[pytest.Item]: ...
    def __getitem__(self, place: SupportsIndex | slice) -> pytest.Item | list[pytest.Item]:
        item = super().__getitem__(place)
        if not isinstance(item, Postponed):
            return item
        places = self._places.pop(file_of(item.nodeid), [])
        found = self._find(item) if places else {}
        for each in places:
            before = super().__getitem__(each)
            self[each] = found.get(before.nodeid, before)
        return super().__getitem__(place)


class SharedCollection:
    """A plugin of one process: its number, how many there are at first, and where they tell each other.

    Raises AssertionError: a process did not tell what is in its share.
    """

    def __init__(self, number: int, of: int, folder: Path, in_order: Order) -> None:
        self._number, self._of, self._folder, self._in_order = number, of, folder, in_order
        self._mine: dict[str, list[str]] = {}
        self._left: dict[str, pytest.Module] = {}
        self._are_all_known = False

    @classmethod
    def of_process(cls, config: pytest.Config, in_order: Order) -> SharedCollection | None:
        """None where nothing is shared: in a process alone, and where tests are asked for by their names or
        by how they ended last."""
        worker, base = getattr(config, "workerinput", None), config.option.basetemp
        by_name = any("::" in each for each in config.args)
        by_end = any(config.getoption(each, False) for each in ("lf", "failedfirst", "stepwise"))
        if worker is None or base is None or by_name or by_end:
            return None
        number = int(worker["workerid"].removeprefix("gw"))
        return cls(number, worker["workercount"], Path(base).parent / "found", in_order)

    @pytest.hookimpl(tryfirst=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> pytest.CollectReport | None:
        if self._are_all_known or not isinstance(collector, pytest.Module):
            return None
        # Who stands in for a process that ended has a number beyond the shares, which all are told.
        if share_of_file(collector.nodeid, self._of) == self._number:
            self._mine[collector.nodeid] = []
            return None
        self._left[collector.nodeid] = collector
        return pytest.CollectReport(collector.nodeid, "passed", None, [])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, session: pytest.Session, items: list[pytest.Item]
    ) -> Generator[None]:
        yield
        if self._are_all_known:
            return
        for item in items:
            self._mine.setdefault(file_of(item.nodeid), []).append(item.nodeid)
        self._tell()
        told = self._told()
        self._are_all_known = True
        here = {item.nodeid: item for item in items}
        items[:] = self._in_order(
            [
                here.get(test) or self._postponed(test)
                for file in sorted(told)
                for test in told[file]
            ]
        )
        session.items = OnDemand(items, lambda item: self._found(session, item))

    def _postponed(self, test: str) -> pytest.Item:
        module = self._left[file_of(test)]
        item: pytest.Item = Postponed.from_parent(module, name=test, nodeid=test)
        return item

    def _tell(self) -> None:
        if self._number >= self._of:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        lines = [line for file, tests in self._mine.items() for line in (file, *tests)]
        new = self._folder / f"{self._number}.new"
        new.write_text("\n".join(lines))
        new.rename(self._list_of(self._number))

    def _told(self) -> dict[str, list[str]]:
        """The tests in each file, by whoever found them."""
        found: dict[str, list[str]] = {}
        for number in range(self._of):
            told = self._list_of(number)
            until_here(told.exists, f"process {number} found no tests", within=WITHIN_S, every=0.05)
            by_file: dict[str, list[str]] = {}
            for line in filter(None, told.read_text().split("\n")):
                tests = by_file.setdefault(file_of(line), [])
                if line != file_of(line):
                    tests.append(line)
            found = {**by_file, **found}
        left = self._left.keys() - found.keys()
        assert not left, f"nobody looked for the tests in {sorted(left)}"
        return found

    def _list_of(self, number: int) -> Path:
        return self._folder / f"{number}.txt"

    def _found(self, session: pytest.Session, item: Postponed) -> dict[str, pytest.Item]:
        """The tests in the file of one, by their names."""
        module = self._left[file_of(item.nodeid)]
        gc.disable()
        try:
            items = list(session.genitems(module))
            session.config.hook.pytest_collection_modifyitems(
                session=session, config=session.config, items=items
            )
        finally:
            gc.enable()
        return {each.nodeid: each for each in items}
