"""One seed: a broker and its clients, until the power has gone a few times and all work is done."""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

from faultfs import FaultFS, PowerCut
from headrace.broker.store.log import idle
from sim.whole.admin import HOUR, SECOND, Admin
from sim.whole.desk import Desk
from sim.whole.keyvalue import Bucket
from sim.whole.ledger import Ledger
from sim.whole.plant import Plant
from sim.whole.publishers import Publisher
from sim.whole.stage import Stage
from sim.whole.workers import Worker, worker_of

__all__ = ["Simulation", "simulate", "simulate_many"]

STEPS = 40
BIG = 1 << 40
REST_NS = 20_000_000
_COLLECT_EVERY = 25
KINDS = ("relaxed", "relaxed", "relaxed", "direct", "pedantic", "plain")


def simulate_many(seeds: Iterable[int]) -> Counter[str]:
    """Play seeds one after the other. Garbage is collected between them: it costs a fifth otherwise."""
    counts: Counter[str] = Counter()
    gc.disable()
    try:
        for number, seed in enumerate(seeds):
            counts += simulate(seed)
            if number % _COLLECT_EVERY == 0:
                gc.collect()
    finally:
        gc.enable()
    return counts


def simulate(seed: int) -> Counter[str]:
    """Play a seed; returns what happened how often. AssertionError names the seed."""
    try:
        with _restless() if seed % 2 else nullcontext():
            return Simulation(seed).play()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error


@contextmanager
def _restless() -> Iterator[None]:
    """Segments are left to their files as soon as nobody has asked about them for a moment."""
    room: dict[str, Any] = {
        "INDEX_BYTES": -1,
        "SUBJECT_MESSAGES_MIN": 0,
        "RESTS_MAX": 1,
        "REST_NS": REST_NS,
    }
    with mock.patch.multiple(idle, **room):
        yield


