"""A folder of results: which query it belongs to, and which of its files Spark's sink log calls results."""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from ...documents import read_json
from ...errors import ConfigurationError
from ...files import SHARED, write_whole
from ..model import Declared, Problem, Sink
from .checkpoint import Generation, checkpoint_of, read_end
from .folders import Folder, LocalFolder, folder_of, is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SPARK_LOG: Final = "_spark_metadata"

_LOG: Final = logging.getLogger("headrace.pipeline")
_BATCH_FILE: Final = re.compile(r"(\d+)(\.compact)?")
_WRITTEN: Final = re.compile(r"part-\d{5,}-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}[-.].*")
"""Spark's name for a file of a task: its number, and an id that no other has."""


class SinkLog:
    """The log of one folder of results.

    Args:
        place: the folder, as it is reached now.
        depth: how many folders the results are partitioned by.
    """

    def __init__(self, place: Path, depth: int) -> None:
        self._place = Path(os.path.normpath(place.absolute()))
        self._depth = depth

    def root(self) -> Path | None:
        """Where the folder lay when the newest batch was written, if it lies elsewhere now; else None.

        Raises:
            ConfigurationError: the log is damaged.
        """
        for file in reversed(self._files()):
            for entry in _entries(file):
                root = _path(entry).parents[self._depth]
                return None if root == self._place or _is_same(root, self._place) else root
        return None

    def relocate(self) -> int:
        """Write into the log where the folder lies now. Returns how many files it names; 0: nothing to do.

        If it is broken off, it is to be done again: the newest batch, by which it is noticed, comes last.

        Raises:
            ConfigurationError: the log is damaged.
        """
        root = self.root()
        if root is None:
            return 0
        moved = 0
        for file in self._files():
            entries = list(_entries(file))
            for entry in entries:
                path = _path(entry)
                if path.is_relative_to(root) and not path.is_relative_to(self._place):
                    entry["path"] = "file://" + quote(str(self._place / path.relative_to(root)))
                    moved += 1
            # Hadoop's sum of what was there before: without one the file is read as it is.
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
            lines = [json.dumps(entry, separators=(",", ":")) for entry in entries]
            write_whole(file, "\n".join([_version(file), *lines]), SHARED)
        return moved

    def remove_leftovers(self) -> list[Path]:
        """Remove what a batch had written that did not come to its end. Returns the files.

        These are files with names that Spark gives, written since the newest batch, that the log does not
        have. Nothing is removed where the log is not whole, or is of a folder that lay elsewhere.

        Raises:
            ConfigurationError: the log is damaged.
        """
        known = self._known()
        if known is None or self.root() is not None:
            return []
        files = self._files()
        since_ns = files[-1].stat().st_mtime_ns if files else 0
        found = []
        for file in self._place.glob("/".join(["*"] * (self._depth + 1))):
            below = file.relative_to(self._place).parts
            if below[0].startswith(("_", ".")) or not _WRITTEN.fullmatch(file.name):
                continue
            if file not in known and file.stat().st_mtime_ns >= since_ns:
                found.append(file)
        for file in found:
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
            file.unlink(missing_ok=True)
        if found:
            _LOG.warning(
                "%s: removed %d files of a batch that did not come to its end",
                self._place,
                len(found),
            )
        return found

    def _known(self) -> set[Path] | None:
        """All files of finished batches; None if a part of the log is missing."""
        known: set[Path] = set()
        last = -1
        for file in self._current():
            number, is_sum = _number(file)
            if number != last + 1 and not is_sum:
                return None
            last = number
            known.update(map(_path, _entries(file)))
        return known

    def _current(self) -> list[Path]:
        """The newest sum over all batches before it, and each batch after that, in order."""
        files = self._files()
        sums = [at for at, file in enumerate(files) if _number(file)[1]]
        return files[sums[-1] :] if sums else files

    def _files(self) -> list[Path]:
        """Every file of the log, in the order of the batches."""
        folder = self._place / SPARK_LOG
        found = folder.iterdir() if folder.is_dir() else ()
        return sorted((each for each in found if _BATCH_FILE.fullmatch(each.name)), key=_number)


def _number(file: Path) -> tuple[int, bool]:
    """The batch, and whether the file sums up all before it."""
    found = _BATCH_FILE.fullmatch(file.name)
    assert found is not None
    return int(found[1]), found[2] is not None


def _version(file: Path) -> str:
    return file.read_text(encoding="utf-8").partition("\n")[0]


