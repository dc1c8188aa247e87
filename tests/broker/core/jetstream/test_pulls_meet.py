"""Pull requests that meet something else: each other, clients that go, updates, and the clock."""

from __future__ import annotations

from typing import Any

from jetstream_world import Client, World, publication

NEXT = b"$JS.API.CONSUMER.MSG.NEXT.S.C"
SECOND = 1_000_000_000


def world_with_consumer(**config: Any) -> tuple[World, Client]:
    world = World()
    client = world.client()
    client.stream()
    client.consumer(**config)
    return world, client


def test_a_long_pull_goes_on_although_a_refused_one_came_with_it() -> None:
    world, client = world_with_consumer(max_ack_pending=-1)
    client.send(publication(b"s.a") * 3000)
    long, short = client.subscribe(), client.subscribe()
    client.send(
        publication(NEXT, b"5000", long.subject)
        + publication(NEXT, b'{"batch":1,"no_wait":true}', short.subject)
    )
    world.settle()
    assert [message.status for message in short.take()] == ["408 Requests Pending"]
    assert len(long.messages) == 3000


def test_requests_of_clients_that_are_gone_do_not_keep_a_consumer() -> None:
    world, client = world_with_consumer(durable_name="", name="C")
    other = world.client()
    other.pull({"batch": 5})
    assert client.info()["num_waiting"] == 1
    other.session.disconnected()
    world.advance(30)
    assert not client.api("CONSUMER.NAMES.S")["consumers"]


def test_requests_of_clients_that_are_gone_are_not_counted_as_waiting() -> None:
    world, client = world_with_consumer()
    other = world.client()
    other.pull({"batch": 5})
    client.pull({"batch": 5})
    assert client.info()["num_waiting"] == 2
    other.session.disconnected()
    world.tick()
    assert client.info()["num_waiting"] == 1


def test_requests_of_clients_that_are_gone_are_not_in_the_way_of_those_who_do_not_wait() -> None:
    world, client = world_with_consumer(max_ack_pending=1)
    other = world.client()
    client.publish(b"s.a")
    client.publish(b"s.b")
    [message] = other.pull({"batch": 50}).take()
    other.session.disconnected()
    world.tick()
    inbox = client.pull({"batch": 1, "no_wait": True})
    assert not inbox.take()
    client.ack(message)
    assert [message.stream_seq for message in inbox.take()] == [2]


def test_a_request_that_has_expired_on_arrival_gets_no_message() -> None:
    _, client = world_with_consumer()
    client.publish(b"s.a")
    late = client.pull({"batch": 3, "expires": -5}).take()
    assert [message.status for message in late] == ["408 Request Timeout"]
    assert late[0].header["Nats-Pending-Messages"] == "3"
    assert client.info()["num_waiting"] == 0
    assert [message.stream_seq for message in client.pull(b"1").take()] == [1]


def test_messages_refused_now_and_later_in_turn_do_not_gather() -> None:
    world, client = world_with_consumer()
    client.publish(b"s.a")
    client.publish(b"s.b")
    first, second = client.pull(b"2").take()
    both = publication(first.reply, b"-NAK") + publication(first.reply, b'-NAK {"delay":1000000}')
    client.send(publication(second.reply, b"-NAK"))
    for _ in range(50):
        client.send(both * 100)
    assert world.hub.engine is not None
    state = world.hub.engine.registry.streams["S"].consumers["C"].state
    assert len(state.redeliver) < 2100
    client.send(publication(first.reply, b"-NAK"))
    assert [message.stream_seq for message in client.pull(b"5").take()] == [2, 1]


def test_to_resume_with_a_time_that_has_passed_is_told_once() -> None:
    world, client = world_with_consumer()
    told = client.subscribe(b"$JS.EVENT.ADVISORY.CONSUMER.PAUSE.>")
    past = "2000-01-01T00:00:00Z"
    assert client.api("CONSUMER.PAUSE.S.C", {"pause_until": past})["pause_until"] == past
    world.advance(1)
    [advisory] = told.take()
    assert b'"paused":false,"pause_until":"2000-01-01T00:00:00Z"' in advisory.payload


def test_a_consumer_made_with_a_pause_that_has_passed_says_nothing_of_it() -> None:
    world = World()
    client = world.client()
    told = client.subscribe(b"$JS.EVENT.ADVISORY.CONSUMER.PAUSE.>")
    client.stream()
    made = client.consumer(pause_until="2000-01-01T00:00:00Z")
    assert made["config"]["pause_until"] == "2000-01-01T00:00:00Z"
    world.advance(1)
    assert not told.take()


def test_the_last_of_each_subject_are_followed_by_what_came_later_whatever_was_purged() -> None:
    world = World()
    client = world.client()
    client.stream()
    for subject in (b"s.a", b"s.b", b"s.c", b"s.c", b"s.b"):
        client.publish(subject)
    client.consumer(deliver_policy="last_per_subject", filter_subject="s.>")
    client.api("STREAM.PURGE.S", {"filter": "s.c"})
    client.api("STREAM.MSG.DELETE.S", {"seq": 5})
    assert client.info()["num_pending"] == 1
    inbox = client.pull(b"10")
    client.publish(b"s.new")
    assert [message.stream_seq for message in inbox.take()] == [1, 6]
    world.restart()
    client = world.client()
    client.publish(b"s.newer")
    assert [message.stream_seq for message in client.pull(b"10").take()] == [7]


def test_what_was_not_chosen_stays_unwanted_over_a_restart() -> None:
    world = World()
    client = world.client()
    client.stream()
    for subject in (b"s.a", b"s.b", b"s.c", b"s.c"):
        client.publish(subject)
    made = client.consumer(deliver_policy="last_per_subject", filter_subject="s.>")
    assert [message.stream_seq for message in client.pull(b"1").take()] == [1]
    client.api("STREAM.PURGE.S", {"filter": "s.b"})
    client.api("STREAM.MSG.DELETE.S", {"seq": 4})
    client.publish(b"s.new")
    for _ in range(2):
        assert client.info()["num_pending"] == 1
        config = {**made["config"], "description": f"{world.starts}"}  # the state is written anew
        client.consumer(**config)
        world.restart()
        client = world.client()
    assert [message.stream_seq for message in client.pull(b"5").take()] == [5]


def test_a_reset_forward_lets_go_of_what_it_passes_over() -> None:
    world = World()
    client = world.client()
    client.stream(retention="interest")
    client.consumer("A")
    client.consumer("B", filter_subject="s.b")
    for subject in (b"s.a", b"s.b", b"s.a", b"s.a"):
        client.publish(subject)
    client.api("CONSUMER.RESET.S.A", {"seq": 4})
    world.advance(1)
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 2
    client.api("CONSUMER.RESET.S.B", {"seq": 3})
    world.advance(1)
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 1
