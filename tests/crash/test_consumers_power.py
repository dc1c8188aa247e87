"""Consumers whose journal and messages come to the disk apart: none skips what is published later."""

from __future__ import annotations

import random

import pytest

from faultfs import FaultFS
from headrace.broker.store import FileStorage
from jetstream_world import Client, World
from portions import portion

NAMES = ("all", "new", "none", "filtered")


class Lives:
    """A stream with consumers, whose machine loses its power again and again."""

    def __init__(self, seed: int, sync: str, retention: str) -> None:
        self.rng = random.Random(seed)
        self.sync = sync
        self.fs = FaultFS(wholes=seed % 2 == 0)
        self.world = World(self._open())
        self.client: Client = self.world.client()
        self.number = 0
        self.client.stream(retention=retention)
        self.names = NAMES if retention == "limits" else NAMES[:1]
        configs = {
            "new": {"deliver_policy": "new"},
            "none": {"ack_policy": "none"},
            "filtered": {"filter_subject": "s.0"},
        }
        for name in self.names:
            self.client.consumer(name, **configs.get(name, {}))
        self.world.advance(1)
        self.sync_all()

    def _open(self) -> FileStorage:
        self.salt = random.Random(self.rng.getrandbits(32))
        return FileStorage("/s", fs=self.fs, threaded=False, sync=self.sync, salts=self.salt)

    def sync_all(self) -> None:
        """What the system has written by itself."""
        for path in self.fs.unsynced():
            handle = self.fs.open(path)
            self.fs.fdatasync(handle)
            self.fs.close(handle)

    def publish(self) -> bytes:
        self.number += 1
        payload = b"%d" % self.number
        answer = self.client.put(b"s.%d" % self.rng.randrange(2), payload)
        assert "error" not in answer, answer
        self.world.clock.advance(0.001)
        return payload

    def take(self, name: str, count: int) -> list[bytes]:
        given = self.client.pull({"batch": count, "no_wait": True}, name).take()
        messages = [message for message in given if not message.status]
        for message in messages:
            if self.rng.random() < 0.9:
                self.client.publish(message.reply, b"+ACK")
        return [message.payload for message in messages]

    def step(self) -> None:
        kind = self.rng.random()
        if kind < 0.5:
            self.publish()
        elif kind < 0.9:
            self.take(self.rng.choice(self.names), self.rng.randrange(1, 9))
        elif kind < 0.97:
            self.world.advance(0.2)
        else:
            paths = self.fs.unsynced()
            handle = self.fs.open(self.rng.choice(paths)) if paths else 0
            if handle:
                self.fs.fdatasync(handle)
                self.fs.close(handle)

    def cut_power(self) -> None:
        self.fs = self.fs.power_cut(self.rng)
        self.world.clients.clear()
        self.world.clock.advance(1)
        self.world.storage = self._open()
        self.world._start()
        self.client = self.world.client()

    def check(self) -> None:
        """Whatever is published now is delivered to whom it is for."""
        payloads = [self.publish() for _ in range(5)]
        for name in self.names:
            given = self.drain(name)
            wanted = payloads if name != "filtered" else self.on_subject(payloads)
            assert [p for p in given if p in payloads] == wanted, (name, self.client.info(name))
            assert self.client.info(name)["num_pending"] == 0

    def drain(self, name: str) -> list[bytes]:
        found: list[bytes] = []
        for _ in range(4):
            while given := self.take(name, 50):
                found += given
            self.world.advance(31)  # what is in hand comes again
        return list(dict.fromkeys(found))

    def on_subject(self, payloads: list[bytes]) -> list[bytes]:
        rows = self.world.streams["S"].store.rows(1, None, 1 << 20, 1 << 30, 1 << 40)
        return [row[3] for row in rows if row[1] == b"s.0" and row[3] in payloads]


@pytest.mark.parametrize("retention", ["limits", "workqueue"])
@pytest.mark.parametrize("sync", ["os", "interval:1", "always"])
def test_what_is_published_after_a_power_cut_is_delivered(sync: str, retention: str) -> None:
    for seed in range(portion(60, 5)):
        lives = Lives(seed, sync, retention)
        for _ in range(3):
            for _ in range(lives.rng.randrange(5, 60)):
                lives.step()
            lives.cut_power()
            if lives.rng.random() < 0.5:
                continue  # and goes again, before anything was done
            lives.check()
