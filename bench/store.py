"""How fast the store is by itself: ``python bench/store.py [--points 40000,400000,4000000]``.

For each number of messages (100-byte payloads, 1,000 subjects) one line: appending into memory,
appending with a durable commit per 1,000 messages and two in flight, reading back in fetches of 1,000
from the cache and from disk, through 8 wildcard filters over 16,000 subjects, the first and the next
``count``, reopening after a clean stop and after none, and the memory per message that remains when
payloads are only on disk.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from headrace.broker.store import FileStorage
from headrace.broker.store.commit.writer import Work, Writer
from headrace.subjects import SubjectFilter

BATCH = 1000
PAYLOAD = b"x" * 100
EVERYTHING = 1 << 60
COLUMNS = (
    ("messages", "{:,}"),
    ("append/s", "{:,.0f}"),
    ("committed/s", "{:,.0f}"),
    ("commits", "{:,}"),
    ("read cached/s", "{:,.0f}"),
    ("read disk/s", "{:,.0f}"),
    ("filtered/s", "{:,.0f}"),
    ("count ms", "{:.2f}"),
    ("next count ms", "{:.3f}"),
    ("close s", "{:.2f}"),
    ("reopen clean s", "{:.2f}"),
    ("reopen crashed s", "{:.2f}"),
    ("B/message", "{:.0f}"),
)


class Clock:
    """Seconds since it was made or asked."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()

    def lap(self) -> float:
        now = time.perf_counter()
        took, self._begun = now - self._begun, now
        return took


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Subject:
    """A storage with one stream, and the waiting that an event loop would do."""

    def __init__(self, directory: str, *, cache_bytes: int) -> None:
        self._progress = threading.Event()
        self.storage = FileStorage(directory, cache_bytes=cache_bytes, notify=self._progress.set)
        self.inflight = 0
        new = not self.storage.streams()
        self.store = self.storage.create_stream("S") if new else self.storage.open_stream("S")

    def append(self, subjects: list[bytes], count: int) -> None:
        append, payload, n = self.store.append, PAYLOAD, len(subjects)
        for number in range(count):
            append(subjects[number % n], b"", payload, number)

    def flush(self, most_inflight: int) -> None:
        self.inflight += 1
        self.storage.flush(self._done)
        while self.inflight > most_inflight:
            self._progress.wait(10)
            self._progress.clear()
            self.storage.complete()

    def _done(self, error: Exception | None) -> None:
        if error is not None:
            raise error
        self.inflight -= 1

    def read_all(self, chosen: SubjectFilter | None) -> int:
        start, read = 1, 0
        while messages := self.store.read(start, chosen, BATCH, EVERYTHING, EVERYTHING):
            read += len(messages)
            start = messages[-1].sequence + 1
        return read


def timed(job: Callable[[], int | None]) -> tuple[float, int]:
    clock = Clock()
    result = job()
    return clock.lap(), result or 0


def measure(directory: str, count: int) -> Iterator[float]:
    """One line of the table, value by value."""
    subjects = [b"flights.JFK.N%05d" % number for number in range(1000)]
    gc.collect()
    before = resident_bytes()
    subject = Subject(directory + "/s", cache_bytes=1 << 20)
    groups = counted(subject.storage._writer)
    clock = Clock()
    for _ in range(count // BATCH):
        subject.append(subjects, BATCH)
        subject.flush(2)
    subject.flush(0)
    committed = count / clock.lap()
    gc.collect()
    per_message = (resident_bytes() - before) / count
    yield count
    yield from appending(directory, subjects)
    yield committed
    yield len(groups)
    yield from reading(directory)
    took, _ = timed(lambda: subject.read_all(None))
    yield count / took
    yield from filtered(directory)
    yield from stopping(directory, subject, count)
    yield per_message


def counted(writer: Writer) -> list[int]:
    """How many batches each commit of this writer takes from here on."""
    groups: list[int] = []
    commit = writer.commit

    def count(group: list[Work]) -> None:
        groups.append(len(group))
        commit(group)

    writer.commit = count
    return groups


def appending(directory: str, subjects: list[bytes]) -> Iterator[float]:
    """Messages per second into memory: encoding, checksum and index, no disk."""
    subject = Subject(directory + "/idle", cache_bytes=1 << 30)
    took, _ = timed(lambda: subject.append(subjects, 400_000))
    yield 400_000 / took
    subject.storage.close()
    shutil.rmtree(directory + "/idle")


def reading(directory: str) -> Iterator[float]:
    """Messages per second at the end of a stream, from memory."""
    subject = Subject(directory + "/cached", cache_bytes=1 << 30)
    subject.append([b"s.%d" % number for number in range(1000)], 200_000)
    subject.flush(0)
    took, read = timed(lambda: subject.read_all(None))
    yield read / took
    subject.storage.close()
    shutil.rmtree(directory + "/cached")


def filtered(directory: str) -> Iterator[float]:
    """Eight wildcard filters that together match half of 16,000 subjects."""
    subject = Subject(directory + "/filtered", cache_bytes=1 << 20)
    subjects = [b"p.%d.key.%d" % (number % 16, number) for number in range(16_000)]
    for _ in range(20):
        subject.append(subjects, 16_000)
        subject.flush(1)
    subject.flush(0)
    chosen = SubjectFilter([b"p.%d.>" % partition for partition in range(0, 16, 2)])
    subject.store.count(chosen, 1)
    took, read = timed(lambda: subject.read_all(chosen))
    assert read == 160_000
    yield read / took
    subject.storage.close()
    shutil.rmtree(directory + "/filtered")


def stopping(directory: str, subject: Subject, count: int) -> Iterator[float]:
    chosen = SubjectFilter([b"flights.*.N00%d00" % n for n in range(8)])
    for start in (count // 2, count // 2 + 500):
        took, _ = timed(lambda start=start: subject.store.count(chosen, start))
        yield took * 1000
    shutil.copytree(directory + "/s", directory + "/crashed")
    took, _ = timed(subject.storage.close)
    yield took
    for name in ("s", "crashed"):
        clock = Clock()
        again = Subject(f"{directory}/{name}", cache_bytes=1 << 20)
        yield clock.lap()
        assert again.store.messages == count
        assert not again.storage.report
        again.storage.close()


def run(directory: str, count: int) -> list[float]:
    """In a process of its own, so that memory is told apart."""
    return list(measure(directory, count))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", default="40000,400000,4000000", help="numbers of messages")
    parser.add_argument(
        "--dir", default=None, help="where the files go (default: the temporary one)"
    )
    arguments = parser.parse_args()
    lines = []
    for point in arguments.points.split(","):
        directory = tempfile.mkdtemp(prefix="headrace-bench-", dir=arguments.dir)
        try:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
                values = fresh.submit(run, directory, int(point)).result()
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        lines.append(
            [shape.format(value) for (_, shape), value in zip(COLUMNS, values, strict=True)]
        )
    for number, (title, _) in enumerate(COLUMNS):
        print(f"{title:>17} " + " ".join(f"{line[number]:>14}" for line in lines))


if __name__ == "__main__":
    main()
