"""The batch numbers that a function of two parameters gets: never one that an earlier batch had.

Spark counts the batches of a checkpoint from 0. A function that leaves out the numbers it has seen would
leave out those of a new generation, and a replay. So the numbers of all runs of a query come out of one
ledger, beside its checkpoints: the batches of the first generation have Spark's numbers, whatever comes later
goes on behind the last one given. A batch that runs again has its number again.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ...files import SHARED, write_whole
from .bindings import OF_CHECKPOINT, newest, read_binding
from .checkpoint import Checkpoint, Generation, load_json
from .folders import LocalFolder

_FILE: Final = "numbers.json"


class Numbers:
    """The ledger of a query. ``clock``: seconds since the epoch."""

    def __init__(self, checkpoint: Checkpoint, clock: Callable[[], float] = time.time) -> None:
        assert checkpoint.folder is not None
        self._checkpoint = checkpoint
        self._file = checkpoint.folder / _FILE
        self._clock = clock

    def open(self, *, again: bool = False) -> None:
        """Begin the ledger if there is none, before a query starts.

        A ledger that was lost, or a query that is begun ``again`` after its checkpoint was, goes on at the
        seconds since the epoch: no query has had more batches than that.
        """
        with self._locked() as raw:
            if "next" not in raw:
                raw |= self._adopted()
            if again:
                raw["next"] = max(raw["next"], int(self._clock()))

    def check(self, run: str, generation: Generation) -> None:
        """Go on at the seconds since the epoch where the ledger is older than the checkpoint, or another's:
        it does not know a batch that is finished."""
        finished = newest(LocalFolder(Path(generation.path)), "commits")
        with self._locked() as raw:
            known = raw["runs"].get(run) or raw["old"].get(str(generation.number))
            if finished >= 0 and (known is None or known["batch"] < finished):
                raw["next"] = max(raw["next"], int(self._clock()))

    def number_of(self, run: str, batch: int, generation: int = 0) -> int:
        """The number of a batch of a run. ``generation``: of a query; 0 for a replay."""
        with self._locked() as raw:
            given = raw["runs"].get(run) or raw["old"].pop(str(generation), None)
            if given is None or given["batch"] != batch:
                given = {"batch": batch, "number": raw["next"]}
                raw["next"] += 1
            raw["runs"][run] = given
            return int(given["number"])

    def _adopted(self) -> dict[str, Any]:
        """What a query has used that ran before there was a ledger: Spark's numbers, in each generation."""
        used, old, is_lost = -1, {}, False
        for each in self._checkpoint.generations():
            folder = LocalFolder(Path(each.path))
            planned = newest(folder, "offsets")
            used = max(used, planned)
            if planned >= 0:
                old[str(each.number)] = {"batch": planned, "number": planned}
                is_lost = is_lost or read_binding(folder, OF_CHECKPOINT) is not None
        if is_lost:
            return {"next": max(used + 1, int(self._clock())), "runs": {}, "old": {}}
        return {"next": used + 1, "runs": {}, "old": old}

    @contextmanager
    def _locked(self) -> Iterator[dict[str, Any]]:
        """The ledger's content, written down when it has changed; a replay may run beside the query."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            raw = load_json(self._file)
            before = json.dumps(raw)
            yield raw
            if (text := json.dumps(raw)) != before:
                write_whole(self._file, text, SHARED)
