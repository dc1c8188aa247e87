"""A connection that is lost at each read and each write in turn: every row comes once, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from headrace.spark.frames import Chunk, PayloadChunk
from headrace.spark.links.link import Link
from headrace.spark.reading.reader import ReadPlan, read_payloads, read_range
from headrace.spark.reading.snapshot import SnapshotPlan, read_snapshot

from .conftest import Feed
from .losses import Losses
from .virtual import Time

pytestmark = pytest.mark.usefixtures("links_end")

COUNT = 220  # more than a few, so that a few are left when it is lost late
DELETED = (2, 9, 100, 149, 150, 151, 215)

STREAMS: dict[str, dict[str, Any]] = {
    "unlimited": {},
    "limited": {"max_msgs": 100_000},
    "work queue": {"retention": "workqueue"},
    "work queue with direct gets": {"retention": "workqueue", "allow_direct": True},
}


def with_losses(
    losses: Losses,
    feed: Feed,
    read: Callable[[Callable[[], Link]], Iterable[Chunk | PayloadChunk]],
    at_least: int,
) -> list[list[Chunk]]:
    """What ``read`` gives without a loss, and with one at each step."""
    found = []
    for _ in losses.rounds(at_least):
        links: list[Link] = []

        def connect(links: list[Link] = links) -> Link:
            links.append(feed.connect())
            return links[-1]

        with losses:
            chunks = list(read(connect))
        found.append(
            [each.as_rows() if isinstance(each, PayloadChunk) else each for each in chunks]
        )
        for link in links:
            link.close()
    return found


def payloads(chunks: list[Chunk]) -> list[bytes]:
    return [payload for chunk in chunks for payload in chunk.payloads]


@pytest.mark.parametrize(
    ("of_range", "kind"),
    [(read_range, kind) for kind in STREAMS]
    + [(read_payloads, "unlimited"), (read_payloads, "limited")],
)
def test_every_row_of_a_range_comes_once_wherever_a_connection_is_lost(
    make_feed: Callable[..., Feed],
    losses: Losses,
    of_range: Callable[..., Iterable[Chunk | PayloadChunk]],
    kind: str,
) -> None:
    feed = make_feed(**STREAMS[kind])
    feed.publish(["x"] * COUNT, lambda index: b"%050d" % (index + 1))
    for seq in DELETED:
        feed.call(f"STREAM.MSG.DELETE.{feed.name}", {"seq": seq})
    plan = ReadPlan(feed.name, 0, COUNT, lambda config: "", 150, 5.0, True)
    reads = with_losses(
        losses, feed, lambda connect: of_range(connect, plan, Time().patience(5.0)), 15
    )
    expected = [b"%050d" % number for number in range(1, COUNT + 1) if number not in DELETED]
    cut = [len(chunk.payloads) for chunk in reads[0]]
    for at, chunks in enumerate(reads):
        assert payloads(chunks) == expected, at
        if "queue" not in kind:
            assert [len(chunk.payloads) for chunk in chunks] == cut, at


@pytest.mark.parametrize("count", [30, COUNT])
def test_every_row_that_a_server_selects_comes_once_wherever_a_connection_is_lost(
    feed: Feed, losses: Losses, count: int
) -> None:
    feed.publish(["y" if index % 9 else "x" for index in range(count)], lambda index: b"%d" % index)
    plan = ReadPlan(feed.name, 0, count, lambda config: f"{feed.name}.x", 10, 5.0, True)
    reads = with_losses(
        losses, feed, lambda connect: read_range(connect, plan, Time().patience(5.0)), 8
    )
    for at, chunks in enumerate(reads):
        rows = [
            payload
            for chunk in chunks
            for subject, payload in zip(chunk.subjects, chunk.payloads, strict=True)
            if subject.endswith(b".x")
        ]
        assert rows == [b"%d" % index for index in range(0, count, 9)], at


def test_the_latest_of_each_subject_comes_once_wherever_a_connection_is_lost(
    feed: Feed, losses: Losses
) -> None:
    feed.publish([f"k{index % 90}" for index in range(COUNT)])
    plan = SnapshotPlan(feed.name, ">", 25, 5.0, 5.0)
    reads = with_losses(
        losses, feed, lambda connect: read_snapshot(connect, plan, Time().patience(5.0)), 15
    )
    for at, chunks in enumerate(reads):
        assert payloads(chunks) == [b"m%d" % index for index in range(COUNT - 90, COUNT)], at
