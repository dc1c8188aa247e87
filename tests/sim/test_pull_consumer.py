"""The engine and the model are told the same, and must say the same, step by step."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from faultfs import FaultFS
from headrace.api.times import format_time
from headrace.broker.core.jetstream import JetStreamOptions
from headrace.broker.core.jetstream.consumer.consumer import Consumer
from headrace.broker.store import FileStorage
from jetstream_world import SECOND, Client, Inbox, Received, World
from sim.model import Model
from sim.vocabulary import Request

MS = SECOND // 1000
SUBJECTS = st.sampled_from(["s.a", "s.b"])
DURATIONS = st.sampled_from([50, 100, 150, 400, 1000]).map(lambda ms: ms * MS)
NOBODY = -1  # the number of a pin that never was
OUTSIDE = frozenset(
    {"left", "bytes_left", "expires_at", "inbox", "delivered", "pin", "plain"}
    | {"heartbeat", "quiet_since"}
)

REQUESTS = st.builds(
    Request,
    inbox=st.just(0),
    left=st.integers(0, 4),
    bytes_left=st.sampled_from([None, None, None, 20, 60, 90, 200]),
    no_wait=st.booleans(),
    expires_at=st.one_of(st.none(), DURATIONS),
)
BY_POLICY = {
    "none": {},
    "overflow": {"min_pending": st.integers(0, 3), "min_ack_pending": st.integers(0, 3)},
    "prioritized": {"priority": st.integers(0, 3)},
    "pinned_client": {},
}


class PullConsumer(RuleBasedStateMachine):
    """Publishes, pulls, acks, deletes, waits, pauses, unpins and restarts at random."""

    world: World
    client: Client
    model: Model

    def __init__(self) -> None:
        super().__init__()
        self.inboxes: dict[int, Inbox] = {}
        self.seen: list[Received] = []
        self.pin_ids = {NOBODY: "nobody"}
        self.pulls = 0

    @initialize(
        subject=st.sampled_from(["", "s.a"]),
        max_deliver=st.sampled_from([-1, 3, 5]),
        max_ack_pending=st.sampled_from([1, 3, 1000]),
        waits=st.one_of(DURATIONS.map(lambda wait: (wait,)), st.just((100 * MS, 250 * MS))),
        policy=st.sampled_from(
            ["none", "pinned_client", "pinned_client", "overflow", "prioritized"]
        ),
        pin_timeout=DURATIONS,
        drains=st.booleans(),
    )
    def start(
        self,
        subject: str,
        max_deliver: int,
        max_ack_pending: int,
        waits: tuple[int, ...],
        policy: str,
        pin_timeout: int,
        drains: bool,
    ) -> None:
        options = JetStreamOptions(pin_handover="drain" if drains else "immediate")
        self.world = self.open(options)
        self.client = self.world.client()
        self.client.stream()
        self.config: dict[str, Any] = {
            "filter_subject": subject,
            "max_deliver": max_deliver,
            "max_ack_pending": max_ack_pending,
            **({"ack_wait": waits[0]} if len(waits) == 1 else {"backoff": waits}),
        }
        if policy != "none":
            self.config |= {"priority_policy": policy, "priority_groups": ["A"]}
        if policy == "pinned_client":
            self.config["priority_timeout"] = pin_timeout
        assert "error" not in self.client.consumer(**self.config)
        self.model = Model(
            subject, waits, max_deliver, max_ack_pending, policy, pin_timeout, drains
        )
        self.model.now = self.world.clock.monotonic_ns()

    def open(self, options: JetStreamOptions) -> World:
        return World(options=options)

    def reopen(self) -> None:
        self.world.restart()

    @rule(subject=SUBJECTS, size=st.sampled_from([0, 1, 30]), count=st.integers(1, 5))
    def publish(self, subject: str, size: int, count: int) -> None:
        for _ in range(count):
            self.client.publish(subject.encode(), b"x" * size)
            self.model.publish(subject, size, self.world.clock.now_ns())
            self.compare()

    @rule(request=REQUESTS, data=st.data())
    def pull(self, request: Request, data: st.DataObject) -> None:
        self.pulls += 1
        request.inbox = self.pulls
        policy = self.model.policy
        for name, values in BY_POLICY[policy].items():
            setattr(request, name, data.draw(values))
        if policy == "pinned_client":
            known = [None, None, self.model.pin, *self.pin_ids]
            request.pin = data.draw(st.sampled_from(known))
        request.plain = data.draw(st.booleans()) and data.draw(st.booleans())
        if request.plain:
            request = Request(self.pulls, request.left, plain=True)
        self.inboxes[self.pulls] = self.client.pull(self.body(request))
        if request.expires_at is not None:
            request.expires_at += self.model.now
        self.model.pull(request)
        self.compare()

    def body(self, request: Request) -> bytes | dict[str, Any]:
        """What a client would send for this request."""
        if request.plain:
            return b"%d" % request.left
        said: dict[str, Any] = {
            "batch": request.left,
            "max_bytes": request.bytes_left,
            "expires": request.expires_at,
            "group": "A",
            "idle_heartbeat": request.heartbeat or None,
            "id": None if request.pin is None else self.pin_ids.get(request.pin),
            **{k: v for k, v in vars(request).items() if k not in OUTSIDE},
        }
        return {name: value for name, value in said.items() if value is not None}

    # When a request that stands by is found to be deaf is nobody's promise.
    @precondition(lambda self: self.inboxes and self.model.policy in ("none", "prioritized"))
    @rule(data=st.data())
    def stop_listening(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.inboxes)))
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
                answered = self.model.ack(sequence, consumer_seq)
        answers = self.client.ack(message, body)
        assert [answer.payload for answer in answers] == ([b""] if answered else [])
        self.compare()

    @rule(
        data=st.data(),
        kind=st.sampled_from(["delete", "purge", "reset", "pause", "pause", "unpin", "restart"]),
    )
    def disturb(self, data: st.DataObject, kind: str) -> None:
        """What happens now and then: one rule, so that the usual is not crowded out."""
        getattr(self, kind)(data)

    def delete(self, data: st.DataObject) -> None:
        if not self.model.stored:
            return
        sequence = data.draw(st.sampled_from(sorted(self.model.stored)))
        self.client.api("STREAM.MSG.DELETE.S", {"seq": sequence})
        self.model.delete(sequence)
        self.compare()

    def purge(self, data: st.DataObject) -> None:
        if len(self.model.stored) < 5:
            return
        sequence = data.draw(st.integers(2, self.model.last_seq + 1))
        self.client.api("STREAM.PURGE.S", {"seq": sequence})
        self.model.purge_below(sequence)
        self.compare()

    @rule(duration=DURATIONS)
    def wait(self, duration: int) -> None:
        self.world.advance(duration / SECOND)
        self.model.advance_to(self.world.clock.monotonic_ns())
        self.compare()
        self.ask()

    def reset(self, data: st.DataObject) -> None:
        if self.model.last_seq < 3:
            return
        sequence = data.draw(st.integers(1, self.model.last_seq + 1))
        self.client.api("CONSUMER.RESET.S.C", {"seq": sequence})
        self.model.reset(sequence)
        self.model.drop_deaf()  # whoever tells how many wait has looked
        self.compare()

    def pause(self, data: st.DataObject) -> None:
        duration = data.draw(st.one_of(st.none(), DURATIONS))
        until = None if duration is None else self.world.clock.now_ns() + duration
        body = None if until is None else {"pause_until": format_time(until)}
        assert "error" not in self.client.api("CONSUMER.PAUSE.S.C", body)
        self.model.pause(0 if duration is None else self.model.now + duration)
        self.compare()

    def unpin(self, data: st.DataObject) -> None:
        if self.model.policy != "pinned_client":
            return
        assert "error" not in self.client.api("CONSUMER.UNPIN.S.C", {"group": "A"})
        self.model.unpin()
        self.compare()

    def restart(self, data: st.DataObject) -> None:
        if not self.model.last_seq:
            return
        self.reopen()
        self.client = self.world.client()
        self.inboxes.clear()
        self.model.restart()
        self.model.said.clear()
        self.compare()

    def compare(self) -> None:
        """Every inbox got what the model says, in the same order."""
        self.world.settle()
        expected: dict[int, list[object]] = {}
        for number, what in self.model.said:
            if number not in self.model.deaf:
                expected.setdefault(number, []).append(what)
        self.model.said.clear()
        actual: dict[int, list[object]] = {}
        for number, inbox in self.inboxes.items():
            for at, message in enumerate(inbox.take()):
                self.learn_pin(message, expected.get(number, [])[at : at + 1])
                actual.setdefault(number, []).append(self.picture(message))
        assert actual == expected, f"{actual} instead of {expected}"

    def picture(self, message: Received) -> object:
        if not message.status:
            self.seen.append(message)
            return *message.tokens, self.pin_of(message)
        left = message.header.get("Nats-Pending-Messages")
        if left is None:
            return message.status, None
        return message.status, (int(left), int(message.header["Nats-Pending-Bytes"]))

    def pin_of(self, message: Received) -> int | None:
        """The number the model gave to this pin."""
        pin_id = message.header.get("Nats-Pin-Id", "")
        assert ("Nats-Pin-Id" in message.header) == (self.model.policy == "pinned_client")
        return next((number for number, known in self.pin_ids.items() if known == pin_id), None)

    def learn_pin(self, message: Received, expected: list[Any]) -> None:
        """A new id belongs to the number the model expects here, if that has none yet."""
        pin_id = message.header.get("Nats-Pin-Id", "") if message.headers else ""
        if pin_id and pin_id not in self.pin_ids.values() and expected and len(expected[0]) > 2:
            self.pin_ids.setdefault(expected[0][4], pin_id)

    @invariant()
    def the_numbers_agree(self) -> None:
        if not hasattr(self, "model"):
            return
        model, consumer = self.model, self.consumer
        state = consumer.state
        assert (state.delivered_consumer, state.delivered_stream) == model.delivered
        assert (state.floor_consumer, state.floor_stream) == model.floor
        assert set(state.pending) == set(model.pending)
        assert set(state.deliveries) == {s for s, d in model.pending.items() if d.count > 1}
        assert consumer.queue.waiting == len(model.waiting)
        assert consumer.num_pending() == model.num_pending()

    @property
    def consumer(self) -> Consumer:
        engine = self.world.hub.engine
        assert engine is not None
        consumer: Consumer = engine.registry.streams["S"].consumers["C"]
        return consumer

    def ask(self) -> None:
        """The same numbers, as clients are told them."""
        info, model = self.client.info(), self.model
        model.drop_deaf()
        assert tuple(info["delivered"][key] for key in ("consumer_seq", "stream_seq")) == (
            model.delivered
        )
        assert info["num_ack_pending"] == len(model.pending)
        assert info["num_waiting"] == len(model.waiting)
        assert info["num_pending"] == model.num_pending()
        assert info.get("paused", False) == (model.paused_until > model.now)
        if model.policy == "pinned_client":
            (group,) = info["priority_groups"]
            known = None if model.pin is None else self.pin_ids[model.pin]
            assert group.get("pinned_client_id") == known


class PullConsumerOnDisk(PullConsumer):
    """The same over the file store, on a disk in memory; a restart reads it all back."""

    def open(self, options: JetStreamOptions) -> World:
        self.disk = FaultFS()
        return World(self.storage(), options)

    def reopen(self) -> None:
        self.world.restart(self.storage)

    def storage(self) -> FileStorage:
        return FileStorage("/store", fs=self.disk, threaded=False)


# 3,000 steps with the profile of CI, where a life is seldom cut short; `make test-all` plays 22,000, and
# `make soak` has no end of them.
LIVES = int(os.environ.get("HEADRACE_PULL_LIVES", "30"))
IN_CI = settings.get_current_profile_name() == "ci"
TestPullConsumer = PullConsumer.TestCase
TestPullConsumer.settings = (
    settings(max_examples=LIVES, stateful_step_count=100)
    if IN_CI
    else settings(stateful_step_count=60)
)
TestPullConsumerOnDisk = PullConsumerOnDisk.TestCase
TestPullConsumerOnDisk.settings = (
    settings(max_examples=LIVES, stateful_step_count=50)
    if IN_CI
    else settings(stateful_step_count=40)
)