def _entries(file: Path) -> Iterator[dict[str, Any]]:
    """One for each file of results."""
    for line in file.read_text(encoding="utf-8").splitlines()[1:]:
        try:
            entry = read_json(line)
            _path(entry)
        except (ValueError, KeyError, TypeError):
            raise ConfigurationError(
                f"{file} is damaged: it has a line that names no file of results. Put it back from a copy"
            ) from None
        yield entry


def _path(entry: dict[str, Any]) -> Path:
    return Path(unquote(urlsplit(entry["path"]).path))


def _is_same(one: Path, other: Path) -> bool:
    """Whether two paths lead to one folder, by a link or a mount."""
    return one.exists() and other.exists() and one.samefile(other)


OF_CHECKPOINT: Final = "headrace.json"
OF_RESULTS: Final = "_headrace.json"
_BATCH: Final = re.compile(r"(\d+)(?:\.compact)?")


@dataclass(frozen=True)
class Binding:
    """Whose results a folder has. ``id``: of the checkpoint."""

    id: str
    pipeline: str
    query: str
    generation: int

    @property
    def text(self) -> str:
        each = {
            "v": 1,
            "id": self.id,
            "pipeline": self.pipeline,
            "query": self.query,
            "generation": self.generation,
        }
        return json.dumps(each)

    def __str__(self) -> str:
        return f"query {self.query!r} of pipeline {self.pipeline!r}, generation {self.generation}"


class Standing(NamedTuple):
    """Batches by their newest numbers, -1 for none: ``planned``, ``finished``, and ``written`` to results."""

    planned: int
    finished: int
    written: int

    @property
    def is_right(self) -> bool:
        """Whether results and checkpoint go together. One more than finished is what a kill leaves."""
        is_again = self.written == self.finished + 1 and self.planned >= self.written
        return self.written == self.finished or is_again


def read_binding(folder: Folder, name: str) -> Binding | None:
    """The note in a checkpoint or in results; None if there is none, or it cannot be read."""
    text = folder.read(name)
    if text is None:
        return None
    try:
        raw: dict[str, Any] = read_json(text)
        found = Binding(raw["id"], raw["pipeline"], raw["query"], int(raw["generation"]))
    except (ValueError, KeyError, TypeError):
        return None
    return found


def newest(folder: Folder, below: str) -> int:
    """The number of the newest batch in a log of Spark, -1 if there is none."""
    found = (_BATCH.fullmatch(name) for name in folder.names(below))
    return max((int(each[1]) for each in found if each), default=-1)


def has_content(folder: Folder) -> bool:
    """Whether somebody has written results there: batches, a note of whose they are, or plain files."""
    if newest(folder, SPARK_LOG) >= 0 or folder.read(OF_RESULTS) is not None:
        return True
    return any(not name.startswith(("_", ".")) for name in folder.names())


def check_results(
    declared: Declared,
    sink: Sink,
    generation: Generation,
    place: str,
    spark: SparkSession | None = None,
) -> Problem | None:
    """Why this query must not write its files to ``place``; None if it may. Nothing is changed.

    Without a session what lies below a URL is not looked at.
    """
    checkpoint, results = folder_of(generation.path, spark), folder_of(place, spark)
    if checkpoint is None or results is None:
        return None
    ours, theirs = read_binding(checkpoint, OF_CHECKPOINT), read_binding(results, OF_RESULTS)
    at = Standing(
        newest(checkpoint, "offsets"), newest(checkpoint, "commits"), newest(results, SPARK_LOG)
    )
    case = _Case(declared, sink, generation, results.shown, at)
    if theirs is not None and (ours is None or ours.id != theirs.id):
        return case.of_another(theirs)
    if is_local(place) and (root := SinkLog(Path(place), len(sink.partition_by)).root()):
        return case.moved(root)
    if not at.is_right:
        return case.behind() if at.written < at.finished else case.ahead()
    if theirs is None and at.planned < 0 and has_content(results):
        return case.foreign()
    return None


def bind(
    declared: Declared,
    sink: Sink,
    generation: Generation,
    place: str,
    spark: SparkSession | None = None,
) -> None:
    """Note in the checkpoint and in the folder of results that they belong together."""
    checkpoint, results = folder_of(generation.path, spark), folder_of(place, spark)
    if checkpoint is None or results is None:
        return
    id_ = identify(declared, sink.name, generation, spark).id
    binding = Binding(id_, declared.name, sink.name, generation.number)
    if read_binding(results, OF_RESULTS) != binding:
        results.write(OF_RESULTS, binding.text)


def tidy(sink: Sink, place: str) -> None:
    """Remove what a batch that was killed has left in a folder of results of this machine."""
    if is_local(place):
        SinkLog(Path(place), len(sink.partition_by)).remove_leftovers()


