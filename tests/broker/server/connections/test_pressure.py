"""While the disk is behind, who fills the queue waits, and whoever stores little does not."""

from __future__ import annotations

import asyncio
import random
from contextlib import closing
from typing import Any

import pytest

from headrace import Broker as Embedded
from headrace.broker.core.hub import Hub
from headrace.broker.core.net.session import Session
from headrace.broker.server import Broker
from headrace.broker.server.connections.pump import Pressure, Pump
from headrace.clock import ManualClock
from headrace.limits import INGEST_BEHIND_BYTES, INGEST_SHARE_BYTES
from waiting import until

CONNECT = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
LARGE = b"PUB a %d\r\n%b\r\n" % (1 << 16, bytes(1 << 16))


class Publisher:
    def __init__(self) -> None:
        self.held: list[bool] = []

    def hold_reading(self, hold: bool) -> None:
        self.held.append(hold)


class Queue:
    """Stands for the disk: holds as much as was put into it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.size = 0
        monkeypatch.setattr(Hub, "queued_bytes", property(self._size_of))

    def _size_of(self, hub: Hub) -> int:
        return self.size + sum(session.in_bytes for session in hub.sessions.values())


def pressure_of(monkeypatch: pytest.MonkeyPatch) -> tuple[Queue, Pressure]:
    return Queue(monkeypatch), Pressure(Hub(ManualClock(), random.Random(1)))


def test_nobody_is_held_while_the_queue_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, pressure = pressure_of(monkeypatch)
    queue.size = INGEST_BEHIND_BYTES
    assert not pressure.look()
    assert not pressure.is_behind


def test_who_has_had_a_share_is_held_until_the_queue_is_shorter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue, pressure = pressure_of(monkeypatch)
    much, little = Publisher(), Publisher()
    queue.size = INGEST_BEHIND_BYTES + 1
    pressure.look()
    assert pressure.is_behind
    for _ in range(4):
        pressure.staged(little, INGEST_SHARE_BYTES // 4)
        pressure.staged(much, INGEST_SHARE_BYTES)
    assert (much.held, little.held) == ([True], [])
    queue.size = INGEST_BEHIND_BYTES * 3 // 4 + 1
    assert not pressure.look()
    assert pressure.holds(much)
    queue.size -= 1
    assert list(pressure.look()) == [much]
    assert not pressure.holds(much)
    assert not pressure.is_behind


def test_a_share_begins_anew_whenever_the_disk_falls_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue, pressure = pressure_of(monkeypatch)
    publisher = Publisher()
    for _ in range(3):
        queue.size = INGEST_BEHIND_BYTES + 1
        pressure.look()
        pressure.staged(publisher, INGEST_SHARE_BYTES)
        queue.size = 0
        assert not list(pressure.look())
    assert publisher.held == []


def test_who_leaves_is_not_told_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, pressure = pressure_of(monkeypatch)
    publisher = Publisher()
    queue.size = INGEST_BEHIND_BYTES + 1
    pressure.look()
    pressure.staged(publisher, INGEST_SHARE_BYTES + 1)
    pressure.forget(publisher)
    queue.size = 0
    assert not list(pressure.look())


def falls_behind(pump: Pump) -> bool:
    pump.wake()
    return pump.pressure.is_behind


def has_said(pump: Pump, session: Session, size: int) -> bool:
    pump.wake()
    return session.in_bytes >= size


async def connected(broker: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(CONNECT + b"PING\r\n")
    await reader.readuntil(b"PONG\r\n")
    return reader, writer


async def test_a_neighbour_of_a_flood_is_read_while_the_flood_waits_for_the_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = Queue(monkeypatch)
    async with Broker() as broker, asyncio.timeout(20):
        _, flooding = await connected(broker)
        reader, neighbour = await connected(broker)
        flood, _ = sorted(broker.hub.sessions.values(), key=lambda session: session.client_id)
        with closing(flooding), closing(neighbour):
            queue.size = INGEST_BEHIND_BYTES + 1
            pump = broker._pump
            assert pump is not None
            await until(lambda: falls_behind(pump), "not behind")
            flooding.write(LARGE * 200 + b"PING\r\n")
            connection = pump.connections[flood.client_id]
            await until(lambda: pump.pressure.holds(connection), "the flood is not held")
            for _ in range(100):
                neighbour.write(b"PUB b 4\r\nword\r\nPING\r\n")
                await reader.readuntil(b"PONG\r\n")
            assert flood.in_bytes < 100 * len(LARGE)
            queue.size = -(1 << 40)
            await until(lambda: has_said(pump, flood, 200 << 16), "it does not go on")


async def test_a_flood_in_process_waits_as_one_of_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue(monkeypatch)
    async with Embedded(port=-1) as broker, asyncio.timeout(20), broker.connect() as client:
        queue.size = INGEST_BEHIND_BYTES + 1
        pump = broker._pump
        assert pump is not None
        await until(lambda: falls_behind(pump), "not behind")
        for _ in range(10):
            client.publish_nowait("a", bytes(1 << 16))
        (connection,) = pump.connections.values()
        await until(lambda: pump.pressure.holds(connection), "it is not held")
        queue.size = -(1 << 40)
        await client.flush()
