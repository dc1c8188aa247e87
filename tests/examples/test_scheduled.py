"""The scheduled messages of ``examples``: their page, what comes, and when the report is due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import guides
import peers
from headrace import Broker
from headrace.client import JetStream
from headrace.clock import ManualClock

EXAMPLE = guides.ROOT / "examples" / "scheduled.py"

FRIDAY = datetime(
    2026, 3, 27, 4, 0, tzinfo=UTC
)  # at five in Berlin, where summer time begins on Sunday


@pytest.fixture(scope="module")
def scheduled() -> Any:
    return guides.load(EXAMPLE)


def test_the_page_shows_the_example() -> None:
    (block,) = guides.blocks_of(guides.ROOT / "docs" / "how-to" / "scheduled.md")
    assert block.code == EXAMPLE.read_text()


@pytest.mark.peer
async def test_what_is_due_comes_and_what_is_forgotten_does_not(
    reference_server: peers.ServerProcess,
    js: JetStream,
    scheduled: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    await scheduled.main(reference_server.url)
    assert capsys.readouterr().out.splitlines() == [
        "reminder for order 1",
        "reminder for order 3",
        "planned: ['plans.report']",
    ]


async def test_a_report_is_due_at_six_in_berlin_on_working_days(scheduled: Any) -> None:
    clock = ManualClock(int(FRIDAY.timestamp()) * 10**9)
    due: list[datetime] = []
    async with Broker(clock=clock) as broker, broker.connect() as connection:
        js = connection.jetstream()
        stream = await scheduled.planned(js)
        await scheduled.report_each_morning(js)
        consumer = await stream.create_consumer(durable_name="c", filter_subject="due.report")
        for hour in range(1, 24 * 4):
            clock.advance(3600)
            for message in await consumer.fetch(10, no_wait=True):
                due.append(FRIDAY + timedelta(hours=hour))
                await message.ack_sync()
    assert due == [
        datetime(2026, 3, 27, 5, 0, tzinfo=UTC),  # Friday
        datetime(2026, 3, 30, 4, 0, tzinfo=UTC),  # Monday, in summer
    ]


async def test_another_time_replaces_the_first(scheduled: Any) -> None:
    clock = ManualClock(int(FRIDAY.timestamp()) * 10**9)
    async with Broker(clock=clock) as broker, broker.connect() as connection:
        js = connection.jetstream()
        stream = await scheduled.planned(js)
        await scheduled.remind(js, "1", FRIDAY + timedelta(hours=1))
        await scheduled.remind(js, "1", FRIDAY + timedelta(hours=3))
        consumer = await stream.create_consumer(durable_name="c", filter_subject="due.reminder")
        clock.advance(2 * 3600)
        assert len(await consumer.fetch(10, no_wait=True)) == 0
        clock.advance(3600)
        assert len(await consumer.fetch(10, no_wait=True)) == 1
