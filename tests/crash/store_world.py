"""A seeded workload on a store whose disk fails, and what must be true of it afterwards.

The world remembers what it did, operation by operation, and which operations were acknowledged. After
a crash the store must show, for each stream, everything acknowledged, nothing that was acknowledged as
removed, and of the rest a first part: never something from behind a gap.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from faultfs import FaultFS, PowerCut
from headrace.broker.store import FileStorage
from headrace.clock import ManualClock
from headrace.message import StoredMessage
from headrace.subjects import SubjectFilter

BIG = 1 << 40
ROOT = "/store"


@dataclass
class StreamModel:
    """What a stream holds, and what it held when it was last acknowledged."""

    live: dict[int, StoredMessage] = field(default_factory=dict)
    last: int = 0
    acked: dict[int, StoredMessage] = field(default_factory=dict)
    acked_last: int = 0
    ever: dict[int, StoredMessage] = field(default_factory=dict)  # appended since acked, too


class World:
    """A store and the memory of what was done to it."""

    model = StreamModel

    def __init__(
        self,
        seed: int,
        fs: FaultFS,
        *,
        segment_bytes: int = 8192,
        sync: str = "always",
    ):
        self.rng = random.Random(seed)
        self.fs = fs
        self.options: dict[str, Any] = {"segment_bytes": segment_bytes, "sync": sync}
        self.streams: dict[str, StreamModel] = {}  # as staged
        self.acked_streams: dict[str, StreamModel] = {}  # as acknowledged
        self.meta_history: list[dict[str, tuple[bytes, list[bytes]]]] = [{}]
        self.meta_acked = 0
        self.errors: list[Exception] = []
        self.stamp = 0

    def open(self) -> None:
        self.storage = FileStorage(
            ROOT,
            fs=self.fs,
            clock=ManualClock(),
            threaded=False,
            cache_bytes=self.rng.choice([0, 4096, 1 << 20]),
            salts=random.Random(self.rng.getrandbits(32)),
            **self.options,
        )
        self.storage._writer.syncing.thrift.whole_min = 2  # as so few streams have few files

    # -- doing

    def step(self) -> None:
        """One random operation."""
        kind = self.rng.random()
        name = self.rng.choice("ABC")
        if name not in self.streams and name in self.acked_streams:
            self.flush()  # deleting and making again in one flush is two commits
        elif name not in self.streams:
            self.storage.create_stream(name)
            self.streams[name] = StreamModel()
        elif kind < 0.45:
            self.append(name, self.rng.randrange(1, 12))
        elif kind < 0.55:
            self.remove(name)
        elif kind < 0.62:
            self.trim(name)
        elif kind < 0.66:
            self.purge(name)
        elif kind < 0.78:
            self.change_meta()
        elif kind < 0.79:
            self.storage.delete_stream(name)
            del self.streams[name]
        elif kind < 0.8 and not self.streams[name].live:
            self.reset(name)
        else:
            self.flush()

    def append(self, name: str, count: int) -> None:
        model, store = self.streams[name], self.storage.open_stream(name)
        for _ in range(count):
            self.stamp += 1
            message = StoredMessage(
                model.last + 1,
                b"s.%d" % self.rng.randrange(4),
                b"NATS/1.0\r\n\r\n" if self.rng.random() < 0.2 else b"",
                self.rng.randbytes(self.rng.choice([0, 10, 100, 700])),
                self.stamp,
            )
            sequence = store.append(
                message.subject, message.headers, message.payload, message.timestamp_ns
            )
            assert sequence == message.sequence
            model.last = sequence
            model.live[sequence] = model.ever[sequence] = message

    def remove(self, name: str) -> None:
        model, store = self.streams[name], self.storage.open_stream(name)
        chosen = [self.rng.randrange(1, model.last + 2) for _ in range(self.rng.randrange(1, 5))]
        if self.rng.random() < 0.5 and model.live:
            chosen = sorted(model.live)[: self.rng.randrange(1, 20)]
        removed = sum(model.live.pop(sequence, None) is not None for sequence in chosen)
        assert store.remove(chosen) == removed

    def trim(self, name: str) -> None:
        model, store = self.streams[name], self.storage.open_stream(name)
        keep = self.rng.randrange(1, 60)
        gone = sorted(model.live)[: max(0, len(model.live) - keep)]
        assert store.trim(max_messages=keep) == len(gone)
        for sequence in gone:
            del model.live[sequence]

    def purge(self, name: str) -> None:
        model, store = self.streams[name], self.storage.open_stream(name)
        chosen = None
        if self.rng.random() < 0.7:
            chosen = SubjectFilter([b"s.%d" % self.rng.randrange(4), b"s.0"])
        gone = [s for s, m in model.live.items() if chosen is None or chosen.matches(m.subject)]
        assert store.purge(chosen) == len(gone)
        for sequence in gone:
            del model.live[sequence]

    def reset(self, name: str) -> None:
        model, store = self.streams[name], self.storage.open_stream(name)
        model.last += self.rng.randrange(1, 50)
        if store.last_seq < model.last:
            store.reset_first(model.last + 1)

    def change_meta(self) -> None:
        meta, values = self.storage.meta, dict(self.meta_history[-1])
        key, kind = self.rng.choice(["k", "l", "m"]), self.rng.random()
        value = self.rng.randbytes(self.rng.choice([3, 300, 3000]))
        if kind < 0.4:
            meta.put(key, value)
            values[key] = (value, [])
        elif kind < 0.8:
            meta.append(key, value)
            before = values.get(key, (b"", []))
            values[key] = (before[0], [*before[1], value])
        else:
            meta.delete(key)
            values.pop(key, None)
        self.meta_history.append(values)

    def flush(self) -> None:
        """Flush; note what that acknowledges, or take back what it refuses."""
        outcome: list[Exception | None] = []
        self.storage.flush(outcome.append)
        assert len(outcome) == 1
        if outcome[0] is None:
            self.acknowledge()
        else:
            self.errors.append(outcome[0])
            if self.storage.failed is not None:
                raise outcome[0]  # what was in flight may or may not be on disk
            self.take_back()

    def acknowledge(self) -> None:
        for model in self.streams.values():
            model.acked, model.acked_last = dict(model.live), model.last
            model.ever = dict(model.live)
        self.acked_streams = dict(self.streams)
        self.meta_acked = len(self.meta_history) - 1

    def take_back(self) -> None:
        self.streams = dict(self.acked_streams)
        for model in self.streams.values():
            model.live, model.last = dict(model.acked), model.acked_last
            model.ever = dict(model.acked)

    # -- checking

    def check_open(self) -> None:
        """The open store shows exactly what was done."""
        assert self.storage.streams() == sorted(self.streams)
        for name, model in self.streams.items():
            store = self.storage.open_stream(name)
            shown = store.read(1, None, BIG, BIG, BIG)
            assert shown == [model.live[sequence] for sequence in sorted(model.live)]
            assert (store.last_seq, store.messages) == (model.last, len(model.live))
            chosen = SubjectFilter([b"s.1", b"s.3"])
            matching = [m.sequence for m in shown if chosen.matches(m.subject)]
            assert [m.sequence for m in store.read(1, chosen, BIG, BIG, BIG)] == matching
            assert store.count(chosen, 1) == len(matching)
            states: dict[bytes, list[int]] = {}
            for message in shown:
                states.setdefault(message.subject, []).append(message.sequence)
            assert dict(store.subjects(None)) == {
                subject: (found[0], found[-1], len(found)) for subject, found in states.items()
            }

    def recover(self, fs: FaultFS) -> None:
        """Open what a crash left, check it, and go on from there."""
        self.fs = fs
        self.open()
        meta = {
            key: (value, [*deltas]) for key, (value, deltas) in self.storage.meta.load().items()
        }
        # The first delta of a key is written behind an empty value, and may be torn off it.
        assert _said(meta) in map(_said, self.meta_history[self.meta_acked :])
        for name in self.acked_streams:
            if name in self.streams and self.streams[name] is self.acked_streams[name]:
                assert name in self.storage.streams(), f"acknowledged stream {name} is missing"
        survivors: dict[str, StreamModel] = {}
        for name in self.storage.streams():
            survivors[name] = self._check_stream(name)
        self.streams, self.acked_streams = survivors, dict(survivors)
        self.meta_history = [meta]
        self.meta_acked = 0
        lost = [finding for finding in self.storage.report if finding.lost is not None]
        assert not lost, lost

    def _check_stream(self, name: str) -> StreamModel:
        store = self.storage.open_stream(name)
        shown = {m.sequence: m for m in store.read(0, None, BIG, BIG, BIG)}
        candidates = [
            model
            for model in (self.acked_streams.get(name), self.streams.get(name))
            if model is not None
        ]
        problems = [problem for model in candidates if (problem := _differs(model, store, shown))]
        assert len(problems) < len(candidates), (name, problems)
        return StreamModel(
            live=dict(shown),
            last=store.last_seq,
            acked=dict(shown),
            acked_last=store.last_seq,
            ever=dict(shown),
        )


def _differs(model: StreamModel, store: object, shown: dict[int, StoredMessage]) -> str:
    """What of the recovered stream contradicts this model; empty if nothing does."""
    last = store.last_seq  # type: ignore[attr-defined]
    if last < model.acked_last:
        return f"sequences up to {model.acked_last} were acknowledged; it continues at {last + 1}"
    for sequence, message in shown.items():
        if model.ever.get(sequence) != message:
            return f"message {sequence} is not what was appended, or was acknowledged as removed"
    for sequence in model.acked:
        # Only a removal that was staged may explain its absence.
        if sequence not in shown and sequence in model.live:
            return f"acknowledged message {sequence} is lost"
    for sequence in range(model.acked_last + 1, last + 1):
        if sequence not in shown and sequence in model.live:
            return f"message {sequence} is missing in front of later ones"
    return ""


def _said(meta: Any) -> Any:
    """What metadata says, beside keys of which nothing is said."""
    return {key: entry for key, entry in meta.items() if entry != (b"", [])}


def live(world: World, steps: int) -> None:
    """Take steps until they are done or the power is gone."""
    try:
        for _ in range(steps):
            world.step()
        world.flush()
        world.check_open()
    except PowerCut:
        pass


def come_back(world: World, rng: random.Random) -> None:
    """Recover; the power may go during that, too."""
    found = world.fs.power_cut(rng) if rng.random() < 0.7 else world.fs.kill()
    while True:
        if rng.random() < 0.3:
            found.fail(rng.randrange(1, 40), "crash")
        try:
            world.recover(found)
        except PowerCut:
            found = found.power_cut(rng)
        else:
            break
    world.check_open()
