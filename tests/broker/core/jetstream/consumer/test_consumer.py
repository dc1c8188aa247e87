from __future__ import annotations

import pytest

from jetstream_world import SECOND, Client, World

MS = SECOND // 1000


@pytest.fixture
def client() -> Client:
    client = World().client()
    client.stream()
    return client


def fill(client: Client, count: int, subject: bytes = b"s.a", payload: bytes = b"x") -> None:
    for _ in range(count):
        client.publish(subject, payload)


def test_a_pull_gets_messages_with_what_it_needs_to_acknowledge_them(client: Client) -> None:
    client.consumer()
    fill(client, 3)
    messages = client.pull(b"2").take()
    assert [m.tokens for m in messages] == [(1, 1, 1, 2), (1, 2, 2, 1)]
    assert [m.subject for m in messages] == [b"s.a", b"s.a"]


def test_waiting_requests_take_turns_message_by_message(client: Client) -> None:
    client.consumer()
    inboxes = [client.pull({"batch": 10, "expires": SECOND}) for _ in range(10)]
    fill(client, 100)
    for place, inbox in enumerate(inboxes, 1):
        assert [m.stream_seq for m in inbox.messages] == list(range(place, 101, 10))


def test_a_request_nobody_listens_to_is_dropped_and_costs_nothing(client: Client) -> None:
    client.consumer()
    gone = client.pull({"batch": 1, "expires": SECOND})
    here = client.pull({"batch": 1, "expires": SECOND})
    gone.close()
    fill(client, 1)
    (message,) = here.take()
    assert message.tokens[:3] == (1, 1, 1)
    assert not gone.messages


def test_a_request_expires_with_what_it_did_not_get(client: Client) -> None:
    client.consumer()
    fill(client, 2)
    inbox = client.pull({"batch": 5, "expires": 100 * MS, "max_bytes": 5000})
    messages = inbox.take()
    client.world.advance(0.1)
    (end,) = inbox.take()
    assert end.status == "408 Request Timeout"
    sizes = sum(len(m.subject) + len(m.reply) + len(m.payload) for m in messages)
    assert end.header == {
        "Nats-Pending-Messages": "3",
        "Nats-Pending-Bytes": str(5000 - sizes),
    }
    assert client.info()["num_waiting"] == 0


def test_a_message_too_large_goes_to_the_next_request(client: Client) -> None:
    client.consumer()
    fill(client, 1, payload=b"x" * 1000)
    small = client.pull({"batch": 1, "max_bytes": 100, "expires": SECOND})
    assert [m.status for m in small.take()] == ["409 Message Size Exceeds MaxBytes"]
    large = client.pull(b"1")
    assert large.take()[0].tokens[:3] == (1, 1, 1)


def test_bytes_used_up_exactly_end_a_request_silently(client: Client) -> None:
    client.consumer()
    fill(client, 2)
    (probe,) = client.pull(b"1").take()
    size = len(probe.subject) + len(probe.reply) + len(probe.payload)
    inbox = client.pull({"batch": 5, "max_bytes": size, "expires": SECOND})
    assert len(inbox.take()) == 1
    client.world.advance(2)
    assert not inbox.take()
    fill(client, 3)
    assert len(client.pull({"batch": 5, "max_bytes": 2 * size, "expires": SECOND}).take()) == 2


def test_a_batch_complete_with_bytes_left_is_said(client: Client) -> None:
    client.consumer()
    fill(client, 1)
    inbox = client.pull({"batch": 1, "max_bytes": 5000, "expires": SECOND})
    assert inbox.take()[1].status == "409 Batch Completed"


def test_heartbeats_come_until_the_request_ends(client: Client) -> None:
    client.consumer()
    inbox = client.pull({"batch": 1, "expires": 1000 * MS, "idle_heartbeat": 300 * MS})
    client.world.advance(1)
    assert [m.status for m in inbox.take()] == [
        *["100 Idle Heartbeat"] * 3,
        "408 Request Timeout",
    ]


def test_a_full_queue_is_said_unless_heartbeats_tell(client: Client) -> None:
    client.consumer(max_waiting=1)
    client.pull({"expires": SECOND})
    assert [m.status for m in client.pull({"expires": SECOND}).take()] == [
        "409 Exceeded MaxWaiting"
    ]
    silent = client.pull({"expires": SECOND, "idle_heartbeat": 100 * MS})
    client.world.advance(0.5)
    assert not silent.take()


