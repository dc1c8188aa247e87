"""The log that Spark's file sink keeps in a folder of this machine: which files are its results.

Spark's readers go by it and see nothing else; others (DuckDB, pandas, pyarrow) see every file. It names
files by their absolute paths, so a folder that was moved has a log of files that are elsewhere; and what a
batch had written when it was killed lies there without being in the log.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from ...documents import read_json
from ...errors import ConfigurationError
from ...files import SHARED, write_whole

SPARK_LOG: Final = "_spark_metadata"

_LOG: Final = logging.getLogger("headrace.pipeline")
_BATCH: Final = re.compile(r"(\d+)(\.compact)?")
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
        return sorted((each for each in found if _BATCH.fullmatch(each.name)), key=_number)


def _number(file: Path) -> tuple[int, bool]:
    """The batch, and whether the file sums up all before it."""
    found = _BATCH.fullmatch(file.name)
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
