"""Push consumers in a bottle: who gets what, what holds back, what wakes, what a restart keeps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.broker.core.jetstream.consumer import push
from headrace.broker.store import MemoryStorage
from headrace.limits import INGEST_PENDING_BYTES_MAX, OUTBOUND_BLOCKED_BYTES
from jetstream_world import Client, Inbox, World, publication

SECOND = 1_000_000_000


def ready(messages: int = 0, payload: bytes = b"x", **config: Any) -> tuple[World, Client, Inbox]:
    """A stream with messages, a listener on ``d``, and a push consumer to it."""
    world = World()
    client = world.client()
    client.stream()
    for number in range(messages):
        client.put(b"s.%d" % number, payload)
    inbox = client.subscribe(b"d")
    answer = client.consumer(deliver_subject="d", **config)
    assert "error" not in answer, answer
    return world, client, inbox


def seqs(inbox: Inbox) -> list[int]:
    return [message.stream_seq for message in inbox.take() if message.reply.startswith(b"$JS.ACK")]


def test_stored_messages_and_new_ones_come_by_themselves() -> None:
    _, client, inbox = ready(3)
    assert seqs(inbox) == [1, 2, 3]
    client.put(b"s.new")
    assert seqs(inbox) == [4]
    assert client.info()["push_bound"]


def test_the_creation_is_answered_before_the_first_message() -> None:
    world = World()
    client = world.client()
    client.stream()
    client.put(b"s.1")
    order: list[str] = []
    inbox, answers = client.subscribe(b"d"), client.subscribe(b"answers")
    for name, box in (("message", inbox), ("answer", answers)):
        box.messages = Recorder(order, name)
    client.publish(
        b"$JS.API.CONSUMER.CREATE.S.C",
        b'{"stream_name":"S","config":{"name":"C","deliver_subject":"d","ack_policy":"explicit"}}',
        b"answers",
    )
    assert order == ["answer", "message"]


class Recorder(list[Any]):
    def __init__(self, order: list[str], name: str) -> None:
        super().__init__()
        self._order, self._name = order, name

    def append(self, item: Any) -> None:
        self._order.append(self._name)
        super().append(item)


def test_more_than_a_turn_comes_in_several() -> None:
    world, client, inbox = ready()
    inbox.close()
    for _ in range(2_500):
        client.publish(b"s.x", b"x")
    inbox = client.subscribe(b"d")
    world.settle()
    assert len(seqs(inbox)) == 1_000  # max_ack_pending
    other = client.subscribe(b"e")
    client.consumer("N", deliver_subject="e", ack_policy="none")
    world.settle()
    assert seqs(other) == list(range(1, 2_501))


def test_acks_make_room_for_more() -> None:
    _, client, inbox = ready(5, max_ack_pending=2)
    first = inbox.take()
    assert [message.stream_seq for message in first] == [1, 2]
    assert len(client.ack(first[0])) == 1
    assert seqs(inbox) == [3]


def test_what_is_not_acknowledged_comes_again_and_no_more_often_than_allowed() -> None:
    world, client, inbox = ready(1, ack_wait=SECOND, max_deliver=2)
    world.advance(10)
    assert [message.tokens[0] for message in inbox.take()] == [1, 2]
    assert client.info()["num_ack_pending"] == 0


def test_nobody_there_keeps_everything_for_later() -> None:
    world, client, inbox = ready(1)
    assert seqs(inbox) == [1]
    inbox.close()
    client.put(b"s.2")
    assert "push_bound" not in client.info()
    again = client.subscribe(b"d")
    world.settle()
    assert seqs(again) == [2]


def test_a_listener_that_wants_two_gets_two_and_nothing_is_lost() -> None:
    world, client, inbox = ready()
    client.send(b"UNSUB %b 2\r\n" % inbox.sid)
    for number in range(5):
        client.publish(b"s.%d" % number)
    world.settle()
    assert seqs(inbox) == [1, 2]
    again = client.subscribe(b"d")
    world.settle()
    assert seqs(again) == [3, 4, 5]


def test_an_ephemeral_goes_when_nobody_listens_for_long() -> None:
    world, client, _inbox = ready()
    config = {"name": "E", "deliver_subject": "e", "ack_policy": "none"}
    client.api("CONSUMER.CREATE.S.E", {"stream_name": "S", "config": config})
    listener = client.subscribe(b"e")
    world.advance(60)
    assert "error" not in client.info("E")
    listener.close()
    world.advance(4)
    listener = client.subscribe(b"e")
    world.advance(60)
    assert "error" not in client.info("E")
    listener.close()
    world.advance(6)
    assert client.info("E")["error"]["err_code"] == 10014
    assert "error" not in client.info("C"), "a durable without a threshold stays"


def test_heartbeats_come_when_it_is_quiet_for_long() -> None:
    world, client, inbox = ready(1, idle_heartbeat=SECOND)
    inbox.take()
    world.advance(0.9)
    client.put(b"s.2")
    inbox.take()
    world.advance(0.9)
    assert not inbox.messages
    world.advance(1.2)
    beats = inbox.take()
    assert [beat.status for beat in beats] == ["100 Idle Heartbeat"] * 2
    assert beats[0].header == {"Nats-Last-Consumer": "2", "Nats-Last-Stream": "2"}


def test_flow_control_stops_at_a_window_says_so_and_goes_on_with_the_answer() -> None:
    world, client, inbox = ready(
        100, b"x" * 100_000, ack_policy="none", flow_control=True, idle_heartbeat=SECOND
    )
    got = inbox.take()
    requests = [message for message in got if message.status == "100 FlowControl Request"]
    assert len(requests) == 1
    assert len(got) - 1 == 21, "two mebibytes, and the message that fills them"
    world.advance(1)
    beat = inbox.take()[0]
    assert beat.header["Nats-Consumer-Stalled"] == requests[0].reply.decode()
    received = 21
    reply = requests[0].reply
    while received < 100:
        client.publish(reply)
        world.settle()
        got = inbox.take()
        assert got, f"stuck at {received}"
        received += sum(message.reply.startswith(b"$JS.ACK") for message in got)
        asked = [message.reply for message in got if "FlowControl" in message.status]
        reply = asked[-1] if asked else reply
    assert received == 100


def test_flow_control_counts_every_byte_of_a_frames_fields_while_numbers_grow_longer() -> None:
    world = World()
    client = world.client()
    client.stream()
    client.subscribe(b"d")
    config: dict[str, Any] = {"ack_policy": "none", "flow_control": True, "idle_heartbeat": SECOND}
    for number in range(1_100):  # sequences reach a fourth digit, and what is pending loses two
        client.session.receive(publication(b"s.x", b"x" * (number % 30)))
    client.consumer(deliver_subject="d", **config)
    world.settle()
    engine = world.hub.engine
    assert engine is not None
    push = engine.registry.streams["S"].consumers["C"].push
    assert push is not None and push.window is not None
    (inbox,) = [box for box in client._inboxes.values() if box.subject == b"d"]
    messages = [m for m in inbox.messages if m.reply.startswith(b"$JS.ACK")]
    assert len(messages) == 1_100
    assert push.window.outstanding == sum(len(m.subject + m.reply + m.payload) for m in messages)


def test_a_listener_that_comes_back_is_not_stopped_by_what_the_last_one_owed() -> None:
    world, client, inbox = ready(
        50, b"x" * 100_000, ack_policy="none", flow_control=True, idle_heartbeat=SECOND
    )
    assert len(seqs(inbox)) == 21
    inbox.close()
    again = client.subscribe(b"d")
    world.settle()
    assert seqs(again)[0] == 22


def test_a_listener_is_not_stopped_by_the_last_message_that_the_one_before_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(push, "FLOW_WINDOW_BYTES_FIRST", 1_000)
    world, client, inbox = ready(flow_control=True, idle_heartbeat=SECOND)
    client.send(b"UNSUB %b 1\r\n" % inbox.sid)
    client.put(b"s.1", b"x" * 2_000)
    assert seqs(inbox) == [1]
    again = client.subscribe(b"d")
    client.put(b"s.2")
    world.settle()
    assert seqs(again) == [2]


def test_an_answer_to_nobody_is_nobodys() -> None:
    _, client, _ = ready(1)
    for subject in (
        b"$JS.FC.S.C.x",
        b"$JS.FC.S.X.x",
        b"$JS.FC.X.C.x",
        b"$JS.FC.S",
        b"$JS.FC.\xff.a.b",
    ):
        answers = client.request(subject).take()
        assert [answer.status for answer in answers] == ["503"], subject


def test_a_rate_is_kept() -> None:
    world, _client, inbox = ready(30, b"x" * 100_000, ack_policy="none", rate_limit_bps=8_000_000)
    at_once = len(seqs(inbox))
    assert 10 <= at_once <= 12, "one mebibyte goes as a burst"
    world.advance(1)
    assert 9 <= len(seqs(inbox)) <= 11
    world.advance(2)
    assert seqs(inbox)[-1] == 30


def test_an_update_changes_the_rate_and_another_one_leaves_it_alone() -> None:
    world, client, inbox = ready(30, b"x" * 100_000, ack_policy="none", rate_limit_bps=8_000)
    assert 10 <= len(seqs(inbox)) <= 12
    settings = {"deliver_subject": "d", "ack_policy": "none"}
    assert "error" not in client.consumer(**settings, rate_limit_bps=8_000, description="slow")
    world.advance(1)
    assert not seqs(inbox)
    assert "error" not in client.consumer(**settings)
    world.settle()
    assert seqs(inbox)[-1] == 30


def test_messages_are_shared_among_the_members_of_a_group() -> None:
    world = World()
    client, other = world.client(), world.client()
    client.stream()
    boxes = [member.subscribe(b"d g") for member in (client, other)]
    client.consumer(deliver_subject="d", deliver_group="g")
    for _ in range(100):
        client.publish(b"s.x")
    shares = [seqs(inbox) for inbox in boxes]
    assert sorted(shares[0] + shares[1]) == list(range(1, 101))
    assert all(20 < len(share) < 80 for share in shares)


def test_a_new_deliver_subject_gets_what_is_pending_once_more() -> None:
    world, client, inbox = ready(2)
    assert seqs(inbox) == [1, 2]
    document = {"durable_name": "C", "deliver_subject": "e", "ack_policy": "explicit"}
    request = {"stream_name": "S", "config": document}
    refused = client.api("CONSUMER.CREATE.S.C", request)
    assert refused["error"]["err_code"] == 10013
    inbox.close()
    assert "error" not in client.api("CONSUMER.CREATE.S.C", request)
    elsewhere = client.subscribe(b"e")
    world.settle()
    assert [message.tokens[:2] for message in elsewhere.take()] == [(2, 1), (2, 2)]


def test_a_pause_holds_and_a_resume_delivers() -> None:
    _world, client, inbox = ready(0)
    until = "2199-01-01T00:00:00Z"
    client.api("CONSUMER.PAUSE.S.C", {"pause_until": until})
    client.put(b"s.1")
    assert not inbox.messages
    client.api("CONSUMER.PAUSE.S.C")
    assert seqs(inbox) == [1]


class SlowWorld(World):
    """One client's socket takes nothing for a while."""

    stuck = 0
    unsent = b""

    def tick(self) -> None:
        for session in self.hub.end_of_tick():
            data = b"".join(session.take_output())
            if session.client_id == self.stuck:
                self.unsent += data
                self.hub.wrote(session, len(self.unsent))
            else:
                self.hub.wrote(session, 0)
                self.clients[session.client_id].received([data])

    def let_go(self, client: Client) -> None:
        """The socket takes everything again."""
        self.stuck = 0
        data, self.unsent = self.unsent, b""
        client.received([data])
        self.hub.wrote(client.session, 0)
        self.tick()
        self.settle()


