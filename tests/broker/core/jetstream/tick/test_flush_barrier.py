"""Nothing is acknowledged before it is on disk, and everything once it is."""

from __future__ import annotations

import json
from typing import Any

from headrace.broker.core.jetstream.engine.registry import STATE
from headrace.broker.core.jetstream.tick.pub_acks import PubAcks
from headrace.errors import StoreFailedError, StoreFullError
from jetstream_world import Client, HeldStorage, Inbox, World, publication


def world() -> tuple[World, HeldStorage]:
    storage = HeldStorage()
    made = World(storage)
    client = made.client()
    client.stream()
    client.consumer()
    return made, storage


def test_a_publish_is_acknowledged_when_its_flush_completes_and_not_before() -> None:
    made, storage = world()
    client = made.client()
    storage.hold = True
    inbox = client.request(b"s.a", b"x")
    assert not inbox.messages
    storage.release()
    made.tick()
    assert [json.loads(m.payload) for m in inbox.messages] == [{"stream": "S", "seq": 1}]


def test_what_comes_during_a_flush_waits_for_the_next_one() -> None:
    made, storage = world()
    client = made.client()
    storage.hold = True
    first = client.request(b"s.a")
    second = client.request(b"s.b")
    third = client.request(b"s.c")
    assert len(storage.held) == 1, "one flush is in flight at a time"
    storage.release()
    made.tick()
    assert (len(first.messages), len(second.messages)) == (1, 0)
    assert len(storage.held) == 1
    storage.release()
    made.tick()
    assert (len(second.messages), len(third.messages)) == (1, 1)
    assert not storage.held


def test_a_consumer_sees_a_message_only_once_it_is_durable() -> None:
    made, storage = world()
    client = made.client()
    inbox = client.pull({"batch": 1, "expires": 10**9})
    storage.hold = True
    client.publish(b"s.a", b"x")
    assert not inbox.messages
    storage.release()
    made.tick()
    assert [m.payload for m in inbox.messages] == [b"x"]


def test_a_no_wait_request_waits_for_messages_on_their_way_to_the_disk() -> None:
    made, storage = world()
    client = made.client()
    storage.hold = True
    client.publish(b"s.a", b"x")
    inbox = client.pull({"batch": 5, "no_wait": True})
    assert not inbox.messages
    storage.release()
    made.tick()
    assert [m.status or m.payload for m in inbox.messages] == [b"x", "404 No Messages"]


def test_a_call_that_changes_something_is_answered_when_that_is_durable() -> None:
    made, storage = world()
    client = made.client()
    storage.hold = True
    inbox = client.request(b"$JS.API.CONSUMER.DELETE.S.C")
    assert not inbox.messages
    storage.release()
    made.tick()
    assert json.loads(inbox.messages[0].payload)["success"]


def test_a_question_is_answered_at_once() -> None:
    made, storage = world()
    storage.hold = True
    assert made.client().api("STREAM.INFO.S")["state"]["messages"] == 0


def test_an_ack_with_a_reply_is_answered_when_it_is_durable() -> None:
    made, storage = world()
    client = made.client()
    client.put(b"s.a")
    (message,) = client.pull(b"1").take()
    storage.hold = True
    inbox = client.request(message.reply, b"+ACK")
    assert not inbox.messages
    storage.release()
    made.tick()
    assert [m.payload for m in inbox.messages] == [b""]


def test_a_plain_ack_forces_no_flush_but_is_committed_shortly() -> None:
    made, storage = world()
    client = made.client()
    client.put(b"s.a")
    (message,) = client.pull(b"1").take()
    made.advance(1)
    storage.hold = True
    client.publish(message.reply, b"+ACK")
    assert not storage.held
    made.advance(0.1)
    assert len(storage.held) == 1


def test_a_failed_flush_refuses_the_publishes_it_carried() -> None:
    made, storage = world()
    client = made.client()
    storage.hold = True
    storage.fail = StoreFailedError("the disk is gone")
    inbox = client.request(b"s.a")
    storage.release()
    made.tick()
    answer = json.loads(inbox.messages[0].payload)
    assert answer["error"] == {
        "code": 503,
        "err_code": 10077,
        "description": "the disk is gone",
    }
    assert answer["seq"] == 0


def test_a_full_disk_is_insufficient_resources() -> None:
    made, storage = world()
    client = made.client()
    storage.hold = True
    storage.fail = StoreFullError("no room")
    inbox = client.request(b"$JS.API.STREAM.CREATE.T", b'{"name":"T"}')
    storage.release()
    made.tick()
    assert json.loads(inbox.messages[0].payload)["error"]["err_code"] == 10023


