"""Who publishes: one by one, in windows, with ids, in batches of both kinds, and in runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from headrace.wire.inprocess import PublishRun
from sim.whole.ledger import Ledger
from sim.whole.link import Link
from sim.whole.stage import Answer, Stage, block, publication

__all__ = ["Publisher"]

_IDLE_S = 5.0  # a fast batch that was left alone for so long may be forgotten


class Publisher:
    """Publishes to one stream over one connection."""

    def __init__(self, stage: Stage, stream: str) -> None:
        self.stage = stage
        self.stream = stream
        self.at_once = stream == "X"  # which may go between two pieces, and open batches with it
        self.subjects = [f"{stream.lower()}.{key}".encode() for key in "abc"]
        self.unanswered: dict[bytes, tuple[bytes, bytes]] = {}  # by message id
        self.known: list[tuple[bytes, bytes, bytes]] = []

    def connect(self, kind: str) -> None:
        self.link = Link(self.stage.plant, kind)
        self.fast: _FastBatch | None = None

    def act(self) -> None:
        if self.link.waiting:
            return
        if self.unanswered and self.stage.rng.random() < 0.3:
            self.retry()
            return
        ways: list[Callable[[], None]] = [self.one, self.window, self.named, self.named_window]
        ways += [self.window, self.atomic, self.step_fast, self.step_fast]
        if self.link.kind == "direct":
            ways += [self.run] * 4
        self.stage.rng.choice(ways)()

    # -- ordinary publishes

    def one(self) -> None:
        self.stage.counts["publish"] += 1
        self._publish(self.stage.rng.choice(self.subjects))

    def window(self) -> None:
        """Many in one chunk, answered each, or none."""
        rng = self.stage.rng
        subjects = self.subjects if rng.random() < 0.5 else self.subjects[:1]
        silent = rng.random() < 0.1
        self.stage.counts["window"] += 1
        for _ in range(rng.randrange(2, 24)):
            self._publish(rng.choice(subjects), silent=silent)

    def named(self) -> None:
        """With an id; one that was used before must not be stored again."""
        if self.known and self.stage.rng.random() < 0.4:
            self.stage.counts["publish again"] += 1
            self._name(*self.stage.rng.choice(self.known[-8:]))
        else:
            self.stage.counts["publish named"] += 1
            name = b"n%d" % self.stage.number()
            self._name(name, self.stage.rng.choice(self.subjects), self.stage.payload())

    def named_window(self) -> None:
        self.stage.counts["window named"] += 1
        for _ in range(self.stage.rng.randrange(8, 16)):
            name = b"n%d" % self.stage.number()
            self._name(name, self.stage.rng.choice(self.subjects), self.stage.payload())

    def retry(self) -> None:
        """What had no answer when the broker went down."""
        unanswered, self.unanswered = self.unanswered, {}
        for name, (subject, payload) in unanswered.items():
            self.stage.counts["retry"] += 1
            self._name(name, subject, payload)

    def _name(self, name: bytes, subject: bytes, payload: bytes) -> None:
        if name in self.stage.streams[self.stream].unsure:
            return
        self.unanswered[name] = (subject, payload)
        self.known.append((name, subject, payload))
        self._publish(subject, payload, name)

    def _publish(
        self, subject: bytes, payload: bytes = b"", name: bytes = b"", silent: bool = False
    ) -> None:
        stage = self.stage
        payload = payload or stage.payload()
        headers = block(Nats_Msg_Id=name.decode()) if name else b""
        told = _Told(stage)

        def effect() -> None:
            ledger = stage.streams[self.stream]
            before = ledger.names.get(name) if name else None
            if before is None:
                mark = stage.mark
                told.expect(ledger, ledger.append(subject, payload, mark, name), mark)
            else:
                record = ledger.every[before]
                told.expect(ledger, before, record.mark, again=True)

        def heard(_: bytes, reply: bytes, block: bytes, body: bytes) -> None:
            self.link.forget(inbox)
            self.unanswered.pop(name, None)
            told.answered(msgspec.json.decode(body))

        inbox = b"" if silent else self.link.inbox(heard)
        self.link.say(publication(subject, payload, inbox, headers), effect)

    # -- batches

    def atomic(self) -> None:
        """All or none; now and then one that is never committed, or has a gap."""
        stage, rng = self.stage, self.stage.rng
        stage.counts["atomic batch"] += 1
        batch, count = f"b{stage.number()}", rng.randrange(2, 9)
        messages = [(rng.choice(self.subjects), stage.payload()) for _ in range(count)]
        fate = rng.choice(("commit", "commit", "commit", "leave", "gap"))
        told = _Told(stage)

        def effect() -> None:
            ledger, mark = stage.streams[self.stream], stage.mark
            sequences = [ledger.append(subject, payload, mark) for subject, payload in messages]
            ledger.groups.append((sequences[0], sequences[-1]))
            told.expect(ledger, sequences[-1], mark)

        def heard(_: bytes, reply: bytes, block: bytes, body: bytes) -> None:
            self.link.forget(inbox)
            answer = msgspec.json.decode(body)
            if fate == "gap":
                assert answer["error"]["err_code"] == 10176, answer
            elif told.answered(answer):
                assert answer["count"] == count, answer

        inbox = self.link.inbox(heard)
        for place, (subject, payload) in enumerate(messages, 1):
            last = place == count
            headers = {
                "Nats-Batch-Id": batch,
                "Nats-Batch-Sequence": place + (fate == "gap" and last),
            }
            if last and fate != "leave":
                headers["Nats-Batch-Commit"] = 1
            self.link.say(
                publication(
                    subject, payload, inbox if last and fate != "leave" else b"", block(**headers)
                ),
                effect if last and fate == "commit" else None,
            )

    def step_fast(self) -> None:
        """The next part of a fast batch."""
        now_ns = self.stage.plant.clock.monotonic_ns()
        if self.fast is None or now_ns - self.fast.touched_ns > _IDLE_S * 1e9:
            self.fast = _FastBatch(self)
        if not self.fast.step():
            self.fast = None

    # -- within a process

    def run(self) -> None:
        """Neighbours of one subject, answered together."""
        stage = self.stage
        subject, count = stage.rng.choice(self.subjects), stage.rng.randrange(2, 20)
        payloads = [stage.payload() for _ in range(count)]
        told = [_Told(stage) for _ in range(count)]
        stage.counts["run"] += 1

        def effect() -> None:
            ledger, mark = stage.streams[self.stream], stage.mark
            for one, payload in zip(told, payloads, strict=True):
                one.expect(ledger, ledger.append(subject, payload, mark), mark)

        def heard(topic: bytes, reply: bytes, block: bytes, body: bytes) -> None:
            key = topic.rsplit(b".", 1)[1]
            one = told[-1] if key == run.key else told[int(key) - 1]
            one.answered(msgspec.json.decode(body))

        prefix = self.link.inbox(heard) + b"."
        run = PublishRun(subject, prefix, 1, payloads, sum(map(len, payloads)))
        self.link.say_run(run, effect)


class _Told:
    """What the answer to one publish has to be."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._ledger: Ledger | None = None

    def expect(self, ledger: Ledger, sequence: int, mark: int, *, again: bool = False) -> None:
        self._ledger, self._sequence, self._mark, self._again = ledger, sequence, mark, again

    def answered(self, answer: Answer) -> bool:
        """True if it is a confirmation."""
        stage, ledger = self._stage, self._ledger
        if stage.refused(answer, "publish"):
            return False
        assert ledger is not None, f"an answer to nothing: {answer}"
        expected = (ledger.name, self._sequence, self._again)
        assert (answer["stream"], answer["seq"], answer.get("duplicate", False)) == expected, (
            f"{answer} instead of {expected}"
        )
        stage.counts["duplicate" if self._again else "acknowledged"] += 1
        stage.synced_since(self._mark, f"{ledger.name} {self._sequence}")
        ledger.acked_last = max(ledger.acked_last, self._sequence)
        return True


