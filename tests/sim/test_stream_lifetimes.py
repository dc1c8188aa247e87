"""Random lives of a stream with TTLs, age, batches, purges and restarts, against a model of a few lines."""

from __future__ import annotations

import random
from typing import Any

import pytest

from faultfs import FaultFS
from headrace.broker.store import FileStorage
from jetstream_world import Client, World

SECOND = 1_000_000_000
GRAIN = 0.55  # seconds within which something due is done
NEVER = float("inf")


class Model:
    """What must be there: ``(subject, stored, expires)`` by sequence, times in seconds."""

    def __init__(self, max_age: float, per_subject: int) -> None:
        self.live: dict[int, tuple[str, float, float]] = {}
        self.last = 0
        self.max_age = max_age
        self.per_subject = per_subject

    def store(self, subject: str, now: float, ttl: float | None) -> None:
        self.last += 1
        expires = now + ttl if ttl is not None else NEVER
        if self.max_age and ttl != NEVER:
            expires = min(expires, now + self.max_age)
        self.live[self.last] = (subject, now, expires)
        same = [sequence for sequence, entry in self.live.items() if entry[0] == subject]
        for sequence in same[: -self.per_subject or None] if self.per_subject else ():
            del self.live[sequence]

    def expire(self, now: float) -> None:
        self.live = {s: entry for s, entry in self.live.items() if entry[2] > now}

    def unsure(self, now: float) -> bool:
        return any(now - GRAIN < entry[2] <= now + 0.001 for entry in self.live.values())


class Life:
    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.fs = FaultFS()
        self.world = World(self.open())
        self.client: Client = self.world.client()
        max_age, per_subject = rng.choice([(0.0, 0), (7.0, 0), (0.0, 3), (9.0, 2)])
        self.model = Model(max_age, per_subject)
        self.client.stream(
            allow_msg_ttl=True,
            allow_atomic=True,
            max_age=round(max_age * SECOND),
            max_msgs_per_subject=per_subject or -1,
            duplicate_window=SECOND,
        )
        self.batches = 0

    def open(self) -> FileStorage:
        salts = random.Random(self.rng.getrandbits(32))
        return FileStorage("/s", fs=self.fs, threaded=False, segment_bytes=8192, salts=salts)

    @property
    def now(self) -> float:
        return self.world.clock.now_ns() / SECOND

    def ttl(self) -> tuple[dict[str, str], float | None]:
        choice = self.rng.choice(["", "", "1", "3", "6s", "20", "never"])
        if not choice:
            return {}, None
        return {"Nats_TTL": choice}, NEVER if choice == "never" else float(choice.rstrip("s"))

    def subject(self) -> str:
        return f"s.{self.rng.randrange(6)}"

    def be_sure(self) -> None:
        """What is about to go may or may not have gone: wait until it has."""
        while self.model.unsure(self.now):
            self.world.advance(GRAIN)
        self.model.expire(self.now)

    def put(self) -> None:
        self.be_sure()
        headers, ttl = self.ttl()
        subject = self.subject()
        assert self.client.put(subject.encode(), b"x" * 90, **headers)["seq"] == self.model.last + 1
        self.model.store(subject, self.now, ttl)

    def batch(self) -> None:
        self.be_sure()
        self.batches += 1
        size = self.rng.randrange(1, 30)
        commit = self.rng.random() < 0.8
        staged = []
        for sequence in range(1, size + 1):
            headers, ttl = self.ttl()
            headers |= {"Nats_Batch_Id": str(self.batches), "Nats_Batch_Sequence": str(sequence)}
            if commit and sequence == size:
                headers["Nats_Batch_Commit"] = "1"
            subject = self.subject()
            staged.append((subject, ttl))
            self.client.publish(subject.encode(), b"y" * 50, **headers)
        for subject, ttl in staged if commit else ():
            self.model.store(subject, self.now, ttl)

    def purge(self) -> None:
        subject = self.subject()
        self.client.api("STREAM.PURGE.S", {"filter": subject})
        live = self.model.live
        self.model.live = {s: entry for s, entry in live.items() if entry[0] != subject}

    def delete(self) -> None:
        self.be_sure()
        if self.model.live:
            sequence = self.rng.choice(list(self.model.live))
            answer = self.client.api("STREAM.MSG.DELETE.S", {"seq": sequence})
            assert answer["success"], answer
            del self.model.live[sequence]

    def pause(self) -> None:
        self.world.advance(self.rng.choice([0.1, 0.7, 2.0]))
        self.client = self.world.client()

    def restart(self) -> None:
        away = self.rng.choice([0.0, 1.5, 10.0])

        def reopen() -> FileStorage:
            self.world.clock.advance(away)
            self.fs = self.fs.kill()
            return self.open()

        if self.rng.random() < 0.5:
            self.world.restart(reopen)
        else:
            self.world.storage = reopen()
            self.world.clients.clear()
            self.world._start()
        self.client = self.world.client()

    def check(self) -> None:
        if self.model.unsure(self.now):
            return
        self.model.expire(self.now)
        info: dict[str, Any] = self.client.api(
            "STREAM.INFO.S", {"subjects_filter": ">", "deleted_details": True}
        )["state"]
        first, last = info["first_seq"], info["last_seq"]
        gone = set(info.get("deleted", []))
        there = [s for s in range(first, last + 1) if s not in gone] if info["messages"] else []
        assert there == sorted(self.model.live)
        assert last == self.model.last
        counts: dict[str, int] = {}
        for subject, _, _ in self.model.live.values():
            counts[subject] = counts.get(subject, 0) + 1
        assert info.get("subjects", {}) == counts


@pytest.mark.parametrize("seed", range(10))
def test_what_is_there_is_what_should_be(seed: int) -> None:
    life = Life(seed)
    steps = [life.put] * 6 + [life.batch, life.batch, life.purge, life.delete]
    steps += [life.pause] * 4 + [life.restart]
    for _ in range(150):
        life.rng.choice(steps)()
        life.check()
