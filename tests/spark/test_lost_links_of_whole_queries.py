"""A query from a stream to a sink that writes exactly once, with a connection lost at each step in turn.

A step is of the driver or of a task, of the source or of the sink; what fails nevertheless is tried again, as
Spark does it. The suite plays a part of them; ``make faults`` each one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import peers
from headrace.errors import HeadraceError
from headrace.spark.links.outages import may_pass
from headrace.spark.links.pool import POOL
from sim.spark.engine import TASK_FAILURES_MAX, Attempt, Checkpoint, Driver

from .conftest import Feed
from .losses import Losses

peers.package("pyspark")

EVERY = 1 if os.environ.get("HEADRACE_EVERY_LOSS") else 61
COUNT = 260  # of each of two batches: more than a few, so that a few are left when one is lost late

QUERIES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "stream": ({}, {}),
    "limited": ({"max_msgs": 100_000}, {}),
    "durable": ({}, {"durable": "d"}),
    "two tasks": ({}, {"minPartitions": "2"}),
    "work queue": ({"retention": "workqueue"}, {}),
}


@pytest.fixture(autouse=True)
def _quick_pauses_and_no_links_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("headrace.spark.links.outages.PAUSE_FIRST_S", 0.0005)
    yield
    POOL.close()


def run_tasks(driver: Driver, batch: int, work: list[bytes]) -> list[bytes]:
    results = []
    for partition, each in enumerate(work):
        for number in range(TASK_FAILURES_MAX):
            attempt = Attempt(driver, batch, partition, number, each)
            while not attempt.proc.is_over:
                attempt.proc.resume()
            if attempt.proc.error is None:
                results.append(attempt.proc.result)
                break
            error = attempt.proc.error
            if not (isinstance(error, HeadraceError) and may_pass(error)):
                raise error
    assert len(results) == len(work)
    return results


@pytest.mark.parametrize("kind", QUERIES)
def test_a_query_writes_each_row_once_wherever_a_connection_is_lost(
    make_feed: Callable[..., Feed], losses: Losses, kind: str
) -> None:
    stream, options = QUERIES[kind]
    for at in losses.rounds(50, every=EVERY):
        POOL.close()
        feed, out = make_feed(**stream), make_feed(allow_atomic=True)
        source = {
            "servers": feed.url,
            "stream": feed.name,
            "includeHeaders": "true",
            "startingOffsets": "earliest",
            "pollTimeout": "1ms",
            **options,
        }
        sink = {
            "servers": out.url,
            "stream": out.name,
            "subject": f"{out.name}.r",
            "delivery": "exactlyOnce",
            "sinkId": "s",
            "markerPrefix": f"{out.name}.markers",
        }
        checkpoint = Checkpoint()
        driver = Driver(checkpoint, source, sink, run_tasks, lambda name: None)
        for batch in range(2):
            feed.publish_numbers(batch * COUNT + 1, (batch + 1) * COUNT)
            with losses:
                for _ in range(TASK_FAILURES_MAX):
                    try:
                        while driver.run_batch():
                            pass
                    except HeadraceError as error:
                        assert may_pass(error), error
                        driver.close()
                        driver = Driver(checkpoint, source, sink, run_tasks, lambda name: None)
                    else:
                        break
        driver.close()
        last = out.control.stream_info().state.last_seq
        rows = [each.payload.decode() for each in out.stored(range(1, last + 1))]
        written = [row for row in rows if row.startswith("m")]
        assert written == [f"m{number}" for number in range(1, 2 * COUNT + 1)], at
