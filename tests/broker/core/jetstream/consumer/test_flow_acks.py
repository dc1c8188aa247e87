"""The ack policy flow_control: answers acknowledge, nothing else does, and a restart remembers."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from jetstream_world import Client, Inbox, Received, World

LIMIT = 3


def ready(messages: int = 0, limit: int = LIMIT, **stream: Any) -> tuple[World, Client, Inbox]:
    """A stream with messages, a listener on ``d``, and a consumer to it that acks by flow control."""
    world = World()
    client = world.client()
    client.stream(**stream)
    for number in range(messages):
        client.put(b"s.%d" % number, b"x")
    inbox = client.subscribe(b"d")
    answer = client.consumer(deliver_subject="d", ack_policy="flow_control", max_ack_pending=limit)
    assert "error" not in answer, answer
    return world, client, inbox


def split(inbox: Inbox) -> tuple[list[int], list[Received]]:
    """What came: sequences of messages, and requests for flow control."""
    messages = inbox.take()
    seqs = [message.stream_seq for message in messages if message.reply.startswith(b"$JS.ACK")]
    return seqs, [m for m in messages if m.status == "100 FlowControl Request"]


def answer(client: Client, request: Received, consumer_seq: int, stream_seq: int) -> None:
    position = {"Nats_Last_Consumer": str(consumer_seq), "Nats_Last_Stream": str(stream_seq)}
    client.publish(request.reply, b"", **position)


def test_it_asks_when_as_much_is_pending_as_may_be() -> None:
    _, client, inbox = ready(5)
    seqs, (request,) = split(inbox)
    assert seqs == [1, 2, 3]
    answer(client, request, 2, 2)
    seqs, (request,) = split(inbox)
    assert seqs == [4, 5]
    answer(client, request, 5, 5)
    info = client.info()
    assert info["num_ack_pending"] == 0
    assert (info["ack_floor"]["consumer_seq"], info["ack_floor"]["stream_seq"]) == (5, 5)


def test_the_heartbeat_asks_for_what_is_pending() -> None:
    world, client, inbox = ready(2)
    assert split(inbox) == ([1, 2], [])
    world.advance(1.5)
    _, (request,) = split(inbox)
    answer(client, request, 2, 2)
    assert client.info()["num_ack_pending"] == 0
    world.advance(5)
    assert split(inbox) == ([], [])  # nothing is pending: heartbeats alone


def test_an_answer_without_a_position_acknowledges_nothing_and_is_asked_again_by_a_heartbeat() -> (
    None
):
    world, client, inbox = ready(5)
    _, (request,) = split(inbox)
    client.publish(request.reply)
    assert split(inbox) == ([], [])
    assert client.info()["num_ack_pending"] == LIMIT
    world.advance(1.5)
    _, requests = split(inbox)
    assert len(requests) == 1


def test_an_old_answer_and_a_forged_one_are_nobodys() -> None:
    _, client, inbox = ready(5)
    _, (request,) = split(inbox)
    client.publish(b"$JS.FC.S.C.forged", b"", Nats_Last_Consumer="3", Nats_Last_Stream="3")
    assert client.info()["num_ack_pending"] == LIMIT
    answer(client, request, 1, 1)
    answer(client, request, 2, 2)
    assert client.info()["ack_floor"]["stream_seq"] == 1


def test_usual_acks_find_nobody() -> None:
    _, client, inbox = ready(2)
    message = inbox.take()[0]
    assert client.ack(message)[0].status == "503"
    assert client.info()["num_ack_pending"] == 2


def test_nothing_is_ever_delivered_again_by_time() -> None:
    world, _, inbox = ready(2)
    split(inbox)
    world.advance(3600)
    assert split(inbox)[0] == []


def test_a_work_queue_lets_go_of_what_an_answer_covers() -> None:
    _, client, inbox = ready(4, retention="workqueue")
    _, (request,) = split(inbox)
    answer(client, request, 2, 2)
    state = client.api("STREAM.INFO.S")["state"]
    assert (state["first_seq"], state["messages"]) == (3, 2)


numbers = st.integers(0, 12)
events = st.lists(
    st.one_of(
        st.just("publish"),
        st.just("heartbeat"),
        st.just("restart"),
        st.just("reset"),
        st.tuples(numbers, numbers),
    ),
    max_size=25,
)


@settings(max_examples=80)
@given(events)
def test_what_answers_say_is_what_is_acknowledged(events: list[Any]) -> None:
    """Against a model: a floor and a count, whatever the answers say, over restarts and resets."""
    world, client, inbox = ready()
    stored, floor, base, floor_consumer, delivered, open_request = 0, 0, 0, 0, 0, b""
    for event in [*events, "heartbeat"]:
        if event == "publish":
            stored += 1
            client.put(b"s.x")
        elif event == "heartbeat":
            world.advance(1.01)
        elif event == "restart":
            world.restart()
            client = world.client()
            inbox = client.subscribe(b"d")
            open_request = b""
        elif event == "reset":
            client.api("CONSUMER.RESET.S.C")
            base, delivered, floor_consumer = floor, floor, 0
        elif open_request:
            consumer_seq, stream_seq = event
            client.publish(
                open_request,
                b"",
                Nats_Last_Consumer=str(consumer_seq),
                Nats_Last_Stream=str(stream_seq),
            )
            open_request = b""
            reached = min(stream_seq, delivered)
            if consumer_seq > floor_consumer and reached > floor:
                floor, floor_consumer = reached, reached - base
        seqs, requests = split(inbox)
        expected = range(delivered + 1, min(stored, floor + LIMIT) + 1)
        assert seqs == list(expected)
        delivered += len(seqs)
        if requests:
            assert delivered > floor  # it asks for what is pending, and for nothing else
            open_request = requests[-1].reply
        info = client.info()
        assert info["num_ack_pending"] == delivered - floor
        assert info["ack_floor"]["stream_seq"] == floor
        assert info["ack_floor"]["consumer_seq"] == floor_consumer
    assert delivered == floor or open_request
