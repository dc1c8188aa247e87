"""Copies against a model: a target is its origin, filtered and renamed, whatever happens meanwhile.

Streams are published to, purged and thinned out, filled up and emptied, their sources taken away and given
back, and the broker restarted, at random.
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from faultfs import FaultFS
from headrace.broker.store import FileStorage
from headrace.clock import ManualClock
from jetstream_world import World
from portions import portion

ROOM = 4
KEYS = ("a", "b", "c")
RULES = [{"src": "s.a", "dest": "t.a"}, {"src": "s.b", "dest": ""}]
RENAMED = {"s.a": "t.a", "s.b": "s.b"}


class Queue:
    """A target that refuses what does not fit, and what of the origin it has not copied yet."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, bytes]] = []
        self.waiting: dict[int, tuple[str, bytes]] = {}

    def fill(self) -> None:
        while self.waiting and len(self.kept) < ROOM:
            self.kept.append(self.waiting.pop(min(self.waiting)))


class Copying(RuleBasedStateMachine):
    """An origin S, a queue Q with little room, a filtered target T, and a mirror M."""

    @initialize()
    def start(self) -> None:
        self.fs = FaultFS()
        self.world = World(self._open())
        self.client = self.world.client()
        self.origin: dict[int, tuple[str, bytes]] = {}
        self.mirror: dict[int, tuple[str, bytes]] = {}
        self.target: list[tuple[str, bytes]] = []
        self.queue = Queue()
        self.last = 0
        self.missed: dict[int, tuple[str, bytes]] = {}
        self.is_sourced = True
        self.client.stream("S")
        self.client.api("STREAM.CREATE.T", self._target())
        self.client.api("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "S"}})
        queue = {"name": "Q", "sources": [{"name": "S"}], "discard": "new", "max_msgs": ROOM}
        self.client.api("STREAM.CREATE.Q", queue)
        self.world.settle()

    def _open(self) -> FileStorage:
        return FileStorage(
            "/store",
            fs=self.fs,
            clock=ManualClock(),
            threaded=False,
            segment_bytes=8192,
            salts=random.Random(3),
        )

    def _target(self) -> dict[str, Any]:
        sources = [{"name": "S", "subject_transforms": RULES}]
        return {"name": "T", "subjects": ["own"], "sources": sources}

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=6))
    def publish(self, keys: list[str]) -> None:
        for key in keys:
            self.last += 1
            subject, payload = f"s.{key}", b"%d" % self.last
            self.client.publish(subject.encode(), payload)
            message = (subject, payload)
            self.origin[self.last] = self.mirror[self.last] = message
            self.queue.waiting[self.last] = message
            if subject in RENAMED:
                if self.is_sourced:
                    self.target.append((RENAMED[subject], payload))
                else:
                    self.missed[self.last] = message
        self.world.settle()
        self.queue.fill()

    @rule(data=st.data())
    def delete_from_the_origin(self, data: st.DataObject) -> None:
        if self.origin:
            sequence = data.draw(st.sampled_from(sorted(self.origin)))
            self.client.api("STREAM.MSG.DELETE.S", {"seq": sequence})
            self._gone([sequence])

    @rule(key=st.sampled_from(KEYS))
    def purge_a_subject_of_the_origin(self, key: str) -> None:
        self.client.api("STREAM.PURGE.S", {"filter": f"s.{key}"})
        self._gone([seq for seq, (subject, _) in self.origin.items() if subject == f"s.{key}"])

    def _gone(self, sequences: list[int]) -> None:
        for sequence in sequences:
            self.origin.pop(sequence)
            self.queue.waiting.pop(sequence, None)
            self.missed.pop(sequence, None)

    @rule(keep=st.integers(0, ROOM))
    def make_room_in_the_queue(self, keep: int) -> None:
        self.client.api("STREAM.PURGE.Q", {"keep": keep} if keep else {})
        self.queue.kept = self.queue.kept[-keep:] if keep else []
        self.world.settle()
        self.queue.fill()

    @rule()
    def empty_the_target(self) -> None:
        self.client.api("STREAM.PURGE.T")
        self.target.clear()

    @rule()
    def empty_the_mirror(self) -> None:
        self.client.api("STREAM.PURGE.M")
        self.mirror.clear()

    @rule()
    def take_the_source_away_or_give_it_back(self) -> None:
        self.is_sourced = not self.is_sourced
        config = self._target() if self.is_sourced else {"name": "T", "subjects": ["own"]}
        self.client.api("STREAM.UPDATE.T", config)
        self.world.settle()
        if self.is_sourced:
            self.target += [(RENAMED[s], p) for _, (s, p) in sorted(self.missed.items())]
            self.missed.clear()

    @rule(ticks=st.integers(0, 2))
    def restart(self, ticks: int) -> None:
        for _ in range(ticks):
            self.world.tick()
        self.world.restart(self._open)
        self.client = self.world.client()
        self.world.settle()

    @invariant()
    def targets_are_their_origin(self) -> None:
        if not hasattr(self, "world"):
            return
        assert dict(self._read("S")) == self.origin
        assert dict(self._read("M")) == self.mirror
        assert [message for _, message in self._read("T")] == self.target
        assert [message for _, message in self._read("Q")] == self.queue.kept

    def _read(self, name: str) -> list[tuple[int, tuple[str, bytes]]]:
        stream = self.world.hub.engine.registry.streams[name]  # type: ignore[union-attr]
        found = stream.store.read(0, None, 1 << 20, 1 << 30, stream.store.last_seq)
        return [(m.sequence, (m.subject.decode(), m.payload)) for m in found]


TestCopying = Copying.TestCase
TestCopying.settings = settings(max_examples=portion(40, 20), stateful_step_count=40, deadline=None)
