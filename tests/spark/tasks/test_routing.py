from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import ConnectionClosedError
from headrace.spark.batches.plans import plan_batch
from headrace.spark.options import parse_options
from headrace.spark.reading.reader import read_range
from headrace.spark.slices import Slice, split_by_partition
from headrace.spark.tasks import routing
from headrace.spark.tasks.read_slice import read_slice
from headrace.spark.tasks.routing import routed

from ..conftest import Feed

PARTITIONS = 6


class Source:
    """Sequences whose partition is their remainder, and what was read of them."""

    def __init__(self) -> None:
        self.reads: list[tuple[int, int]] = []
        self.fail_at = 0

    def read(self, part: Slice) -> Iterator[pa.RecordBatch]:
        self.reads.append((part.lo, part.hi))
        for first in range(part.lo + 1, part.hi + 1, 10):
            if self.fail_at and first > self.fail_at:
                raise ConnectionClosedError("gone")
            numbers = list(range(first, min(first + 10, part.hi + 1)))
            yield pa.RecordBatch.from_pydict(
                {
                    "sequence": pa.array(numbers, pa.int64()),
                    "route": pa.array([n % PARTITIONS for n in numbers], pa.int32()),
                }
            )


def pieces(lo: int, hi: int, max_tasks: int, route: str = "r") -> list[Slice]:
    found = split_by_partition(lo, hi, partitions=PARTITIONS, max_tasks=max_tasks)
    return [piece._replace(route=route, tasks=len(found)) for piece in found]


def rows(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [n for batch in batches for n in batch.column("sequence").to_pylist()]


@pytest.mark.parametrize("max_tasks", [2, 4, 6])
def test_tasks_that_run_one_after_the_other_read_the_range_once(
    tmp_path: Path, max_tasks: int
) -> None:
    source = Source()
    seen = []
    for piece in pieces(3, 500, max_tasks):
        found = rows(routed(piece, source.read, tmp_path))
        assert found == [n for n in range(4, 501) if n % PARTITIONS in piece.partitions]
        seen += found
    assert sorted(seen) == list(range(4, 501))
    assert len(source.reads) == max_tasks, "each part once"
    assert sum(hi - lo for lo, hi in source.reads) == 497
    assert list(tmp_path.iterdir()) == [], "the last task removes the files"


def test_tasks_may_have_whatever_partitions(tmp_path: Path) -> None:
    """Those of a group: 2 and 5 belong to somebody else."""
    source, shares = Source(), ((0, 4), (1, 3))
    plain = Slice(3, 500, route="r", tasks=2, shares=shares)
    for share in shares:
        found = rows(routed(plain._replace(partitions=share), source.read, tmp_path))
        assert found == [n for n in range(4, 501) if n % PARTITIONS in share]
    assert len(source.reads) == 2, "each part once"
    assert list(tmp_path.iterdir()) == []


def test_tasks_that_run_together_share_the_reading(tmp_path: Path) -> None:
    source, together = Source(), threading.Barrier(4, timeout=10)

    def read(part: Slice) -> Iterator[pa.RecordBatch]:
        together.wait()  # four parts are being read at the same time
        yield from source.read(part)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda piece: rows(routed(piece, read, tmp_path)), pieces(0, 400, 4)))
    assert sorted(n for each in found for n in each) == list(range(1, 401))
    assert all(each == sorted(each) for each in found)
    assert len(source.reads) == 4


