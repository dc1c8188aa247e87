"""The legs on disk, batch by batch, and what each batch leaves for the next.

::

    legs/batch=00007/part-….parquet     complete: put there by one rename
    legs/.writing-00007/                being written; never read
    state/00007.parquet                 every aircraft's last leg after batch 7

Spark runs a batch again, with the same messages, when it cannot know that it was finished. So a batch
replaces what an earlier attempt left, and always starts from the state of the batch before it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .errors import DemoError
from .flights import LEG_COLUMNS, UNKNOWN_AIRCRAFT, LastLeg, schema_of

if TYPE_CHECKING:
    import pyarrow as pa


STATES_KEPT: Final = 3
_SUFFIX: Final = ".parquet"
_COMPLETE = re.compile(r"batch=(\d{5,})")


class Results:
    """The results below one directory."""

    def __init__(self, directory: Path) -> None:
        self.legs = directory / "legs"
        self.states = directory / "state"

    def prepare(self) -> None:
        """Create the directories, and remove unfinished results of an interrupted run."""
        self.legs.mkdir(parents=True, exist_ok=True)
        self.states.mkdir(parents=True, exist_ok=True)
        for unfinished in (*self.legs.glob(".writing-*"), *self.states.glob(".writing-*")):
            if unfinished.is_dir():
                shutil.rmtree(unfinished)
            else:
                unfinished.unlink()

    def clear(self) -> None:
        """Remove every result; they belong to a checkpoint that is gone."""
        for place in (self.legs, self.states):
            shutil.rmtree(place, ignore_errors=True)

    def state_before(self, batch: int) -> dict[str, LastLeg]:
        """Every aircraft's last leg before this batch.

        Raises:
            DemoError: the previous batch left none, so its results were tampered with.
        """
        if batch == 0:
            return {}
        import pyarrow.parquet

        place = self._state(batch - 1)
        if not place.exists():
            raise DemoError(
                f"{place} is missing, so the chains cannot be continued; type the command with --reset."
            )
        return _by_aircraft(pyarrow.parquet.read_table(place))

    def scratch(self, batch: int) -> Path:
        """A folder for the Parquet files of a batch (``kept``); what an earlier attempt left is removed."""
        place = self.legs / f".writing-{batch:05d}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        return place

    def complete(self, batch: int, before: dict[str, LastLeg]) -> Path:
        """Make the content of ``scratch(batch)`` the batch's result. Returns where it is.

        The order matters: the state first, then the legs by one rename, each on disk before the next.
        """
        written = self.legs / f".writing-{batch:05d}"
        for file in written.iterdir():
            if file.suffix != _SUFFIX:  # of a task that failed
                file.unlink()
        table = _read_parquet(written)
        self._write_state(batch, before | _last_legs(table))
        for file in written.iterdir():
            _sync(file)
        _sync(written)
        final = self.legs / f"batch={batch:05d}"
        shutil.rmtree(final, ignore_errors=True)
        written.rename(final)
        _sync(self.legs)
        for old in self.states.glob("*.parquet"):
            if int(old.stem) <= batch - STATES_KEPT:
                old.unlink()
        return final

    def read(self) -> pa.Table:
        """Every leg of every complete batch, in stream order."""
        import pyarrow as pa

        places = sorted(p for p in self.legs.iterdir() if _COMPLETE.fullmatch(p.name))
        tables = [_read_parquet(place) for place in places]
        if not tables:
            raise DemoError("There are no results yet; run the demo once to its end.")
        return pa.concat_tables(tables).sort_by("sequence")

    def _state(self, batch: int) -> Path:
        return self.states / f"{batch:05d}.parquet"

    def _write_state(self, batch: int, last: dict[str, LastLeg]) -> None:
        import pyarrow as pa
        import pyarrow.parquet

        columns = list(zip(*last.values(), strict=True)) or [()] * len(LastLeg._fields)
        kinds = [pa.int64(), pa.int64(), pa.int32(), pa.int32()]
        arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
        names = ["tailnum", *LastLeg._fields]
        table = pa.table([pa.array(list(last), pa.string()), *arrays], names=names)
        unfinished = self.states / f".writing-{batch:05d}.parquet"
        pyarrow.parquet.write_table(table, unfinished)
        _sync(unfinished)
        unfinished.replace(self._state(batch))
        _sync(self.states)


def kept(
    legs: Iterable[pa.RecordBatch], place: Path, task: int, attempt: int
) -> Iterator[pa.RecordBatch]:
    """The legs of one task, written to a Parquet file in ``place`` on their way.

    The file is there once all of them are in it. A task that runs again replaces it with the same legs.
    """
    import pyarrow.parquet

    unfinished = place / f".part-{task:05d}.{attempt}"
    with pyarrow.parquet.ParquetWriter(unfinished, schema_of(LEG_COLUMNS)) as file:
        for batch in legs:
            file.write_batch(batch)
            yield batch
    unfinished.replace(place / f"part-{task:05d}{_SUFFIX}")


def _last_legs(table: pa.Table) -> dict[str, LastLeg]:
    """The last leg of each aircraft of a batch."""
    import pyarrow.compute as pc

    table = table.select(["tailnum", *LastLeg._fields])
    newest = table.group_by("tailnum").aggregate([("sequence", "max")])["sequence_max"]
    last = _by_aircraft(table.filter(pc.is_in(table["sequence"], value_set=newest)))
    last.pop(UNKNOWN_AIRCRAFT, None)
    return last


def _by_aircraft(table: pa.Table) -> dict[str, LastLeg]:
    """The legs of a table with one of each aircraft."""
    columns = table.to_pydict()
    legs = zip(*(columns[name] for name in LastLeg._fields), strict=True)
    return {tailnum: LastLeg(*leg) for tailnum, leg in zip(columns["tailnum"], legs, strict=True)}


def _read_parquet(place: Path) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet

    files = sorted(place.glob(f"*{_SUFFIX}"))
    tables = [pyarrow.parquet.ParquetFile(file).read() for file in files]
    return pa.concat_tables(tables) if tables else schema_of(LEG_COLUMNS).empty_table()


def _sync(place: Path) -> None:
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_MARK: Final = ".headrace-demo"
_TASKS: Final = "tasks"
_OURS: Final = (
    "broker",
    "checkpoint",
    "legs",
    "state",
    "warehouse",
    "spark.log",
    "delays.png",
    _TASKS,
)


class Workspace:
    """One directory. ``open`` creates it; files that are not the demo's are never touched."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.broker = directory / "broker"
        self.checkpoint = directory / "checkpoint"
        self.picture = directory / "delays.png"
        self.log = directory / "spark.log"
        self.results = Results(directory)

    def open(self, *, reset: bool) -> None:
        """Create the directory, or check that it is the demo's own; with ``reset``, empty it.

        Raises:
            DemoError: the directory has other content.
        """
        directory = self.directory
        if directory.exists() and not directory.is_dir():
            raise DemoError(f"{directory} is a file; choose another place with --dir.")
        mark = directory / _MARK
        if directory.exists() and any(directory.iterdir()) and not mark.exists():
            raise DemoError(
                f"{directory} holds files that are not the demo's; choose an empty or new directory "
                "with --dir."
            )
        if reset:
            for name in _OURS:
                place = directory / name
                if place.is_dir():
                    shutil.rmtree(place)
                else:
                    place.unlink(missing_ok=True)
        directory.mkdir(parents=True, exist_ok=True)
        mark.write_text("Made by `headrace demo`; --reset removes what is in here.\n")

    def prepare_results(self) -> None:
        """Remove results whose checkpoint is gone: they would be counted twice."""
        if not self.checkpoint.exists():
            self.results.clear()
        self.results.prepare()

    def tasks(self, wanted: int) -> int:
        """How many tasks a batch has: as many as wanted by the run that began the checkpoint.

        A batch that runs again has to have its rows in the same tasks, also where there are other cores now.
        """
        place = self.directory / _TASKS
        if self.checkpoint.exists() and place.exists():
            return int(place.read_text())
        place.write_text(f"{wanted}\n")
        return wanted
