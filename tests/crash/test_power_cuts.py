"""The power goes under a broker on a real ext4: whatever it had confirmed is there when it is back.

The disk is a file, mounted; its power is cut by ext4's own shutdown, which drops all that was not synced.
``HEADRACE_CUTS`` sets how often (2), ``HEADRACE_SEED`` the moments.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import peers
from crash.kill_checker import History, check
from crash.kill_load import Publisher, Requester, load, read_back
from crash.loop_disk import LoopDisk, MountRefusedError
from headrace.broker.store import FileStorage
from headrace.broker.store.io import syncing
from headrace.errors import StoreError
from waiting import until_here

CUTS = int(os.environ.get("HEADRACE_CUTS", "2"))
SEED = int(os.environ.get("HEADRACE_SEED", "20130101"))
PUBLISHERS = 2
EARLIEST_SECONDS, LATEST_SECONDS = 0.005, 0.06
ACKNOWLEDGED_EACH = 11  # on average, at least
TOLD_EVERY = 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    made: LoopDisk | None = None
    try:
        made = LoopDisk(tmp_path)
        yield made
    except MountRefusedError as error:
        pytest.skip(f"no disk to cut the power of: {error}")
    finally:
        if made is not None:
            made.close()


class Chores:
    """Streams made, changed, purged and deleted, and acks; remembers what was confirmed."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._streams: dict[str, tuple[str, int, int]] = {}  # description, first and last sequence
        self._deleted: set[str] = set()
        self._made = 0

    def do(self, requester: Requester) -> None:
        """One of each; every call is answered before the next one."""
        self._made += 1
        name = f"C{self._made}"
        config: dict[str, Any] = {"name": name, "subjects": [f"c{self._made}.*"]}
        self._ask(requester, f"STREAM.CREATE.{name}", config)
        count = self._rng.randrange(1, 40)
        requester.publish(f"c{self._made}.a", count)
        config["description"] = f"after {count}"
        self._ask(requester, f"STREAM.UPDATE.{name}", config)
        keep = self._rng.randrange(1, count + 1)
        self._ask(requester, f"STREAM.PURGE.{name}", {"keep": keep})
        self._streams[name] = (config["description"], count - keep + 1, count)
        if len(self._streams) > 3:
            oldest = next(iter(self._streams))
            self._ask(requester, f"STREAM.DELETE.{oldest}", None)
            del self._streams[oldest]
            self._deleted.add(oldest)
        durable = {"durable_name": "D", "ack_policy": "explicit"}
        body = {"stream_name": name, "config": durable}
        self._ask(requester, f"CONSUMER.CREATE.{name}.D", body)

    def check(self, requester: Requester) -> None:
        names = set(requester.ask("STREAM.NAMES")["streams"] or [])
        assert self._streams.keys() <= names, f"missing: {self._streams.keys() - names}"
        assert not names & self._deleted, f"back: {names & self._deleted}"
        for name, (description, first, last) in self._streams.items():
            info = self._ask(requester, f"STREAM.INFO.{name}", None)
            state = info["state"]
            found = (info["config"]["description"], state["first_seq"], state["last_seq"])
            assert found == (description, first, last), f"{name}: {found}"
            self._ask(requester, f"CONSUMER.INFO.{name}.D", None)

    @staticmethod
    def _ask(requester: Requester, call: str, body: Any) -> dict[str, Any]:
        answer = requester.ask(call, body)
        assert "error" not in answer, f"{call}: {answer['error']}"
        return answer