def test_a_full_queue_makes_room_for_the_living(client: Client) -> None:
    client.consumer(max_waiting=1)
    client.pull({"expires": 60 * SECOND}).close()
    assert not client.pull({"expires": SECOND}).take()


def test_a_one_shot_with_an_expiry_waits_for_its_first_message_only(client: Client) -> None:
    client.consumer()
    inbox = client.pull({"batch": 5, "no_wait": True, "expires": SECOND})
    assert not inbox.take()
    fill(client, 1)
    assert [m.status for m in inbox.take()] == ["", "404 No Messages"]


def test_no_wait_is_refused_while_others_want_more_than_there_is(client: Client) -> None:
    client.consumer(max_ack_pending=1)
    fill(client, 3)
    client.pull({"batch": 10, "expires": SECOND})
    assert [m.status for m in client.pull({"batch": 1, "no_wait": True}).take()] == [
        "408 Requests Pending"
    ]


def test_deliveries_stall_at_the_limit_of_pending_acks_and_go_on_with_an_ack(
    client: Client,
) -> None:
    client.consumer(max_ack_pending=2)
    fill(client, 5)
    inbox = client.pull({"batch": 5, "expires": SECOND})
    first, _second = inbox.take()
    client.publish(first.reply, b"+ACK")
    assert [m.stream_seq for m in inbox.take()] == [3]


def test_redeliveries_pass_the_limit_and_come_first(client: Client) -> None:
    client.consumer(max_ack_pending=2)
    fill(client, 5)
    first, _ = client.pull(b"2").take()
    client.ack(first, b"-NAK")
    assert [m.tokens[:3] for m in client.pull({"batch": 5, "expires": SECOND}).take()] == [
        (2, 1, 3)
    ]


def test_late_messages_are_delivered_again(client: Client) -> None:
    client.consumer(ack_wait=SECOND)
    fill(client, 2)
    client.pull(b"2")
    client.world.advance(0.5)
    inbox = client.pull({"batch": 5, "expires": 5 * SECOND})
    assert not inbox.take()
    client.world.advance(0.5)
    assert [m.tokens[:3] for m in inbox.take()] == [(2, 1, 3), (2, 2, 4)]


def test_an_ack_asks_for_the_next(client: Client) -> None:
    client.consumer()
    fill(client, 3)
    (message,) = client.pull(b"1").take()
    inbox = client.request(message.reply, b"+NXT 2")
    assert [m.stream_seq for m in inbox.take()] == [2, 3]
    assert client.info()["num_ack_pending"] == 2


def test_an_ack_of_what_was_never_delivered_is_not_answered(client: Client) -> None:
    client.consumer()
    fill(client, 3)
    (message,) = client.pull(b"1").take()
    beyond = message.reply.replace(b".1.1.1.", b".1.3.3.")
    assert not client.request(beyond).take()


def test_missing_consumers_have_no_responders(client: Client) -> None:
    assert client.pull(b"1", name="X").take()[0].status == "503"
    assert client.request(b"$JS.ACK.S.X.1.1.1.1.0").take()[0].status == "503"


def test_a_consumer_without_acks_takes_none(client: Client) -> None:
    client.consumer(ack_policy="none")
    fill(client, 2)
    (message,) = client.pull(b"1").take()
    assert client.ack(message)[0].status == "503"
    assert client.info()["ack_floor"]["stream_seq"] == 1


def test_filters_choose_and_pending_counts_only_what_matches(client: Client) -> None:
    client.consumer(filter_subjects=["s.a", "s.c.*"])
    for subject in (b"s.a", b"s.b", b"s.c.x", b"s.b", b"s.a"):
        client.publish(subject)
    assert client.info()["num_pending"] == 3
    messages = client.pull(b"2").take()
    assert [m.tokens[1::2] for m in messages] == [(1, 2), (3, 1)]
    client.publish(b"s.b")
    client.publish(b"s.a")
    assert client.info()["num_pending"] == 2


def test_pending_follows_removals(client: Client) -> None:
    client.consumer()
    fill(client, 5)
    assert client.info()["num_pending"] == 5
    client.api("STREAM.MSG.DELETE.S", {"seq": 3})
    assert client.info()["num_pending"] == 4
    client.api("STREAM.PURGE.S", {"seq": 3})
    assert client.info()["num_pending"] == 2


def test_a_deleted_message_is_not_pending_any_more(client: Client) -> None:
    client.consumer(max_ack_pending=1)
    fill(client, 2)
    inbox = client.pull({"batch": 2, "expires": SECOND})
    client.api("STREAM.MSG.DELETE.S", {"seq": 1})
    assert [m.stream_seq for m in inbox.take()] == [1, 2]
    assert client.info()["num_ack_pending"] == 1


