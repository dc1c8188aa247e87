"""Heartbeats, full queues and acknowledgements of all before, against the model of them."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from headrace.broker.core.jetstream import JetStreamOptions
from jetstream_world import Received
from portions import portion
from sim.queue_model import QueueModel
from sim.test_pull_consumer import DURATIONS, IN_CI, MS, REQUESTS, PullConsumer
from sim.vocabulary import HEARTBEAT, Request

# Odd, so that no heartbeat falls on the moment of anything else.
HEARTBEATS = st.sampled_from([0, 37 * MS + 1, 83 * MS + 7, 400 * MS + 3])


class PullQueue(PullConsumer):
    """The consumer of ``PullConsumer`` without priorities, but with what that one leaves out."""

    @initialize(
        max_waiting=st.sampled_from([1, 2, 5]),
        acks_all=st.booleans(),
        max_deliver=st.sampled_from([-1, 3]),
        max_ack_pending=st.sampled_from([1, 3, 1000]),
        wait=DURATIONS,
    )
    def start(
        self, max_waiting: int, acks_all: bool, max_deliver: int, max_ack_pending: int, wait: int
    ) -> None:
        self.world = self.open(JetStreamOptions())
        self.client = self.world.client()
        self.client.stream()
        config: dict[str, Any] = {
            "max_waiting": max_waiting,
            "max_deliver": max_deliver,
            "ack_wait": wait,
        }
        config |= {"max_ack_pending": max_ack_pending}
        config |= {"ack_policy": "all" if acks_all else "explicit"}
        assert "error" not in self.client.consumer(**config)
        self.model = QueueModel("", (wait,), max_deliver, max_ack_pending)
        self.model.max_waiting, self.model.acks_all = max_waiting, acks_all
        self.model.now = self.world.clock.monotonic_ns()

    @rule(request=REQUESTS, heartbeat=HEARTBEATS, data=st.data())
    def pull(self, request: Request, heartbeat: int, data: st.DataObject) -> None:
        request.heartbeat = heartbeat
        super().pull(request, data)

    def picture(self, message: Received) -> object:
        if message.status == HEARTBEAT:
            last = message.header
            return HEARTBEAT, (int(last["Nats-Last-Consumer"]), int(last["Nats-Last-Stream"]))
        return super().picture(message)


TestPullQueue = PullQueue.TestCase
TestPullQueue.settings = (
    settings(max_examples=portion(226, 60), stateful_step_count=50)
    if IN_CI
    else settings(stateful_step_count=60)
)
