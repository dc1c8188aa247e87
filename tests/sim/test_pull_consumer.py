"""The engine and the model are told the same, and must say the same, step by step."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.broker.store import FileStorage
from headrace.testing.faultfs import FaultFS
from jetstream_world import SECOND, Client, Inbox, Received, World
from sim.model import Model

MS = SECOND // 1000
SUBJECTS = st.sampled_from(["s.a", "s.b"])
DURATIONS = st.sampled_from([50, 100, 150, 400, 1000]).map(lambda ms: ms * MS)


class PullConsumer(RuleBasedStateMachine):
    """Publishes, pulls, acks, deletes, waits and restarts at random."""

    world: World
    client: Client
    model: Model

    def __init__(self) -> None:
        super().__init__()
        self.inboxes: dict[int, Inbox] = {}
        self.seen: list[Received] = []
        self.pulls = 0

    @initialize(
        subject=st.sampled_from(["", "s.a"]),
        max_deliver=st.sampled_from([-1, 1, 3]),
        max_ack_pending=st.sampled_from([1, 3, 1000]),
        ack_wait=DURATIONS,
    )
    def start(self, subject: str, max_deliver: int, max_ack_pending: int, ack_wait: int) -> None:
        self.world = self.open()
        self.client = self.world.client()
        self.client.stream()
        self.client.consumer(
            filter_subject=subject,
            max_deliver=max_deliver,
            max_ack_pending=max_ack_pending,
            ack_wait=ack_wait,
        )
        self.model = Model(subject, ack_wait, max_deliver, max_ack_pending)
        self.model.now = self.world.clock.monotonic_ns()

    def open(self) -> World:
        return World()

    def reopen(self) -> None:
        self.world.restart()

    @rule(subject=SUBJECTS, size=st.sampled_from([0, 1, 30]), count=st.integers(1, 3))
    def publish(self, subject: str, size: int, count: int) -> None:
        for _ in range(count):
            self.client.publish(subject.encode(), b"x" * size)
            self.model.publish(subject, size, self.world.clock.now_ns())
            self.compare()

    @rule(
        batch=st.integers(0, 4),
        no_wait=st.booleans(),
        expires=st.one_of(st.none(), DURATIONS),
        max_bytes=st.one_of(st.none(), st.sampled_from([20, 60, 90, 200])),
    )
    def pull(self, batch: int, no_wait: bool, expires: int | None, max_bytes: int | None) -> None:
        body: dict[str, Any] = {"batch": batch, "no_wait": no_wait}
        if expires is not None:
            body["expires"] = expires
        if max_bytes is not None:
            body["max_bytes"] = max_bytes
        self.pulls += 1
        self.inboxes[self.pulls] = self.client.pull(body)
        self.model.pull(self.pulls, batch, no_wait=no_wait, expires=expires, max_bytes=max_bytes)
        self.compare()

    @precondition(lambda self: self.inboxes)
    @rule(data=st.data())
    def stop_listening(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.inboxes)))
        self.compare()
        self.inboxes.pop(number).close()
        self.model.deaf.add(number)

    @precondition(lambda self: self.seen)
    @rule(data=st.data(), kind=st.sampled_from(["+ACK", "+TERM", "-NAK", "later", "+WPI"]))
    def acknowledge(self, data: st.DataObject, kind: str) -> None:
        message = data.draw(st.sampled_from(self.seen[-12:]))
        _, sequence, consumer_seq, _ = message.tokens
        if kind == "later":
            answered = self.model.nak(sequence, consumer_seq, 70 * MS)
            body = b'-NAK {"delay": %d}' % (70 * MS)
        else:
            body = kind.encode()
            if kind == "-NAK":
                answered = self.model.nak(sequence, consumer_seq)
            elif kind == "+WPI":
                answered = self.model.in_progress(sequence)
            else:
                answered = self.model.ack(sequence)
        answers = self.client.ack(message, body)
        assert [answer.payload for answer in answers] == ([b""] if answered else [])
        self.compare()

    @precondition(lambda self: self.model.stored)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.model.stored)))
        self.client.api("STREAM.MSG.DELETE.S", {"seq": sequence})
        self.model.delete(sequence)
        self.compare()

    @precondition(lambda self: len(self.model.stored) > 4)
    @rule(data=st.data())
    def purge(self, data: st.DataObject) -> None:
        sequence = data.draw(st.integers(2, self.model.last_seq + 1))
        self.client.api("STREAM.PURGE.S", {"seq": sequence})
        self.model.purge_below(sequence)
        self.compare()

    @rule(duration=DURATIONS)
    def wait(self, duration: int) -> None:
        self.world.advance(duration / SECOND)
        self.model.advance_to(self.world.clock.monotonic_ns())
        self.compare()

    @precondition(lambda self: self.model.last_seq > 2)
    @rule(data=st.data())
    def reset(self, data: st.DataObject) -> None:
        sequence = data.draw(st.integers(1, self.model.last_seq + 1))
        self.client.api("CONSUMER.RESET.S.C", {"seq": sequence})
        self.model.reset(sequence)
        self.compare()

    @rule()
    def restart(self) -> None:
        assume(self.model.last_seq)
        self.compare()
        self.reopen()
        self.client = self.world.client()
        self.inboxes.clear()
        self.model.restart()
        self.model.said.clear()
        self.world.settle()
        self.compare()

    def compare(self) -> None:
        """Every inbox got what the model says, in the same order."""
        expected: dict[int, list[object]] = {}
        for number, what in self.model.said:
            if number not in self.model.deaf:
                expected.setdefault(number, []).append(what)
        self.model.said.clear()
        actual: dict[int, list[object]] = {}
        for number, inbox in self.inboxes.items():
            for message in inbox.take():
                actual.setdefault(number, []).append(self.picture(message))
        assert actual == expected

    def picture(self, message: Received) -> object:
        if not message.status:
            self.seen.append(message)
            return message.tokens
        left = message.header.get("Nats-Pending-Messages")
        if left is None:
            return message.status, None
        return message.status, (int(left), int(message.header["Nats-Pending-Bytes"]))

    @invariant()
    def the_numbers_agree(self) -> None:
        if not hasattr(self, "model"):
            return
        info = self.client.info()
        model = self.model
        assert (info["delivered"]["consumer_seq"], info["delivered"]["stream_seq"]) == (
            model.delivered
        )
        assert (info["ack_floor"]["consumer_seq"], info["ack_floor"]["stream_seq"]) == model.floor
        assert info["num_ack_pending"] == len(model.pending)
        assert info["num_redelivered"] == sum(d.count > 1 for d in model.pending.values())
        assert info["num_waiting"] == len(model.waiting)
        assert info["num_pending"] == model.num_pending()


class PullConsumerOnDisk(PullConsumer):
    """The same over the file store, on a disk in memory; a restart reads it all back."""

    def open(self) -> World:
        self.disk = FaultFS()
        return World(self.storage())

    def reopen(self) -> None:
        self.world.restart(self.storage)

    def storage(self) -> FileStorage:
        return FileStorage("/store", fs=self.disk, threaded=False)


TestPullConsumer = PullConsumer.TestCase
TestPullConsumer.settings = settings(stateful_step_count=60)
TestPullConsumerOnDisk = PullConsumerOnDisk.TestCase
TestPullConsumerOnDisk.settings = settings(stateful_step_count=40)
