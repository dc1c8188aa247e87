"""What is due for thousands at once is done some at a time."""

from __future__ import annotations

import pytest

from headrace.api.consumers import PullRequest
from headrace.broker.core.jetstream.consumer.consumer import Consumer
from headrace.broker.core.jetstream.consumer.pull_queue import PullQueue, PullTerms, WaitingRequest
from jetstream_world import SECOND, World

MS = SECOND // 1000


def test_consumers_that_are_ready_together_are_served_in_several_ticks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    client = world.client()
    client.stream()
    for number in range(20):
        client.consumer(f"c{number}")
    inboxes = [
        client.request(b"$JS.API.CONSUMER.MSG.NEXT.S.c%d" % number, b"1") for number in range(20)
    ]
    real = Consumer.deliver

    def deliver(self: Consumer) -> None:
        real(self)
        world.clock.advance(0.001)

    monkeypatch.setattr(Consumer, "deliver", deliver)
    client.publish(b"s.a", b"x")
    served = [len(inbox.messages) for inbox in inboxes]
    assert served == [1] * 5 + [0] * 15
    ticks = 0
    while sum(served) < 20:
        world.hub.run_timers()
        world.tick()
        ticks += 1
        assert sum(len(inbox.messages) for inbox in inboxes) - sum(served) <= 5
        served = [len(inbox.messages) for inbox in inboxes]
    assert served == [1] * 20
    assert ticks == 3


def test_pulls_that_end_at_one_moment_are_told_in_several_ticks() -> None:
    world = World()
    client = world.client()
    client.stream()
    client.consumer(max_waiting=5_000)
    count = 2_500
    inbox = client.subscribe(b"_E")
    pull = b'{"batch":1,"expires":%d}' % (100 * MS)
    subject = b"$JS.API.CONSUMER.MSG.NEXT.S.C"
    client.send(b"PUB %b _E %d\r\n%b\r\n" % (subject, len(pull), pull) * count)
    world.clock.advance(0.1)
    told = []
    while len(inbox.messages) < count:
        world.hub.run_timers()
        world.tick()
        told.append(len(inbox.messages))
    assert told == [1024, 2048, 2500]
    assert {message.status for message in inbox.messages} == {"408 Request Timeout"}


def test_who_stops_asking_what_is_due_misses_no_heartbeat() -> None:
    queue = PullQueue(512)
    for number in range(3):
        beat = PullTerms(PullRequest(batch=1, idle_heartbeat=1.0))
        queue.add(WaitingRequest(b"%d" % number, beat, 0))
    heard = []
    for _ in range(2):
        for request, expired in queue.due(SECOND):
            assert not expired
            heard.append(request.inbox)
            break
    heard += [request.inbox for request, _ in queue.due(SECOND)]
    assert heard == [b"0", b"1", b"2"]
    assert [request.inbox for request, _ in queue.due(2 * SECOND)] == [b"0", b"1", b"2"]
