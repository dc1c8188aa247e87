"""Queries without Spark: what the tests of the driver do with one."""

from __future__ import annotations

from pathlib import Path

from headrace import sync
from headrace.spark.batches.driver import Driver
from headrace.spark.offsets import Offset
from headrace.spark.options import parse_options

from .conftest import Feed


def driver(feed: Feed, **options: str) -> Driver:
    everything = {"stream": feed.name, "servers": feed.url, "pollTimeout": "50ms", **options}
    return Driver(parse_options(everything, streaming=True))


def shown(feed: Feed, name: str) -> tuple[int, int]:
    info = feed.control.consumer_info(name)
    assert info is not None
    return info.ack_floor.stream_seq or info.delivered.stream_seq, info.num_pending


def made_again(feed: Feed, messages: int) -> None:
    feed.call(f"STREAM.DELETE.{feed.name}")
    feed.create()
    feed.publish_numbers(1, messages)


def copied(feed: Feed, folder: Path) -> Path:
    """A backup of the stream as it is now."""
    with sync.connect(feed.url) as connection:
        connection.jetstream().stream(feed.name).backup(folder)
    return folder


def put_back(feed: Feed, folder: Path) -> None:
    """The stream as it was: sequences and times are those of then, its creation is of now."""
    feed.call(f"STREAM.DELETE.{feed.name}")
    with sync.connect(feed.url) as connection:
        connection.jetstream().restore_stream(folder)


def latest_offset(one: Driver, start: Offset, max_rows: int | None) -> Offset:
    """The end of the next batch after ``start``, as a query of this stream alone finds it."""
    look = one.look(start)
    timeout_s = one._options.poll_timeout_s
    if look.is_idle and one._target is None and one.wait(look, timeout_s):
        look = one.look(start)
    return one.end(look, max_rows)


def ranges(one: Driver, start: Offset, end: Offset) -> list[tuple[int, int]]:
    kept = [Offset.from_dict(offset.to_dict()) for offset in (start, end)]
    return [(piece.lo, piece.hi) for piece in one.plan(*kept)]