class Simulation:
    """See the module."""

    def __init__(self, seed: int, fs: Any = None) -> None:
        self.rng = random.Random(seed)
        self.plant = Plant(self.rng, FaultFS(wholes=seed % 2 == 1) if fs is None else fs)
        self.stage = Stage(self.rng, self.plant)
        self.consumers: dict[str, dict[str, dict[str, Any]]] = {}
        self.actors: list[Any] = []
        self.workers: list[Worker] = []
        self._cast()

    # -- who plays

    def _cast(self) -> None:
        rng, configs = self.rng, self.stage.configs
        plain = {"duplicate_window": HOUR, "allow_atomic": True, "allow_batched": True}
        keep = {"max_msgs_per_subject": rng.choice((1, 3, 5))} if rng.random() < 0.3 else {}
        configs["S"] = {"subjects": ["s.>"], **plain, **keep}
        self._publishers("S", rng.choice((1, 1, 2)))
        self._consumer("S", "PULL", filter_subject="s.a" if rng.random() < 0.4 else None)
        if rng.random() < 0.4:
            flow = {"flow_control": True, "idle_heartbeat": SECOND} if rng.random() < 0.6 else {}
            self._consumer("S", "PUSH", deliver_subject="D.PUSH", **flow)
        if rng.random() < 0.25:
            self._consumer("S", "ALL", ack_policy="all")
        if rng.random() < 0.25:
            self._consumer("S", "NONE", ack_policy="none")
        if rng.random() < 0.5:
            configs["W"] = {"subjects": ["w.>"], "retention": "workqueue", **plain}
            self._publishers("W", 1)
            self._consumer("W", "WORK")
        if rng.random() < 0.5:
            configs["KV_B"] = {
                "subjects": ["$KV.B.>"],
                "max_msgs_per_subject": rng.choice((1, 1, 3)),
                "discard": "new",
                "allow_rollup_hdrs": True,
                "deny_delete": True,
                "allow_direct": True,
            }
            self.actors.append(Bucket(self.stage))
        if rng.random() < 0.4:
            configs["X"] = {"subjects": ["x.>"], **plain}
            self._publishers("X", 1)
            self._consumer("X", "XP")
        if rng.random() < 0.3:
            configs["M"] = {"mirror": {"name": "S"}}
        if rng.random() < 0.3:
            configs["T"] = {"subjects": ["own"], "sources": [{"name": "S"}]}
        self.admin = Admin(self.stage, self.consumers)
        self.actors.append(self.admin)

    def _publishers(self, stream: str, count: int) -> None:
        self.actors += [Publisher(self.stage, stream) for _ in range(count)]

    def _consumer(self, stream: str, name: str, **config: Any) -> None:
        config = {"ack_policy": "explicit", "max_ack_pending": 60, "ack_wait": 2 * SECOND, **config}
        if config["ack_policy"] == "none":
            del config["max_ack_pending"], config["ack_wait"]
        config = {key: value for key, value in config.items() if value is not None}
        self.consumers.setdefault(stream, {})[name] = config
        worker = worker_of(self.stage, stream, name, "deliver_subject" in config)
        self.workers.append(worker)
        self.actors.append(worker)

    # -- what happens

    def play(self) -> Counter[str]:
        rng = self.rng
        self.start()
        for _ in range(rng.choice((1, 2, 2, 3))):
            way = rng.choice(("cut", "cut", "cut", "cut", "kill", "stop"))
            if way == "cut":
                self._arm(rng.randrange(1, 250))
            try:
                self.go(rng.randrange(STEPS // 2, STEPS))
                if way == "stop":
                    self.plant.stop()
                    self.stage.counts["clean stop"] += 1
            except PowerCut:
                self.stage.counts["power cut"] += 1
            self.restart("cut" if way == "cut" else "kill")
        self.finish()
        return self.stage.counts

    def start(self) -> None:
        """Boot an empty disk, and make everything."""
        self.plant.boot()
        for actor in self.actors:
            actor.connect(self.rng.choice(KINDS))
        for name in self.stage.configs:
            self.admin.make(name)
        self.admin.link.push()
        self.plant.tick()

    def go(self, steps: int) -> None:
        """So many moves of anybody."""
        rng, plant = self.rng, self.plant
        for _ in range(steps):
            actor = rng.choice(self.actors)
            actor.act()
            link = actor.link
            if link.waiting:
                whole = rng.random() < 0.85 or getattr(actor, "at_once", False)
                link.push(None if whole else rng.randrange(1, link.waiting + 1))
            if rng.random() < 0.8:
                plant.tick()
            fate = rng.random()
            if fate < 0.55:
                plant.commit()
                plant.complete()
            elif fate < 0.7:
                plant.commit()
            elif fate < 0.75:
                plant.advance(rng.choice((0.01, 0.3, 2.5)))

    def move(self) -> None:
        """One move of one of them, and perhaps of the disk."""
        self.go(1)

    def _arm(self, operation: int) -> None:
        fs = self.plant.fs
        fs.fail(fs.operations + operation, self.rng.choice(("crash", "crash after")))

    def restart(self, way: str) -> None:
        """Open what is on the disk, until that succeeds; the power may go meanwhile."""
        for worker in self.workers:
            worker.disconnected()
        self.plant.lose_power() if way == "cut" else self.plant.die()
        while True:
            if self.rng.random() < 0.2:
                self._arm(self.rng.randrange(1, 25))
            try:
                self.plant.boot()
                self.plant.settle()
            except PowerCut:
                self.stage.counts["power cut while opening"] += 1
                self.plant.lose_power()
            else:
                break
        self.plant.fs.relent()
        self.stage.counts["restart"] += 1
        self._reconcile()

    def finish(self) -> None:
        """Everything that is still to be done, is done; then everything adds up."""
        for actor in self.actors:
            actor.link.push()
        self.plant.settle()
        self.check()
        for worker in self.workers:
            worker.drain()
        self.plant.advance(10)
        self.plant.settle()
        self.check()
        names = self.stage.ask(self.admin.link, "CONSUMER.NAMES.S")["consumers"] or []
        assert set(names) == set(self.consumers["S"]), f"consumers of S: {names}"
        self.plant.stop()

    # -- what must hold

    def check(self) -> None:
        for ledger in self.stage.streams.values():
            if ledger.name not in "MT":
                ledger.equals(*self._read(ledger.name))
            self.admin.check_stream(ledger)
        self._check_copies()

    def named(self, name: str) -> set[int]:
        """What the store says it has lost of a stream."""
        return set()

    def _read(self, name: str) -> tuple[list[Any], int]:
        assert self.plant.hub.engine is not None
        store = self.plant.hub.engine.registry.streams[name].store
        return store.read(0, None, BIG, BIG, store.last_seq), store.last_seq

    def _check_copies(self) -> None:
        """A mirror and a source of S hold what S had, in its order, and all it has."""
        origin = self.stage.streams["S"]
        if "M" in self.stage.streams:
            found = {m.sequence: (m.subject, m.payload) for m in self._read("M")[0]}
            self._is_copy("M", found)
        if "T" in self.stage.streams:
            messages = self._read("T")[0]
            places = [_origin_of(message.headers) for message in messages]
            assert places == sorted(set(places)), f"T: {places}"
            found = {p: (m.subject, m.payload) for p, m in zip(places, messages, strict=True)}
            self._is_copy("T", found)
        self.stage.counts["copies checked"] += len(self.stage.streams.keys() & {"M", "T"})
        assert origin.last >= max(origin.live, default=0)

    def _is_copy(self, name: str, found: dict[int, tuple[bytes, bytes]]) -> None:
        origin = self.stage.streams["S"]
        for sequence, (subject, payload) in found.items():
            record = origin.every.get(sequence)
            assert record is not None, f"{name}: {sequence} of S never was"
            assert (record.subject, record.payload) == (subject, payload), f"{name}: {sequence}"
        # A copy may have passed over what was being removed when the power went, and came back.
        missing = origin.live.keys() - found.keys() - origin.back
        assert not missing, f"{name}: without {sorted(missing)} of S"

    def _reconcile(self) -> None:
        """The broker is up again: is there what was confirmed? Then go on."""
        stage = self.stage
        for actor in self.actors:
            actor.connect(self.rng.choice(KINDS))
        link = self.admin.link
        there = set(stage.ask(link, "STREAM.NAMES")["streams"] or [])
        for name in stage.configs:
            self._find(name, name in there)
        self.plant.settle()

    def _find(self, name: str, there: bool) -> None:
        stage = self.stage
        ledger, former = stage.streams.get(name), stage.former.pop(name, None)
        if not there:
            made = ledger is not None and ledger.acked_version > 0
            assert not made, f"stream {name} was confirmed, and is not there"
            self.admin.make(name)
            self.admin.link.push()
            return
        assert ledger is not None
        config = stage.ask(self.admin.link, f"STREAM.INFO.{name}")["config"]
        if former is not None and config["description"] == f"life {former.life}":
            assert ledger.acked_version == 0, (
                f"{name}: deleted and made anew, and the old one is back"
            )
            ledger = stage.streams[name] = former
        assert config["description"] == f"life {ledger.life}", f"{name}: {config}"
        version = int(config.get("metadata", {}).get("version", 1))
        assert ledger.acked_version <= version <= max(ledger.version, 1), f"{name}: {version}"
        ledger.version = ledger.acked_version = version
        if ledger.keep > 0:
            ledger.keep = config["max_msgs_per_subject"]
        if name not in "MT":
            ledger.reconcile(*self._read(name), self.named(name))
        for record in ledger.every.values():
            record.mark = -1
        for consumer in self.consumers.get(name, ()):
            self._find_consumer(ledger, consumer)

    def _find_consumer(self, ledger: Ledger, name: str) -> None:
        stage = self.stage
        desk: Desk | None = stage.desks_of(ledger).get(name)
        info = stage.ask(self.admin.link, f"CONSUMER.INFO.{ledger.name}.{name}")
        if "error" in info:
            assert info["error"]["err_code"] == 10014, info
            assert desk is None or not desk.is_made, f"consumer {ledger.name}/{name} is not there"
            self.admin.make_consumer(ledger, name)
            self.admin.link.push()
            return
        assert desk is not None
        desk.died()
        if not desk.is_made:  # perhaps the one before it, perhaps this one
            desk.doubtful |= set(ledger.every)
            desk.is_made = True
        desk.position = info["delivered"]["stream_seq"]
        assert desk.position <= ledger.last, f"{ledger.name}/{name}: {info}"


def _origin_of(headers: bytes) -> int:
    for line in headers.split(b"\r\n"):
        if line.startswith(b"Nats-Stream-Source: "):
            return int(line.split(b" ")[2])
    raise AssertionError(f"no source in {headers!r}")