def test_a_slow_receiver_holds_its_messages_back_and_loses_none() -> None:
    world = SlowWorld()
    client, slow = world.client(), world.client()
    client.stream()
    for _ in range(200):
        client.put(b"s.x", b"x" * 100_000)
    inbox = slow.subscribe(b"d")
    world.stuck = slow.session.client_id
    client.consumer(deliver_subject="d", ack_policy="none")
    world.settle()
    assert OUTBOUND_BLOCKED_BYTES <= len(world.unsent) <= OUTBOUND_BLOCKED_BYTES + 2**21
    assert client.info()["delivered"]["stream_seq"] < 100
    while world.unsent:
        data, world.unsent = world.unsent, b""
        slow.received([data])
        world.hub.wrote(slow.session, 0)
        world.tick()
        world.settle()
    assert seqs(inbox) == list(range(1, 201))


def test_a_push_consumer_on_an_interest_stream_releases_what_it_delivered() -> None:
    world = World()
    client = world.client()
    client.stream(retention="interest")
    inbox = client.subscribe(b"d")
    client.consumer(deliver_subject="d", ack_policy="none")
    client.put(b"s.1")
    client.put(b"s.2")
    assert seqs(inbox) == [1, 2]
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 0


def test_a_restart_keeps_durable_consumers_and_their_position() -> None:
    world = World()
    client = world.client()
    client.stream()
    inbox = client.subscribe(b"d")
    client.consumer(deliver_subject="d", ack_wait=SECOND)
    client.put(b"s.1")
    client.put(b"s.2")
    client.ack(inbox.take()[0])
    world.restart()
    client = world.client()
    client.put(b"s.3")
    inbox = client.subscribe(b"d")
    world.advance(2)
    assert {message.stream_seq for message in inbox.take()} == {2, 3}


