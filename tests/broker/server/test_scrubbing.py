"""The scrub beside a broker that serves: paced, shown in monitoring, ended with the broker."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from headrace.broker import Broker
from headrace.broker.core.monitor.server import jsz
from headrace.broker.server import storage as server_storage
from headrace.broker.server.storage import Scrubbing
from headrace.broker.store.format.segment import HEADER_BYTES
from headrace.broker.store.storage import scrub

pytestmark = pytest.mark.usefixtures("no_leaks")


async def fill(broker: Broker) -> Scrubbing:
    """Put so much into a stream that a file of it is sealed."""
    assert broker._storage is not None
    storage = broker._storage.storage
    log = storage.create_stream("S")
    for _ in range(70):
        log.append(b"s", b"", bytes(1 << 20), 1)
    done = asyncio.Event()
    storage.flush(lambda error: done.set())
    await done.wait()
    found = broker._storage.scrubbing
    assert found is not None
    return found


async def test_damage_is_found_told_and_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrub, "PIECE_BYTES", 8 << 20)
    caplog.set_level(logging.WARNING)
    async with Broker(store_dir=tmp_path, scrub_bytes_s=1 << 40) as broker:
        scrubbing_ = await fill(broker)
        (file,) = broker._storage.storage.sealed_files()  # type: ignore[union-attr]
        with Path(file.path).open("r+b") as raw:
            raw.seek(file.end // 2)
            raw.write(b"rot")
        await scrubbing_.one_pass()
        hub = broker._hub
        assert hub is not None
        shown = jsz(hub)
        assert (shown["scrub"]["passes"], shown["scrub"]["damaged"]) == (1, 1)
        assert shown["scrub"]["bytes"] == file.end - HEADER_BYTES
        assert shown["store_report"][-1]["stream"] == "S"
    assert any("scrub:" in record.getMessage() for record in caplog.records)


async def test_a_pass_keeps_to_its_rate_and_ends_with_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_storage, "FIRST_S", 0.0)
    begun = asyncio.Event()
    real = Scrubbing.one_pass

    async def one_pass(self: Scrubbing) -> None:
        begun.set()
        await real(self)

    broker = Broker(store_dir=tmp_path, scrub_bytes_s=1000)
    async with broker:
        assert broker._storage is not None
        made = await fill(broker)
        monkeypatch.setattr(Scrubbing, "one_pass", one_pass)
        task = asyncio.create_task(made.one_pass())
        await begun.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert made.state.nbytes <= scrub.PIECE_BYTES
        assert made.state.passes <= 1
