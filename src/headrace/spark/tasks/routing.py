"""Tasks that each need some partitions of a range read it together, once on each host.

A task cannot send rows to another one. But tasks of one batch run on the same hosts: whoever gets to a part
of the range first reads it and leaves each task's rows in a file; the others wait for that, or do it
themselves if the reader died. The kernel frees a dead process's lock, so nobody waits for ever, and nobody
passes rows to Spark while it holds one.

A frame may be read twice at the same time, by the same tasks (a join with itself), and then one read
removes the files of the other. So a file is there as a whole or not at all, with or without rows, and who
misses one reads the part again.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..slices import Slice, split_by_sequence

if TYPE_CHECKING:
    import pyarrow as pa

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

TRIES: Final = 5  # for a file that others remove; then a task reads the part for itself
LEFT_BEHIND_S: Final = (
    3600.0  # files of a batch whose tasks were killed are removed after this time
)

Read = Callable[[Slice], Iterator["pa.RecordBatch"]]


def can_route() -> bool:
    """Whether this system has the locks for it."""
    return fcntl is not None


def home_of(what: str) -> Path:
    """Where files of a kind go: Spark's own directory for such, otherwise the system's temporary one."""
    area = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()
    user = os.getuid() if hasattr(os, "getuid") else ""
    return Path(area) / f"headrace-{what}-{user}"


def routed(piece: Slice, read: Read, home: Path) -> Iterator[pa.RecordBatch]:
    """The rows of one task, in order.

    Args:
        piece: the range and the task's partitions; ``route`` names the batch, ``tasks`` says how many share
            it.
        read: the rows of all partitions of a part of the range, with the partition as the last column.
        home: a directory that the tasks of this host share.

    Raises:
        OSError: the files cannot be written or read.
    """
    share = _Share(piece, read, home)
    yield from share.batches()


class _Share:
    def __init__(self, piece: Slice, read: Read, home: Path) -> None:
        self._read = read
        self._tasks = piece.tasks
        self._shares = shares = piece.shares
        # Where nothing else is said partition p belongs to task p mod tasks.
        self._task = shares.index(piece.partitions) if shares else piece.partitions[0]
        # The same parts in every task: they depend on the piece alone.
        parts = split_by_sequence(piece.lo, piece.hi, max_tasks=piece.tasks, min_messages=1)
        self._parts = [piece._replace(lo=part.lo, hi=part.hi) for part in parts]
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_left_behind(home)
        self._area = home / piece.route
        self._area.mkdir(mode=0o700, exist_ok=True)

    def batches(self) -> Iterator[pa.RecordBatch]:
        numbers = range(len(self._parts))
        first = self._task % len(self._parts)
        for number in (*numbers[first:], *numbers[:first]):  # tasks that start together part here
            with suppress(FileNotFoundError):
                self._route(number, wait=False)
        for number in numbers:
            yield from self._rows(number)
        self._leave()

    def _rows(self, number: int) -> Iterator[pa.RecordBatch]:
        """The task's rows of a part."""
        import pyarrow as pa

        for _ in range(TRIES):
            try:
                self._route(number, wait=True)
                file = pa.OSFile(str(self._file(number, self._task)))
            except FileNotFoundError:
                continue  # another read of the same frame has ended and removed it
            with file:
                if file.size():
                    with pa.ipc.open_stream(file) as stream:
                        yield from stream
            return
        for task, rows in self._split(number):
            if task == self._task:
                yield rows

    def _file(self, number: int, task: int) -> Path:
        return self._area / f"{number}.{task}.arrow"

    def _route(self, number: int, *, wait: bool) -> None:
        """Read a part for all tasks, unless somebody has done so, or is at it and we do not wait.

        Raises:
            FileNotFoundError: the files are removed meanwhile.
        """
        mine = self._file(number, self._task)
        if mine.exists():
            return
        self._area.mkdir(mode=0o700, exist_ok=True)
        with (self._area / f"{number}.lock").open("wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                return
            if not mine.exists():
                self._write(number)

    def _write(self, number: int) -> None:
        import pyarrow as pa

        writing = secrets.token_hex(8)  # the lock may be gone with its directory
        parts = [self._area / f"{number}.{task}.{writing}" for task in range(self._tasks)]
        for part in parts:
            part.touch()
        with ExitStack() as opened:
            writers: dict[int, pa.RecordBatchStreamWriter] = {}
            for task, rows in self._split(number):
                if task not in writers:
                    made = pa.ipc.new_stream(str(parts[task]), rows.schema)
                    writers[task] = opened.enter_context(made)
                writers[task].write_batch(rows)
        for task, part in enumerate(parts):
            part.replace(self._file(number, task))

    def _split(self, number: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows of a part, with the task that they are for."""
        for batch in self._read(self._parts[number]):
            last = batch.num_columns - 1
            rows = batch.select(range(last))
            for task, mask in enumerate(_masks(batch.column(last), self._tasks, self._shares)):
                part = rows.filter(mask)
                if part.num_rows:
                    yield task, part

    def _leave(self) -> None:
        """The last task of the batch on this host removes the files."""
        try:
            (self._area / f"{self._task}.read").touch()
            left = len(list(self._area.glob("*.read")))
        except FileNotFoundError:  # another one was the last
            return
        if left >= self._tasks:
            shutil.rmtree(self._area, ignore_errors=True)


def _masks(partitions: pa.Array, tasks: int, shares: Sequence[Sequence[int]]) -> Sequence[pa.Array]:
    """For each task, which rows are its."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if shares:
        sets = [pa.array(share, partitions.type) for share in shares]
        return [pc.is_in(partitions, value_set=each) for each in sets]
    whole = pc.multiply(pc.divide(partitions, tasks), tasks)
    task_of = pc.subtract(partitions, whole)
    return [pc.equal(task_of, task) for task in range(tasks)]


def _remove_left_behind(home: Path) -> None:
    for area in home.iterdir():
        try:
            is_old = time.time() - area.stat().st_mtime > LEFT_BEHIND_S
        except FileNotFoundError:
            continue  # its last task has just removed it
        if is_old:
            shutil.rmtree(area, ignore_errors=True)