def test_an_ack_that_did_not_become_durable_is_not_answered() -> None:
    made, storage = world()
    client = made.client()
    client.put(b"s.a")
    (message,) = client.pull(b"1").take()
    storage.hold = True
    storage.fail = StoreFailedError("the disk is gone")
    inbox = client.request(message.reply, b"+ACK")
    storage.release()
    made.tick()
    assert not inbox.messages


def test_a_duplicate_of_a_message_not_yet_durable_waits_with_it() -> None:
    made, storage = world()
    client = made.client()
    storage.hold = True
    first = client.request(b"s.a", Nats_Msg_Id="one")
    second = client.request(b"s.a", Nats_Msg_Id="one")
    assert not second.messages
    storage.release()
    made.tick()
    storage.release()
    made.tick()
    assert json.loads(first.messages[0].payload) == {"stream": "S", "seq": 1}
    assert json.loads(second.messages[0].payload) == {"stream": "S", "seq": 1, "duplicate": True}


def test_a_burst_is_acknowledged_in_order_after_one_flush() -> None:
    made, storage = world()
    client = made.client()
    inbox = client.subscribe()
    storage.hold = True
    client.send(b"".join(publication(b"s.a", b"%d" % n, inbox.subject) for n in range(100)))
    assert len(storage.held) == 1
    storage.release()
    made.tick()
    assert [json.loads(m.payload)["seq"] for m in inbox.messages] == list(range(1, 101))
    assert not storage.held


def test_a_message_read_before_it_is_durable_is_shown_when_it_is() -> None:
    made, storage = world()
    client = made.client()
    storage.hold = True
    client.publish(b"s.a", b"x")
    inbox = client.request(b"$JS.API.STREAM.MSG.GET.S", b'{"seq":1}')
    assert not inbox.messages
    storage.release()
    made.tick()
    storage.release()
    made.tick()
    assert json.loads(inbox.messages[0].payload)["message"]["seq"] == 1


def journaled(made: World) -> list[bytes]:
    """The changes of the consumer's state that the journal has."""
    return list(made.storage.meta.load()[STATE + "S/C"][1])


def following() -> tuple[World, Client, Inbox]:
    """A consumer with a request that waits, at a moment when the journal has all of its state."""
    made = World(HeldStorage())
    client = made.client()
    client.stream()
    client.consumer(ack_policy="explicit")
    inbox = client.pull({"batch": 1000, "expires": 10**10})
    made.advance(1.0)
    return made, client, inbox


def test_a_publish_does_not_wait_for_what_consumers_were_given_which_is_journaled_shortly() -> None:
    made, client, inbox = following()
    before = journaled(made)
    for number in range(3):
        assert client.request(b"s.a", b"x").messages, "acknowledged"
        assert len(inbox.messages) == number + 1
    assert journaled(made) == before
    made.advance(0.1)
    assert len(journaled(made)) == len(before) + 1


def test_publishes_without_end_do_not_keep_it_from_the_journal() -> None:
    made, client, _ = following()
    before = len(journaled(made))
    for _ in range(100):
        client.publish(b"s.a", b"x")
        made.advance(0.01)
    assert 8 <= len(journaled(made)) - before <= 11


def test_an_answer_to_an_ack_takes_everything_before_it_along() -> None:
    made, client, inbox = following()
    for _ in range(2):
        client.publish(b"s.a", b"x")
    first, second = inbox.take()
    before = len(journaled(made))
    client.publish(first.reply, b"+ACK")
    assert len(journaled(made)) == before
    assert client.ack(second)
    assert len(journaled(made)) == before + 1
    again = World(made.storage)
    assert again.streams["S"].consumers["C"].state.floor_stream == 2


def test_a_stop_takes_it_along() -> None:
    made, client, inbox = following()
    client.publish(b"s.a", b"x")
    [message] = inbox.take()
    client.publish(message.reply, b"+ACK")
    made.hub.shutdown()
    again = World(made.storage)
    assert again.streams["S"].consumers["C"].state.floor_stream == 1


def test_what_an_acknowledgement_says_more_is_of_its_own_flush() -> None:
    acks = PubAcks("S")
    acks.waiting.append((1, b"first"))
    release = acks.begin_flush()
    acks.add_duplicate(1, b"second")
    after = acks.begin_flush()
    bus: Any = None
    assert release(bus, None) == [(b"first", b'{"stream":"S","seq":1}')]
    assert after(bus, None) == [(b"second", b'{"stream":"S","seq":1,"duplicate":true}')]