def test_last_per_subject_delivers_each_last_message_and_then_what_comes(client: Client) -> None:
    for subject in (b"s.a", b"s.b", b"s.a", b"s.c"):
        client.publish(subject)
    client.consumer(deliver_policy="last_per_subject", filter_subject="s.>")
    assert client.info()["num_pending"] == 3
    (message,) = client.pull(b"1").take()
    assert message.tokens[1::2] == (2, 2)
    client.publish(b"s.a")
    client.world.restart()
    again = client.world.client()
    messages = again.pull({"batch": 5, "no_wait": True}).take()
    assert [m.stream_seq for m in messages if not m.status] == [3, 4, 5]


def test_last_per_subject_does_not_count_what_was_purged(client: Client) -> None:
    for subject in (b"s.a", b"s.b", b"s.c", b"s.d"):
        client.publish(subject)
    client.consumer(deliver_policy="last_per_subject", filter_subject="s.>")
    client.pull(b"1")
    client.api("STREAM.PURGE.S", {"seq": 4})
    assert client.info()["num_pending"] == 1
    client.api("STREAM.PURGE.S")
    assert client.info()["num_pending"] == 0
    client.publish(b"s.e")
    assert client.info()["num_pending"] == 1
    messages = client.pull({"batch": 5, "no_wait": True}).take()
    assert [m.stream_seq for m in messages if not m.status] == [5]


def test_headers_only_says_how_large_the_payload_was(client: Client) -> None:
    client.consumer(headers_only=True)
    client.publish(b"s.a", b"hello", K="v")
    (message,) = client.pull(b"1").take()
    assert message.header == {"K": "v", "Nats-Msg-Size": "5"}
    assert message.payload == b""


def test_a_replay_keeps_the_distances_in_time_and_then_catches_up(client: Client) -> None:
    for _ in range(3):
        client.publish(b"s.a")
        client.world.advance(2)
    client.consumer(replay_policy="original")
    inbox = client.pull({"batch": 10, "expires": 60 * SECOND})
    assert [m.stream_seq for m in inbox.take()] == [1]
    client.world.advance(1.9)
    assert not inbox.take()
    client.world.advance(0.1)
    assert [m.stream_seq for m in inbox.take()] == [2]
    client.world.advance(2)
    fill(client, 2)
    assert [m.stream_seq for m in inbox.take()] == [3, 4, 5]


def test_a_paused_consumer_keeps_requests_and_goes_on_by_itself(client: Client) -> None:
    client.consumer()
    fill(client, 1)
    now = client.api("STREAM.INFO.S")["ts"]
    later = now.replace("22:13:20", "22:13:30")
    assert client.api("CONSUMER.PAUSE.S.C", {"pause_until": later})["paused"]
    inbox = client.pull({"batch": 1, "expires": 60 * SECOND})
    assert not inbox.take()
    assert client.info()["paused"]
    client.world.advance(10)
    assert len(inbox.take()) == 1
    assert "paused" not in client.info()


def test_a_reset_goes_back_and_counts_anew(client: Client) -> None:
    client.consumer()
    fill(client, 5)
    messages = client.pull(b"5").take()
    assert client.api("CONSUMER.RESET.S.C", {"seq": 2})["reset_seq"] == 2
    assert not client.ack(messages[4]), "behind the reset"
    assert client.ack(messages[0])
    assert [m.tokens[:3] for m in client.pull(b"2").take()] == [(1, 2, 1), (1, 3, 2)]


def test_an_ephemeral_consumer_goes_when_nobody_uses_it(client: Client) -> None:
    name = client.api(
        "CONSUMER.CREATE.S", {"stream_name": "S", "config": {"ack_policy": "explicit"}}
    )["name"]
    client.world.advance(4)
    client.pull({"expires": 3 * SECOND}, name=name)
    client.world.advance(4.9)
    assert client.api("CONSUMER.NAMES.S")["consumers"] == [name]
    client.world.advance(0.3)
    assert client.api("CONSUMER.NAMES.S")["consumers"] == []


def test_an_inactive_consumer_stays_while_acks_may_come(client: Client) -> None:
    client.consumer(durable_name="", inactive_threshold=SECOND, ack_wait=10 * SECOND)
    fill(client, 1)
    client.pull(b"1")
    client.world.advance(9)
    assert client.api("CONSUMER.NAMES.S")["total"] == 1
    client.world.advance(5)
    assert client.api("CONSUMER.NAMES.S")["total"] == 0