def test_pushing_waits_for_the_disk_as_publishers_do() -> None:
    class Behind(MemoryStorage):
        """A disk that may be behind."""

        behind = 0

        @property  # type: ignore[misc]
        def pending_bytes(self) -> int:
            return self.behind

    storage = Behind()
    world = World(storage)
    client = world.client()
    client.stream()
    client.stream("T", subjects=["d"])
    client.put(b"s.1")
    storage.behind = INGEST_PENDING_BYTES_MAX + 1
    client.consumer(deliver_subject="d", ack_policy="none")
    world.advance(1)
    assert client.api("STREAM.INFO.T")["state"]["messages"] == 0
    storage.behind = 0
    world.advance(0.1)
    assert client.api("STREAM.INFO.T")["state"]["messages"] == 1


def test_headers_only_says_how_large_a_message_is() -> None:
    _, client, inbox = ready(1, b"12345", headers_only=True)
    client.put(b"s.2", b"123", K="v")
    first, second = inbox.take()
    assert (first.payload, first.header) == (b"", {"Nats-Msg-Size": "5"})
    assert second.header == {"K": "v", "Nats-Msg-Size": "3"}


def test_original_replay_keeps_the_pace() -> None:
    world = World()
    client = world.client()
    client.stream()
    for _ in range(3):
        client.put(b"s.x")
        world.advance(1)
    inbox = client.subscribe(b"d")
    client.consumer(deliver_subject="d", replay_policy="original")
    assert len(seqs(inbox)) == 1
    world.advance(1.05)
    assert len(seqs(inbox)) == 1
    world.advance(1.05)
    assert len(seqs(inbox)) == 1


