"""What the client writes into the log: an outage has a beginning and an end there, once each."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from headrace.client import connect
from headrace.client.events import (
    ErrorEvent,
    Event,
    EventHub,
    LameDuck,
    LeaderWaitOver,
    WaitingForLeader,
)
from headrace.embedded import Broker
from waiting import until


@pytest.mark.parametrize(
    ("event", "level", "line"),
    [
        (LameDuck("a:1"), "WARNING", "server a:1 is about to shut down"),
        (WaitingForLeader("stream 'S'"), "WARNING", "waiting for a leader of stream 'S'"),
        (
            LeaderWaitOver("stream 'S'", 4.04, True),
            "INFO",
            "waited 4.0 s for a leader of stream 'S': found",
        ),
        (ErrorEvent(ValueError("no"), "message 1"), "ERROR", "message 1: no"),
    ],
)
def test_each_event_is_one_line(
    caplog: pytest.LogCaptureFixture, event: Event, level: str, line: str
) -> None:
    caplog.set_level(logging.DEBUG, "headrace.client")
    EventHub(None).emit(event)
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [(level, line)]


async def test_an_outage_is_seen_from_its_beginning_to_its_end(
    quick_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headrace.client")
    async with Broker(store_dir=quick_path / "a", port=-1) as broker:
        port = int(broker.client_url.rpartition(":")[2])
        connection = await connect(broker.client_url, reconnect_wait=0.01, reconnect_wait_max=0.02)
    await until(lambda: not connection.is_connected)
    async with Broker(store_dir=quick_path / "a", port=port):
        await until(lambda: connection.is_connected)
        await asyncio.sleep(0)
        await connection.close()
    levels = [each.levelname for each in caplog.records if each.name == "headrace.client"]
    assert [level for level in levels if level != "DEBUG"] in (
        ["INFO", "WARNING", "INFO"],
        ["INFO", "WARNING", "WARNING", "INFO"],  # it said that it is about to shut down, first
    )
