"""The broker and its disk: what is kept, what is said when something is wrong."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nats
import pytest

import virtual_time
from headrace.broker import Broker
from headrace.broker.core.monitor.server import healthz
from headrace.broker.server.storage import TIDY_S, OpenStorage
from headrace.broker.store import FileStorage, MemoryStorage
from headrace.errors import ConfigurationError, StoreLockedError


async def publish(broker: Broker, count: int) -> int:
    """Publish into a stream of ours; the last sequence."""
    client = await nats.connect(broker.client_url, allow_reconnect=False)
    streams = client.jetstream()
    await streams.add_stream(name="S", subjects=["s.>"])
    acks = [await streams.publish("s.x", b"%d" % number) for number in range(count)]
    await client.close()
    return acks[-1].seq


async def test_streams_outlive_the_broker(tmp_path: Path, no_leaks: None) -> None:
    async with Broker(store_dir=tmp_path / "store") as broker:
        assert await publish(broker, 20) == 20
    async with Broker(store_dir=tmp_path / "store") as broker:
        assert await publish(broker, 1) == 21


@pytest.mark.parametrize("size", [0, 1000])
async def test_messages_come_from_disk_when_the_payload_cache_is_small(
    tmp_path: Path, size: int
) -> None:
    async with Broker(store_dir=tmp_path / "store", payload_cache_bytes=size) as broker:
        await publish(broker, 50)
        client = await nats.connect(broker.client_url, allow_reconnect=False)
        pulled = await client.jetstream().pull_subscribe("s.>", "reader")
        messages = await pulled.fetch(50, timeout=5)
        assert [message.data for message in messages] == [b"%d" % n for n in range(50)]
        await client.close()


async def test_what_is_on_its_way_when_the_broker_stops_is_acknowledged_and_kept(
    tmp_path: Path,
) -> None:
    connect = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\nSUB in.* 1\r\n'
    messages = b"".join(b"PUB s.x in.%d 1\r\nx\r\n" % number for number in range(500))
    async with Broker(store_dir=tmp_path / "store") as broker:
        await publish(broker, 1)
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        writer.write(connect + b"PING\r\n")
        await reader.readuntil(b"PONG\r\n")
        writer.write(messages + b"PING\r\n")
        await reader.readuntil(b"PONG\r\n")  # received; the disk has hardly begun
    heard = await reader.read()
    writer.close()
    acknowledged = heard.count(b'{"stream":"S","seq":')
    async with Broker(store_dir=tmp_path / "store") as broker:
        assert await publish(broker, 1) == 1 + 500 + 1
    assert acknowledged <= 500


async def test_two_brokers_do_not_share_a_directory(tmp_path: Path, no_leaks: None) -> None:
    async with Broker(store_dir=tmp_path / "store"):
        with pytest.raises(StoreLockedError):
            await Broker(store_dir=tmp_path / "store").start()
    async with Broker(store_dir=tmp_path / "store"):
        pass


async def test_a_wrong_sync_mode_is_named(tmp_path: Path, no_leaks: None) -> None:
    with pytest.raises(ConfigurationError, match="sync is 'sometimes'; accepted are"):
        await Broker(store_dir=tmp_path / "store", sync="sometimes").start()


async def test_damage_on_the_disk_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "store"
    async with Broker(store_dir=directory) as broker:
        await publish(broker, 50)
    (segment,) = sorted(directory.rglob("*.seg"))
    data = bytearray(segment.read_bytes())
    data[data.index(b"s.x") + 3] ^= 0xFF
    segment.write_bytes(data)
    caplog.set_level(logging.WARNING)
    async with Broker(store_dir=directory) as broker:
        client = await nats.connect(broker.client_url, allow_reconnect=False)
        subscription = await client.jetstream().pull_subscribe("s.x", durable="d")
        got = await subscription.fetch(49, timeout=5)
        assert len(got) == 49
        await client.close()
    assert f"Store: {segment}, byte 4096" in caplog.text
    assert "message 1 lost" in caplog.text


async def test_a_failing_disk_makes_the_broker_unhealthy_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object) -> None:
        raise OSError(5, "Input/output error")

    async with Broker(store_dir=tmp_path / "store") as broker:
        assert await publish(broker, 1) == 1
        assert healthz(broker.hub)[0] == 200
        monkeypatch.setattr("headrace.broker.store.io.files.LocalFiles.fdatasync", broken)
        with pytest.raises(Exception, match=r"nats|store|Input"):
            await publish(broker, 1)
        status, document = healthz(broker.hub)
        assert status == 503
        assert "Input/output error" in document["error"]
        monkeypatch.undo()
    assert caplog.text.count("read-only from here on") == 1


async def test_a_full_disk_makes_the_broker_unhealthy_and_is_logged_once_with_what_is_free(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    caplog.set_level(logging.INFO)
    directory = tmp_path / "store"
    async with Broker(store_dir=directory) as broker:
        assert await publish(broker, 1) == 1
        monkeypatch.setattr("headrace.broker.store.io.files.LocalFiles.pwrite", full)
        for _ in range(3):
            with pytest.raises(Exception, match=r"the disk is full: writing .*/0000000001\.seg"):
                await publish(broker, 1)
        status, document = healthz(broker.hub)
        assert (status, "the disk is full" in document["error"]) == (503, True)
        monkeypatch.undo()
        assert await publish(broker, 1) == 2
        assert healthz(broker.hub)[0] == 200
    lines = [line.message for line in caplog.records if "the disk is full" in line.message]
    (line,) = [line for line in lines if line.startswith("Store: ")]
    assert f"writing {directory}/streams/S/0000000001.seg" in line
    assert re.search(rf"; \d+ bytes are free in {directory}$", line)
    assert [r.message for r in caplog.records].count("Store: there is room again") == 1


async def test_the_commit_thread_may_be_done_before_the_opening_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With something in the trash it has work at once, and says so: nobody stumbles over that."""
    loop, unhandled = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda loop, context: unhandled.append(context))
    completed = threading.Event()
    real = FileStorage.__init__

    def early(self: FileStorage, *args: object, notify: Callable[[], None], **rest: Any) -> None:
        real(self, *args, notify=notify, **rest)  # type: ignore[arg-type]
        notify()
        loop.call_soon_threadsafe(completed.set)
        assert completed.wait(10)  # the loop has come to it before this returns

    monkeypatch.setattr(FileStorage, "__init__", early)
    async with Broker(store_dir=tmp_path / "store") as broker:
        assert completed.is_set()
        assert await publish(broker, 1) == 1
    assert unhandled == []


def test_the_storage_does_what_it_does_by_and_by_until_it_is_closed() -> None:
    calls: list[float] = []

    async def life() -> None:
        loop, third = asyncio.get_running_loop(), asyncio.Event()

        def tidy() -> None:
            calls.append(loop.time())
            if len(calls) == 3:
                third.set()

        opened = OpenStorage(MemoryStorage())
        opened.begin_tidying(loop, tidy)
        await third.wait()
        await opened.close()
        await asyncio.Event().wait()

    with pytest.raises(AssertionError, match="nothing will ever happen"):
        virtual_time.run(life())
    assert calls == [TIDY_S, 2 * TIDY_S, 3 * TIDY_S]