def test_a_task_that_sees_its_files_go_as_it_leaves_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one counts this one, too, before this one counts."""
    source = Source()
    first, last = pieces(0, 100, 2)
    assert rows(routed(first, source.read, tmp_path))
    touch = Path.touch

    def touch_and_lose(path: Path, *arguments: Any, **more: Any) -> None:
        touch(path, *arguments, **more)
        if path.suffix == ".read":
            shutil.rmtree(path.parent)

    monkeypatch.setattr(Path, "touch", touch_and_lose)
    assert rows(routed(last, source.read, tmp_path))


def test_a_part_whose_reader_died_is_read_by_the_next_one_and_nothing_of_it_is_left(
    tmp_path: Path,
) -> None:
    source = Source()
    first, second = pieces(0, 100, 2)
    source.fail_at = 30
    with pytest.raises(ConnectionClosedError):
        rows(routed(first, source.read, tmp_path))
    source.fail_at = 0
    assert rows(routed(second, source.read, tmp_path)) == list(range(1, 101, 2))
    assert rows(routed(first, source.read, tmp_path)) == list(range(2, 101, 2))


def test_somebody_who_reads_a_part_is_waited_for(tmp_path: Path) -> None:
    source, reading, go_on = Source(), threading.Event(), threading.Event()
    first, second = pieces(0, 100, 2)

    def slow(part: Slice) -> Iterator[pa.RecordBatch]:
        reading.set()
        assert go_on.wait(10)
        yield from source.read(part)

    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(lambda: rows(routed(first, slow, tmp_path)))
        assert reading.wait(10)
        other = pool.submit(lambda: rows(routed(second, source.read, tmp_path)))
        go_on.set()
        assert one.result() == list(range(2, 101, 2))
        assert other.result() == list(range(1, 101, 2))
    assert sorted(source.reads) == [(0, 50), (50, 100)]


def test_a_task_that_runs_again_when_all_have_ended_reads_again(tmp_path: Path) -> None:
    source = Source()
    both = pieces(0, 100, 2)
    found = [rows(routed(piece, source.read, tmp_path)) for piece in both]
    assert rows(routed(both[1], source.read, tmp_path)) == found[1]
    assert len(source.reads) == 4


@pytest.mark.parametrize("seed", range(8))
def test_a_frame_that_is_read_twice_at_the_same_time_has_all_rows_in_both(
    tmp_path: Path, seed: int
) -> None:
    """Both have the same tasks: who ends first removes the files that the other one is reading."""
    choose, source = random.Random(seed), Source()
    piece_of = pieces(0, 300, 3)
    reads: dict[tuple[int, int], list[int]] = {(use, t): [] for use in (0, 1) for t in range(3)}
    running = {each: routed(piece_of[each[1]], source.read, tmp_path) for each in reads}
    while running:
        each = choose.choice(sorted(running))
        batch = next(running[each], None)
        if batch is None:
            del running[each]
        else:
            reads[each] += batch.column("sequence").to_pylist()
    for use in (0, 1):
        assert sorted(n for t in range(3) for n in reads[use, t]) == [*range(1, 301)]
    assert all(found == sorted(found) for found in reads.values())


def test_two_reads_of_a_frame_on_threads_have_all_rows_in_both(tmp_path: Path) -> None:
    source = Source()
    tasks_of_both = [*pieces(0, 2000, 4), *pieces(0, 2000, 4)]

    def read(piece: Slice) -> list[int]:
        return rows(routed(piece, source.read, tmp_path))

    for _ in range(6):
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(read, tasks_of_both))
        for half in (found[:4], found[4:]):
            assert sorted(n for each in half for n in each) == [*range(1, 2001)]


def test_a_task_whose_files_are_always_removed_reads_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source()
    first, _ = pieces(0, 100, 2)
    replace = Path.replace

    def replace_and_lose(path: Path, target: Path) -> Path:
        made = replace(path, target)
        shutil.rmtree(made.parent)
        return made

    monkeypatch.setattr(Path, "replace", replace_and_lose)
    assert rows(routed(first, source.read, tmp_path)) == list(range(2, 101, 2))


def test_files_of_killed_tasks_are_removed_by_a_later_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source()
    killed = pieces(0, 100, 2, "killed")[0]
    rows(routed(killed, source.read, tmp_path))
    running = pieces(0, 100, 2, "running")[0]
    rows(routed(running, source.read, tmp_path))
    old = (tmp_path / "killed").stat().st_mtime - routing.LEFT_BEHIND_S - 1
    os.utime(tmp_path / "killed", (old, old))
    rows(routed(pieces(0, 100, 2, "next")[0], source.read, tmp_path))
    assert {area.name for area in tmp_path.iterdir()} == {"running", "next"}
    assert (tmp_path / "next").stat().st_mode & 0o077 == 0, "nobody else may look"


@pytest.mark.usefixtures("links_end")
def test_planned_tasks_get_whole_partitions_with_the_range_read_once(
    make_feed: Callable[..., Feed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    feed = make_feed()
    feed.publish([f"key{n % 50}" for n in range(3000)])
    given: dict[str, Any] = {
        "stream": feed.name,
        "servers": feed.url,
        "splitBy": "partition",
        "partitions": "6",
        "partitionBy": "hash=2",
        "maxTasks": "3",
        "minMessagesPerTask": "500",
    }
    wanted = parse_options(given, streaming=False)
    planned = plan_batch(wanted)
    assert [piece.partitions for piece in planned] == [(0, 3), (1, 4), (2, 5)]
    reads: list[tuple[int, int]] = []

    def spy(connect: Any, plan: Any) -> Any:
        reads.append((plan.lo, plan.hi))
        return read_range(connect, plan)

    monkeypatch.setattr("headrace.spark.tasks.read_slice.read_range", spy)
    seen: list[int] = []
    for piece in planned:
        batches = list(read_slice(wanted, ("sequence", "partition"), piece))
        assert batches[0].schema.names == ["sequence", "partition"]
        found = rows(iter(batches))
        assert found == sorted(found)
        owners = {n for b in batches for n in b.column("partition").to_pylist()}
        assert owners <= set(piece.partitions)
        seen += found
    assert sorted(seen) == list(range(1, 3001))
    assert reads == [(0, 1000), (1000, 2000), (2000, 3000)]
    assert list((tmp_path / f"headrace-routes-{os.getuid()}").iterdir()) == []


def test_a_small_range_has_few_tasks_and_a_huge_one_is_not_kept_in_files(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.publish_numbers(1, 100)
    given = {"stream": feed.name, "servers": feed.url, "splitBy": "partition", "partitions": "6"}
    hashed = {**given, "partitionBy": "hash"}
    assert [piece.partitions for piece in plan_batch(parse_options(hashed, streaming=False))] == [
        ()
    ]
    many = parse_options({**hashed, "minMessagesPerTask": "10"}, streaming=False)
    assert {bool(piece.route) for piece in plan_batch(many)} == {True}
    monkeypatch.setattr("headrace.spark.batches.plans.ROUTED_BYTES_MAX", 100)
    assert [piece.route for piece in plan_batch(many)] == [""] * 6
