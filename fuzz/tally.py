"""How many inputs there were, and which batches are taken: no two processes and no two runs play the same."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["FileTally", "Tally"]


class Tally:
    """Of one run and one target, shared by the processes that are forked after it was made."""

    def __init__(self) -> None:
        self._lock = multiprocessing.Lock()
        self._begun = multiprocessing.Value("q", 0, lock=False)
        self._done = multiprocessing.Value("q", 0, lock=False)
        self._failed = multiprocessing.Value("b", 0, lock=False)

    @property
    def has_failed(self) -> bool:
        """Whether an input of this run broke a promise."""
        return bool(self._failed.value)

    def inputs(self, target: str) -> int:
        """How many inputs were good."""
        return int(self._done.value)

    def begin(self, target: str, inputs: int | None, size: int) -> int | None:
        """The number of a batch nobody has played; None if those begun are ``inputs``, or one failed."""
        with self._lock:
            if self._failed.value or (inputs is not None and self._begun.value * size >= inputs):
                return None
            self._begun.value += 1
            return int(self._begun.value) - 1

    def end(self, target: str, size: int, *, good: bool) -> None:
        """A batch was played."""
        with self._lock:
            if good:
                self._done.value += size
            else:
                self._failed.value = 1


class FileTally(Tally):
    """The same over all runs that name this file, written at the beginning and the end of each batch."""

    def __init__(self, path: Path, seed: int) -> None:
        super().__init__()
        self._path = path
        self._seed = seed

    def read(self) -> dict[str, Any]:
        """What the file says, by target."""
        return json.loads(self._path.read_text()) if self._path.exists() else {}

    def inputs(self, target: str) -> int:
        return int(self.read().get(target, {}).get("inputs", 0))

    def begin(self, target: str, inputs: int | None, size: int) -> int | None:
        """As above; ``inputs`` counts those of all runs that were good."""
        with self._entry(target) as entry:
            if self.has_failed or (inputs is not None and entry["inputs"] >= inputs):
                return None
            begun: dict[str, int] = entry["begun"]  # by seed
            batch = begun.get(str(self._seed), 0)
            begun[str(self._seed)] = batch + 1
            return batch

    def end(self, target: str, size: int, *, good: bool) -> None:
        super().end(target, size, good=good)
        if good:
            with self._entry(target) as entry:
                entry["inputs"] += size

    @contextmanager
    def _entry(self, target: str) -> Iterator[dict[str, Any]]:
        """What is said of a target, to be changed by one process at a time."""
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            document = self.read()
            yield document.setdefault(target, {"inputs": 0, "begun": {}})
            draft = self._path.with_suffix(".tmp")
            draft.write_text(json.dumps(document, indent=1) + "\n")
            draft.replace(self._path)