def identify(
    declared: Declared, query: str, generation: Generation, spark: SparkSession | None = None
) -> Binding:
    """The identity of a query's checkpoint, which dies with it; made where there is none."""
    checkpoint = folder_of(generation.path, spark)
    assert checkpoint is not None
    found = read_binding(checkpoint, OF_CHECKPOINT)
    if found is None:
        found = Binding(secrets.token_hex(8), declared.name, query, generation.number)
        checkpoint.write(OF_CHECKPOINT, found.text)
    return found


class _Case(NamedTuple):
    """A query whose results do not go with its checkpoint: in sentences, with the commands that lead on."""

    declared: Declared
    sink: Sink
    generation: Generation
    place: str
    at: Standing

    def of_another(self, theirs: Binding) -> Problem:
        has = "another checkpoint" if self.at.planned >= 0 else "no checkpoint"
        return self._problem(
            f"{self.place} has the results of {theirs}, and query {self.sink.name!r} of pipeline "
            f"{self.declared.name!r} has {has}: Spark would skip the batches whose numbers are there",
            *self._moves(theirs),
            self._apart(),
        )

    def moved(self, root: Path) -> Problem:
        return self._problem(
            f"{self.place} was moved, copied or mounted elsewhere: Spark's list of its files has them in "
            f"{root}, and readers would not find them here",
            f"take them where they lie: {self.declared.command('relocate', '--query', self.sink.name)}",
            f"put the folder back to {root}",
            self._apart(),
        )

    def ahead(self) -> Problem:
        stands = (
            f"the checkpoint has finished batch {self.at.finished}"
            if self.at.finished >= 0
            else "there is no finished batch in the checkpoint"
        )
        return self._problem(
            f"{self.place} has results up to batch {self.at.written}, and {stands}: it was deleted, "
            "restored from an older copy, or is another one's. Spark would skip the batches that are there",
            *self._moves(None),
            self._apart(),
        )

    def behind(self) -> Problem:
        found = (
            f"only up to batch {self.at.written}"
            if self.at.written >= 0
            else "no batch of this query"
        )
        lead = [f"put the results back to {self.place}"]
        if sequence := self._next():
            new = f"go on with new rows in a folder of their own: {self._reset(sequence)}"
            lead.append(new)
        return self._problem(
            f"the checkpoint has finished batch {self.at.finished}, and {self.place} has {found}: results "
            "were removed, restored from an older copy, or the path was changed",
            *lead,
            self._apart(),
        )

    def foreign(self) -> Problem:
        return self._problem(
            f"{self.place} has files that no query wrote; Spark's readers would not see them any more",
            "choose another path, or move them away",
        )

    def _moves(self, theirs: Binding | None) -> Iterator[str]:
        """How to get the checkpoint that belongs to the results, if it lies under another name."""
        here = Path(checkpoint_of(self.declared, self.sink.name).url)
        if not self.declared.is_local_checkpoint or any(here.glob("*/offsets/[0-9]*")):
            return
        for folder in sorted(
            self.declared.checkpoint_path.glob(f"*/*/{self.generation.number:04d}")
        ):
            found = LocalFolder(folder)
            noted = read_binding(found, OF_CHECKPOINT)
            if theirs is not None:
                is_it = noted is not None and noted.id == theirs.id
            else:
                logs = newest(found, "offsets"), newest(found, "commits")
                is_it = noted is None and Standing(*logs, self.at.written).is_right
            if is_it and folder.parent != here and folder.parent.name == self.sink.name:
                old = folder.parent.parent.name
                yield f"if the pipeline was called {old!r}, give it that name again"
                return
            if is_it and folder.parent != here:
                moved = shlex.join(["mv", str(folder.parent), str(here)])
                yield f"if the query was called {folder.parent.name!r}: {moved}"
                return
        yield "put back the checkpoint that belongs to it"

    def _apart(self) -> str:
        return f"make all rows again in a folder of their own: {self._reset('earliest')}"

    def _reset(self, to: str) -> str:
        return self.declared.command("reset", "--query", self.sink.name, "--to", to)

    def _next(self) -> str:
        """The sequence at which the query goes on, where there is one, and no state would be left behind."""
        if not is_local(self.generation.path) or self.generation.keeps_state:
            return ""
        done = read_end(self.generation)
        if done is None or len(done.offsets) != 1 or not done.offsets[0]:
            return ""
        raw = read_json(done.offsets[0])
        return str(raw["seq"] + 1) if isinstance(raw, dict) and "seq" in raw else ""

    def _problem(self, what: str, *leads: str) -> Problem:
        return Problem(self.sink.place, f"{what}. To go on: {'; or '.join(leads)}")