class _FastBatch:
    """One fast batch: begun, continued in chunks, committed."""

    def __init__(self, publisher: Publisher) -> None:
        stage = self._stage = publisher.stage
        self._publisher = publisher
        self._link = publisher.link
        self._batch = f"f{stage.number()}"
        self._flow = stage.rng.choice((1, 4, 10))
        self._prefix = self._link.inbox(self._heard).decode()
        self._sent = 0
        self._sequences: dict[int, tuple[Ledger, int, int]] = {}
        self._steps = 1 if publisher.at_once else stage.rng.randrange(1, 4)
        self.touched_ns = stage.plant.clock.monotonic_ns()
        stage.counts["fast batch"] += 1

    def step(self) -> bool:
        """Say some more; False when the batch is at its end."""
        self.touched_ns = self._stage.plant.clock.monotonic_ns()
        self._steps -= 1
        if not self._sent:
            self._say(0)
        subjects = self._publisher.subjects[: self._stage.rng.choice((1, 3))]
        for _ in range(self._stage.rng.randrange(2, 14)):
            self._say(1, subjects)
        if self._steps > 0:
            return True
        self._say(2)
        return False

    def _say(self, operation: int, subjects: list[bytes] | None = None) -> None:
        self._sent = place = self._sent + 1
        stage = self._stage
        subject, payload = stage.rng.choice(subjects or self._publisher.subjects), stage.payload()
        reply = f"{self._prefix}.{self._batch}.{self._flow}.fail.{place}.{operation}.$FI".encode()
        effect = partial(self._effect, place, subject, payload)
        self._link.say(publication(subject, payload, reply), effect)

    def _effect(self, place: int, subject: bytes, payload: bytes) -> None:
        ledger, mark = self._stage.streams[self._publisher.stream], self._stage.mark
        self._sequences[place] = (ledger, ledger.append(subject, payload, mark), mark)

    def _heard(self, _: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
        answer = msgspec.json.decode(body)
        if self._stage.refused(answer, "fast batch"):
            return
        if answer.get("type") == "ack":
            self._stored(answer["seq"])
            return
        assert "count" in answer, f"fast batch: {answer}"
        if self._stage.loose and answer["count"] not in self._sequences:
            return
        assert answer["count"] in self._sequences, answer
        assert answer["seq"] == self._sequences[answer["count"]][1], answer
        self._stored(answer["count"])
        self._stage.counts["fast batch done"] += 1

    def _stored(self, place: int) -> None:
        if place:
            ledger, sequence, mark = self._sequences[place]
            self._stage.synced_since(mark, f"{ledger.name} {sequence} of a fast batch")
            ledger.acked_last = max(ledger.acked_last, sequence)
            self._stage.counts["acknowledged"] += 1
