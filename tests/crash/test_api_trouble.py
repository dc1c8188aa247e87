"""A life of API calls over a disk that is full, or loses its power, at one operation after the other.

What was confirmed is there afterwards and what was refused is not; a restart finds what the clients were
told last, whatever had been taken back.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from faultfs import Fault, FaultFS, PowerCut
from headrace.broker.store import FileStorage
from jetstream_world import SECOND, Client, World
from portions import portion

SHOWN = ("config", "num_ack_pending", "num_redelivered", "num_pending", "delivered", "ack_floor")
STATE = ("messages", "bytes", "first_seq", "last_seq", "num_deleted", "deleted", "subjects")


def store_on(fs: FaultFS) -> FileStorage:
    return FileStorage("/store", fs=fs, threaded=False, salts=random.Random(1))


class Life:
    """What one client does, and what it was told."""

    def __init__(self, fs: FaultFS, seed: int) -> None:
        self.fs = fs
        self.random = random.Random(seed)
        self.world = World(store_on(fs))
        self.client: Client = self.world.client()
        self.streams: set[str] = set()
        self.deleted: set[str] = set()
        self.in_doubt = ""  # the stream of the call that has had no answer
        self.acked: set[tuple[str, int]] = set()
        self.refused: set[str] = set()

    def live(self, steps: int) -> None:
        self.create(0)
        for step in range(steps):
            choices: list[Callable[[int], None]] = [self.create, self.change, self.remove]
            choices += [self.create, self.publish, self.consume, self.publish, self.consume]
            self.random.choice(choices)(step)

    def create(self, step: int) -> None:
        name = self.random.choice("SWIT")
        configs: dict[str, dict[str, Any]] = {
            "S": {"max_msgs": 8, "max_msgs_per_subject": 3, "allow_rollup_hdrs": True},
            "W": {"retention": "workqueue"},
            "I": {"retention": "interest"},
            "T": {"subjects": [], "sources": [{"name": "S"}], "max_msgs": 4, "discard": "new"},
        }
        config = configs[name]
        self.in_doubt = name
        if name not in self.streams and "error" not in self.client.stream(name, **config):
            self.streams.add(name)
            self.deleted.discard(name)
        if name != "T" and name in self.streams:
            self.client.consumer("C", name, ack_wait=SECOND)
        self.in_doubt = ""

    def change(self, step: int) -> None:
        if not self.streams:
            return
        name = self.random.choice(sorted(self.streams))
        self.in_doubt = name
        what = self.random.choice(["update", "purge", "message", "reset", "wait"])
        if what == "update":
            config = self.client.api(f"STREAM.INFO.{name}")["config"]
            self.client.api(f"STREAM.UPDATE.{name}", {**config, "description": str(step)})
        elif what == "purge":
            self.client.api(f"STREAM.PURGE.{name}", {"keep": self.random.randint(0, 3)})
        elif what == "message":
            self.client.api(f"STREAM.MSG.DELETE.{name}", {"seq": self.random.randint(1, 9)})
        elif what == "reset" and name != "T":
            self.acked = {known for known in self.acked if known[0] != name}
            self.client.api(f"CONSUMER.RESET.{name}.C", {"seq": self.random.randint(1, 5)})
        else:
            self.world.advance(self.random.choice([0.05, 0.3, 1.1]))
        self.in_doubt = ""

    def remove(self, step: int) -> None:
        if not self.streams or self.random.random() < 0.7:
            return
        name = self.random.choice(sorted(self.streams))
        self.in_doubt = name
        self.acked = {known for known in self.acked if known[0] != name}
        self.streams.discard(name)
        if "error" not in self.client.api(f"STREAM.DELETE.{name}"):
            self.deleted.add(name)
        self.in_doubt = ""

    def publish(self, step: int) -> None:
        for number in range(self.random.randint(1, 3)):
            subject = self.random.choice([b"s.a", b"s.b", b"w.a", b"i.a"])
            mark = f"{step}.{number}"
            headers = {"Nats_Rollup": "sub"} if self.random.random() < 0.1 else {}
            answers = self.client.request(subject, mark.encode(), **headers).take()
            if answers[0].payload and "error" in json.loads(answers[0].payload):
                self.refused.add(mark)

    def consume(self, step: int) -> None:
        name = self.random.choice("SWI")
        inbox = self.client.pull({"batch": self.random.randint(1, 4), "no_wait": True}, "C", name)
        for message in inbox.take():
            if message.status:
                continue
            assert (name, message.stream_seq) not in self.acked
            body = self.random.choice([b"+ACK", b"+ACK", b"-NAK"])
            answers = self.client.ack(message, body)
            if body == b"+ACK" and [answer.headers for answer in answers] == [b""]:
                self.acked.add((name, message.stream_seq))


def picture(world: World) -> dict[str, Any]:
    client = world.client()
    found: dict[str, Any] = {}
    for name in client.api("STREAM.NAMES")["streams"] or []:
        info = client.api(f"STREAM.INFO.{name}", {"subjects_filter": ">", "deleted_details": True})
        found[name] = info["config"], [info["state"].get(key) for key in STATE]
        for consumer in client.api(f"CONSUMER.NAMES.{name}")["consumers"] or []:
            info = client.info(consumer, name)
            for position in ("delivered", "ack_floor"):
                info[position].pop("last_active", None)
            found[f"{name}/{consumer}"] = [info[key] for key in SHOWN]
    return found


def check(life: Life, world: World) -> None:
    """What holds however the life ended."""
    client = world.client()
    there = set(client.api("STREAM.NAMES")["streams"] or [])
    assert life.streams - {life.in_doubt} <= there
    assert not there & life.deleted - {life.in_doubt}
    for name in sorted(there - {"T", life.in_doubt}):
        for message in client.pull({"batch": 50, "no_wait": True}, "C", name).take():
            assert message.status or (name, message.stream_seq) not in life.acked
    world.advance(6)
    before = picture(world)
    world.restart(lambda: store_on(life.fs))
    world.settle()
    world.advance(0.3)
    assert picture(world) == before


def life_with(fault: Fault, seed: int) -> tuple[Life, bool]:
    """A life with one operation that goes wrong, and whether that ended it."""
    plain = FaultFS()
    Life(plain, seed).live(40)
    fs = FaultFS()
    life = Life(fs, seed)
    fs.fail(random.Random(~seed).randint(fs.operations + 1, plain.operations), fault)
    try:
        life.live(40)
    except PowerCut:
        return life, True
    return life, False


@pytest.mark.parametrize("seed", range(portion(25, 4)))
def test_a_disk_that_is_full_once_leaves_nothing_that_was_refused(seed: int) -> None:
    life, _ = life_with("enospc", seed)
    life.world.advance(3)
    if life.world.storage.failed is not None:
        life.world.restart(lambda: store_on(life.fs))  # a failed sync: nobody knows what is there
        life.in_doubt = "SWIT"
        life.streams.clear()
        life.deleted.clear()
    else:
        assert life.world.hub.engine is not None
        for stream in life.world.hub.engine.registry.streams.values():
            stored = stream.store.read(1, None, 1000, 1 << 30, stream.store.last_seq)
            assert not life.refused & {message.payload.decode() for message in stored}
    check(life, life.world)


@pytest.mark.parametrize("fault", ["crash", "crash after"])
@pytest.mark.parametrize("seed", range(portion(25, 4)))
def test_a_power_cut_takes_nothing_that_was_confirmed(seed: int, fault: Fault) -> None:
    life, cut = life_with(fault, seed)
    if cut:
        life.fs = life.fs.power_cut(random.Random(seed))
        now_ns = life.world.clock.now_ns()
        life.world = World(store_on(life.fs))
        life.world.clock.advance((now_ns - life.world.clock.now_ns()) / SECOND)
    check(life, life.world)
