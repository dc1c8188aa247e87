"""SIGKILL while a catch-up runs: afterwards the copies are what they were copied from, no more, no less."""

from __future__ import annotations

import os
import random
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import peers
from crash.kill_load import STREAM, Requester
from headrace.broker.core.jetstream.headers import read_origination
from headrace.broker.store import FileStorage
from headrace.message import StoredMessage
from waiting import until_here

KILLS = max(1, int(os.environ.get("HEADRACE_KILLS", "50")) // 16)
SEED = int(os.environ.get("HEADRACE_SEED", "20130101"))
MESSAGES = 30_000
EARLIEST_SECONDS, LATEST_SECONDS = 0.0, 0.12
PATIENCE_SECONDS = 30.0
COPIES: dict[str, dict[str, Any]] = {
    "SOURCED": {"sources": [{"name": STREAM}]},
    "MIRRORED": {"mirror": {"name": STREAM}},
}


def begin(server: peers.ServerProcess) -> None:
    """A long stream, and two that copy it."""
    with Requester(server.host, server.port) as requester:
        requester.create_stream()
        requester.publish("crash.0", MESSAGES)
        for name, config in COPIES.items():
            reply = requester.ask(f"STREAM.CREATE.{name}", {"name": name, **config})
            assert "error" not in reply, reply


def wait(server: peers.ServerProcess) -> None:
    """Until both copies hold as much as their origin."""
    with Requester(server.host, server.port) as requester:

        def is_whole(name: str) -> bool:
            return bool(requester.ask(f"STREAM.INFO.{name}")["state"]["messages"] >= MESSAGES)

        for name in COPIES:
            complaint = f"seed {SEED}: {name} is not whole"
            until_here(partial(is_whole, name), complaint, within=PATIENCE_SECONDS)


def read(storage: FileStorage, name: str) -> list[StoredMessage]:
    store = storage.open_stream(name)
    return store.read(0, None, 2 * MESSAGES, 1 << 30, store.last_seq)


@pytest.mark.timeout(600)
def test_copies_are_whole_and_without_repetition_after_killing_the_broker(tmp_path: Path) -> None:
    moments = random.Random(SEED)
    port = peers.free_port()
    for cycle in range(KILLS):
        server = peers.start_headrace(tmp_path, port=port)
        try:
            if cycle == 0:
                begin(server)
            time.sleep(moments.uniform(EARLIEST_SECONDS, LATEST_SECONDS))
        finally:
            server.kill()
    server = peers.start_headrace(tmp_path, port=port)
    try:
        wait(server)
    finally:
        assert server.stop() == 0, server.log_text()
    assert server.store_dir is not None
    storage = FileStorage(server.store_dir)
    try:
        origin = read(storage, STREAM)
        assert len(origin) == MESSAGES
        assert read(storage, "MIRRORED") == origin
        copied = read(storage, "SOURCED")
        assert [m.payload for m in copied] == [m.payload for m in origin]
        sources = [read_origination(m.headers) for m in copied]
        assert [found and found.sequence for found in sources] == [m.sequence for m in origin]
    finally:
        storage.close()