@given(st.data())
@settings(max_examples=40)
def test_whatever_happens_every_message_comes_once_and_in_order(data: st.DataObject) -> None:
    """Listeners come and go, sockets clog, acks lag: without redelivery nothing is lost or doubled."""
    flow = data.draw(st.booleans(), label="flow control")
    extra: dict[str, Any] = {"flow_control": True, "idle_heartbeat": SECOND} if flow else {}
    if data.draw(st.booleans(), label="rate"):
        extra["rate_limit_bps"] = 80_000_000
    world = SlowWorld()
    client, listener = world.client(), world.client()
    client.stream()
    client.consumer(deliver_subject="d", ack_policy="none", filter_subjects=["s.a.*"], **extra)
    got: list[int] = []
    inbox: Inbox | None = None
    expected: list[int] = []
    sequence = 0
    steps = data.draw(st.lists(st.sampled_from("ppppclsaw"), max_size=40), label="steps")
    for step in (*steps, "free", "c", "w"):
        if step == "p":
            for _ in range(data.draw(st.integers(1, 30))):
                sequence += 1
                wanted = data.draw(st.booleans())
                expected += [sequence] if wanted else []
                client.publish(b"s.a.x" if wanted else b"s.b.x", b"x" * 60_000)
        elif step == "c" and inbox is None:
            inbox = listener.subscribe(b"d")
        elif step == "l" and inbox is not None and not world.stuck:
            got += answer(world, client, inbox)
            inbox.close()
            got += answer(world, client, inbox)
            inbox = None
        elif step == "s" and inbox is not None:
            world.stuck = listener.session.client_id
        elif step == "free":
            world.let_go(listener)
        elif step == "w":
            world.advance(0.5)
        if inbox is not None and not world.stuck:
            got += answer(world, client, inbox)
        if step == "a":
            world.let_go(listener)
    assert inbox is not None
    for _ in range(40):
        world.advance(1)
        got += answer(world, client, inbox)
    assert got == expected
    assert client.info()["num_pending"] == 0


def answer(world: World, client: Client, inbox: Inbox) -> list[int]:
    """What came; requests for flow control are answered."""
    found = []
    for message in inbox.take():
        if message.reply.startswith(b"$JS.FC."):
            client.publish(message.reply)
        elif message.reply:
            found.append(message.stream_seq)
    world.settle()
    return found