def test_a_consumer_comes_back_as_it_was(client: Client) -> None:
    client.consumer(ack_wait=10 * SECOND)
    fill(client, 4)
    first, second, _third = client.pull(b"3").take()
    client.ack(first)
    client.ack(second, b"-NAK")
    client.world.advance(1)
    before = client.info()
    client.world.restart()
    again = client.world.client()
    after = again.info()
    assert after["config"] == before["config"]
    for key in ("delivered", "ack_floor"):
        assert {**after[key], "last_active": 0} == {**before[key], "last_active": 0}
    assert (after["num_ack_pending"], after["num_pending"]) == (2, 1)
    inbox = again.pull({"batch": 5, "expires": 20 * SECOND})
    assert [m.stream_seq for m in inbox.take()] == [4]
    client.world.advance(9.1)
    assert [m.tokens[:2] for m in inbox.take()] == [(2, 2), (2, 3)]


def test_the_server_says_goodbye_to_waiting_requests(client: Client) -> None:
    client.consumer()
    inbox = client.pull({"batch": 3, "expires": SECOND})
    client.world.hub.shutdown()
    client.world.tick()
    (end,) = inbox.take()
    assert end.status == "409 Server Shutdown"
    assert end.header["Nats-Pending-Messages"] == "3"


def test_a_large_batch_is_delivered_in_turns(client: Client) -> None:
    client.consumer(max_ack_pending=-1)
    fill(client, 3000)
    inbox = client.pull({"batch": 3000, "expires": SECOND})
    assert 0 < len(inbox.messages) < 3000
    client.world.settle()
    assert [m.stream_seq for m in inbox.messages] == list(range(1, 3001))


def test_another_ack_wait_holds_for_what_is_pending_too(client: Client) -> None:
    client.consumer(ack_wait=10 * SECOND)
    fill(client, 1)
    client.pull(b"1")
    client.world.advance(5)
    client.consumer(ack_wait=20 * SECOND)
    inbox = client.pull({"expires": 60 * SECOND})
    client.world.advance(14.9)
    assert not inbox.messages
    client.world.advance(0.1)
    assert [m.tokens[:2] for m in inbox.take()] == [(2, 1)]
    client.consumer(ack_wait=SECOND)
    again = client.pull({"expires": 60 * SECOND})
    client.world.advance(1)
    assert [m.tokens[:2] for m in again.take()] == [(3, 1)]


def test_fewer_deliveries_hold_for_what_is_late_already(client: Client) -> None:
    advisories = client.subscribe(b"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.S.C")
    client.consumer(ack_wait=SECOND)
    fill(client, 1)
    client.pull(b"1")
    client.world.advance(2)
    client.consumer(ack_wait=SECOND, max_deliver=1)
    assert len(advisories.take()) == 1
    assert client.info()["num_ack_pending"] == 0
    assert [m.status for m in client.pull({"no_wait": True}).take()] == ["404 No Messages"]


def test_a_pull_that_does_not_wait_is_answered_in_a_pause(client: Client) -> None:
    client.consumer(pause_until="2099-01-01T00:00:00Z")
    fill(client, 1)
    assert [m.status for m in client.pull({"no_wait": True}).take()] == ["404 No Messages"]


def test_a_termination_under_ack_all_covers_what_came_before(client: Client) -> None:
    client.consumer(ack_policy="all")
    fill(client, 3)
    _, second, _ = client.pull(b"3").take()
    client.ack(second, b"+TERM")
    assert client.info()["num_ack_pending"] == 1


def test_an_ack_of_all_before_that_frees_nothing_moves_the_floor_for_good(client: Client) -> None:
    client.consumer(ack_policy="all")
    fill(client, 2)
    (first,) = client.pull(b"1").take()
    client.api("STREAM.MSG.DELETE.S", {"seq": 1})
    client.api("CONSUMER.RESET.S.C", {"seq": 1})
    (second,) = client.pull(b"1").take()
    assert second.stream_seq == 2
    client.world.advance(1)  # what was delivered is in the journal
    client.ack(first)
    floor = {"consumer_seq": 0, "stream_seq": 1}
    assert {key: client.info()["ack_floor"][key] for key in floor} == floor
    client.world.restart()
    again = client.world.client().info()["ack_floor"]
    assert {key: again[key] for key in floor} == floor