@pytest.mark.timeout(3600)
def test_what_was_confirmed_is_there_after_a_power_cut(disk: LoopDisk, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    history, chores = History(), Chores(rng)
    publishers = [Publisher(number, history) for number in range(PUBLISHERS)]
    for publisher in publishers:
        publisher.refusals_are_fair = True
    port = peers.free_port()
    for cycle in range(CUTS):
        server = peers.start_headrace(tmp_path, store_dir=disk.mounted_at / "store", port=port)

        def cut(server: peers.ServerProcess = server) -> None:
            disk.cut()
            server.kill()

        try:
            with Requester(server.host, server.port) as requester:
                if cycle == 0:
                    requester.create_stream()
                promised = max(history.acknowledged.values(), default=0)
                found = requester.state()["last_seq"]
                assert found >= promised, f"cut {cycle}: {found} < acknowledged {promised}"
                chores.check(requester)
                chores.do(requester)
            load(
                publishers,
                server.host,
                server.port,
                rng.uniform(EARLIEST_SECONDS, LATEST_SECONDS),
                cut,
                ACKNOWLEDGED_EACH * (cycle + 1),
            )
        finally:
            server.kill()
        disk.unmount()
        disk.mount()
        if (cycle + 1) % TOLD_EVERY == 0:
            print(f"{cycle + 1} power cuts, {len(history.acknowledged)} acknowledged")
    server = peers.start_headrace(tmp_path, store_dir=disk.mounted_at / "store", port=port)
    try:
        with Requester(server.host, server.port) as requester:
            messages = requester.state()["messages"]
            chores.check(requester)
        verdict = check(history, read_back(server.host, server.port, messages))
    finally:
        assert server.stop() == 0, server.log_text()
    acknowledged = len(history.acknowledged)
    print(f"{CUTS} power cuts, {acknowledged} acknowledged, {messages} stored, seed {SEED}")
    assert not verdict.faults, f"seed {SEED}:\n{verdict}"
    assert acknowledged >= CUTS * ACKNOWLEDGED_EACH, f"only {acknowledged}: no load to speak of"


def test_the_disk_forgets_what_was_not_synced_and_nothing_else(disk: LoopDisk) -> None:
    """Or the test above would prove nothing."""
    kept, lost = disk.mounted_at / "kept", disk.mounted_at / "lost"
    with kept.open("wb") as file:
        file.write(b"k" * 10_000)
        file.flush()
        os.fsync(file.fileno())
        file.write(b"l" * 10_000)
    lost.write_bytes(b"l")
    disk.cut()
    with pytest.raises(OSError), (disk.mounted_at / "late").open("wb"):
        pass
    disk.unmount()
    disk.mount()
    assert kept.read_bytes()[:10_000] == b"k" * 10_000
    assert b"l" not in kept.read_bytes()
    assert not lost.exists()


@pytest.mark.timeout(600)
def test_many_streams_synced_by_one_call_are_there_after_a_power_cut(
    disk: LoopDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cut comes while streams are made and filled, all in each flush; what was done is there."""
    monkeypatch.setattr(syncing, "DIRTY_MAX", 1 << 62)  # whatever else the machine writes
    rng = random.Random(SEED)
    names = [f"S{number}" for number in range(30)]
    done = 0  # so many messages of each stream were confirmed
    synced = 0
    for _ in range(2 * CUTS):
        storage = FileStorage(disk.mounted_at / "store", segment_bytes=16 * 1024)
        found = [storage.open_stream(n).last_seq if n in storage.streams() else 0 for n in names]
        assert min(found) >= done, f"seed {SEED}: {found} < {done}"
        done = 0
        cutting = threading.Timer(rng.uniform(0.05, 0.4), disk.cut)
        cutting.start()
        told: list[Exception | None] = []
        try:
            while all(error is None for error in told):
                for name in names:
                    log = (
                        storage.open_stream(name)
                        if name in storage.streams()
                        else storage.create_stream(name)
                    )
                    log.append(b"s", b"", b"x" * 300, 1)
                before = len(told)
                storage.flush(told.append)
                until_here(partial(_is_told, storage, told, before), "no flush ended", within=60)
                if told[-1] is None:
                    done = min(storage.open_stream(name).last_seq for name in names)
        except StoreError:
            assert storage.failed is not None
        finally:
            cutting.join()
        synced += storage._writer.syncing.whole
        storage.close()
        disk.unmount()
        disk.mount()
    assert synced > len(names), "the way this is about was not taken"


def _is_told(storage: FileStorage, told: list[Exception | None], before: int) -> bool:
    storage.complete()
    return len(told) > before
