"""A connection that is lost at each read and each write in turn: every row comes once, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from headrace.spark.delivered.messages import PayloadChunk
from headrace.spark.link import Link
from headrace.spark.reader import ReadPlan, read_payloads, read_range
from headrace.spark.rows import Chunk
from headrace.spark.snapshot import SnapshotPlan, read_snapshot

from .conftest import Feed
from .virtual import Time

pytestmark = pytest.mark.usefixtures("links_end")

COUNT = 220  # more than a few, so that a few are left when it is lost late
DELETED = (2, 9, 100, 149, 150, 151, 215)


@dataclass
class Losses:
    """Loses a connection once in a read: at the step ``at``, which is a read or a write of a socket."""

    feed: Feed
    at: int = 0
    steps: int = 0
    links: list[Link] = field(default_factory=list)

    def connect(self) -> Link:
        self.links.append(self.feed.connect())
        return self.links[-1]

    def step(self, link: Link) -> None:
        if link in self.links and not link.closed:
            self.steps += 1
            if self.steps == self.at:
                link.close()

    def each(self, read: Callable[[], Iterable[Chunk | PayloadChunk]]) -> list[list[Chunk]]:
        """What ``read`` gives without a loss, and with one at each step."""
        found = []
        while self.steps >= self.at:
            self.steps = 0
            chunks = [each.as_rows() if isinstance(each, PayloadChunk) else each for each in read()]
            for link in self.links:
                link.close()
            self.links.clear()
            found.append(chunks)
            self.at += 1
        return found


@pytest.fixture
def lose(monkeypatch: pytest.MonkeyPatch) -> Callable[[Feed], Losses]:
    monkeypatch.setattr("headrace.spark.link.READ_CHUNK_BYTES", 5000)
    read, send = Link._read, Link.send

    def of(feed: Feed) -> Losses:
        losses = Losses(feed)

        def lossy_read(link: Link, timeout_s: float) -> bytes | None:
            losses.step(link)
            return read(link, timeout_s)

        def lossy_send(link: Link, data: bytes) -> None:
            losses.step(link)
            send(link, data)

        monkeypatch.setattr(Link, "_read", lossy_read)
        monkeypatch.setattr(Link, "send", lossy_send)
        return losses

    return of


def payloads(chunks: list[Chunk]) -> list[bytes]:
    return [payload for chunk in chunks for payload in chunk.payloads]


STREAMS: dict[str, dict[str, Any]] = {
    "unlimited": {},
    "limited": {"max_msgs": 100_000},
    "work queue": {"retention": "workqueue"},
    "work queue with direct gets": {"retention": "workqueue", "allow_direct": True},
}


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("of_range", [read_range, read_payloads])
def test_every_row_of_a_range_comes_once_wherever_a_connection_is_lost(
    make_feed: Callable[..., Feed],
    lose: Callable[[Feed], Losses],
    of_range: Callable[..., Iterable[Chunk | PayloadChunk]],
    kind: str,
) -> None:
    feed = make_feed(**STREAMS[kind])
    feed.publish(["x"] * COUNT, lambda index: b"%050d" % (index + 1))
    for seq in DELETED:
        feed.call(f"STREAM.MSG.DELETE.{feed.name}", {"seq": seq})
    plan = ReadPlan(feed.name, 0, COUNT, lambda config: "", 150, 5.0, True)
    losses = lose(feed)
    reads = losses.each(lambda: of_range(losses.connect, plan, Time().patience(5.0)))
    assert len(reads) > 10
    expected = [b"%050d" % number for number in range(1, COUNT + 1) if number not in DELETED]
    cut = [len(chunk.payloads) for chunk in reads[0]]
    for at, chunks in enumerate(reads):
        assert payloads(chunks) == expected, at
        if "queue" not in kind:
            assert [len(chunk.payloads) for chunk in chunks] == cut, at


@pytest.mark.parametrize("count", [30, COUNT])
def test_every_row_that_a_server_selects_comes_once_wherever_a_connection_is_lost(
    feed: Feed, lose: Callable[[Feed], Losses], count: int
) -> None:
    feed.publish(["y" if index % 9 else "x" for index in range(count)], lambda index: b"%d" % index)
    plan = ReadPlan(feed.name, 0, count, lambda config: f"{feed.name}.x", 10, 5.0, True)
    losses = lose(feed)
    reads = losses.each(lambda: read_range(losses.connect, plan, Time().patience(5.0)))
    for at, chunks in enumerate(reads):
        rows = [
            payload
            for chunk in chunks
            for subject, payload in zip(chunk.subjects, chunk.payloads, strict=True)
            if subject.endswith(b".x")
        ]
        assert rows == [b"%d" % index for index in range(0, count, 9)], at


def test_the_latest_of_each_subject_comes_once_wherever_a_connection_is_lost(
    feed: Feed, lose: Callable[[Feed], Losses]
) -> None:
    feed.publish([f"k{index % 90}" for index in range(COUNT)])
    plan = SnapshotPlan(feed.name, ">", 25, 5.0, 5.0)
    losses = lose(feed)
    reads = losses.each(lambda: read_snapshot(losses.connect, plan, Time().patience(5.0)))
    assert len(reads) > 10
    for at, chunks in enumerate(reads):
        assert payloads(chunks) == [b"m%d" % index for index in range(COUNT - 90, COUNT)], at
