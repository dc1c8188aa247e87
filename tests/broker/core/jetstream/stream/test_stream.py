from __future__ import annotations

from typing import Any

import pytest

from headrace.broker.core.jetstream import JetStreamOptions
from headrace.transforms import partition
from jetstream_world import Client, World

SECOND = 1_000_000_000


@pytest.fixture
def client() -> Client:
    return World().client()


def state(client: Client, name: str = "S") -> dict[str, Any]:
    info: dict[str, Any] = client.api(f"STREAM.INFO.{name}")["state"]
    return info


def kept(client: Client) -> list[int]:
    info = state(client)
    sequences = range(info["first_seq"], info["last_seq"] + 1)
    deleted = client.api("STREAM.INFO.S", {"deleted_details": True})["state"].get("deleted", [])
    return [sequence for sequence in sequences if sequence not in deleted]


def test_a_publish_gets_the_next_sequence(client: Client) -> None:
    client.stream()
    assert client.put(b"s.a") == {"stream": "S", "seq": 1}
    assert client.put(b"s.b") == {"stream": "S", "seq": 2}


def test_a_subject_no_stream_covers_has_no_responders(client: Client) -> None:
    client.stream()
    assert client.request(b"t.a").take()[0].status == "503"


def test_names_are_escaped_in_acknowledgements(client: Client) -> None:
    client.stream('a%d"b', subjects=["x"])
    assert client.put(b"x") == {"stream": 'a%d"b', "seq": 1}
    client.consumer("c%s", stream='a%d"b')
    (message,) = client.pull(b"1", name="c%s", stream='a%d"b').take()
    assert message.reply.startswith(b'$JS.ACK.a%d"b.c%s.1.1.1.')
    assert client.ack(message)


def test_a_message_id_used_again_is_answered_with_the_first_sequence(client: Client) -> None:
    client.stream(duplicate_window=2 * SECOND)
    client.put(b"s.a", Nats_Msg_Id="one")
    assert client.put(b"s.a", Nats_Msg_Id="one") == {"stream": "S", "seq": 1, "duplicate": True}
    client.world.advance(2.1)
    assert client.put(b"s.a", Nats_Msg_Id="one")["seq"] == 2


def test_the_duplicate_window_survives_a_restart(client: Client) -> None:
    client.stream()
    client.put(b"s.a", Nats_Msg_Id="one")
    client.world.restart()
    again = client.world.client()
    assert again.put(b"s.a", Nats_Msg_Id="one")["duplicate"]
    assert again.put(b"s.a", Nats_Expected_Last_Msg_Id="one")["seq"] == 2


@pytest.mark.parametrize(
    ("header", "value", "err_code"),
    [
        ("Nats-Expected-Stream", "T", 10060),
        ("Nats-Expected-Last-Sequence", "5", 10071),
        ("Nats-Expected-Last-Sequence", "one", 10071),
        ("Nats-Expected-Last-Subject-Sequence", "5", 10071),
        ("Nats-Expected-Last-Subject-Sequence-Subject", "s.a", 10193),
        ("Nats-Expected-Last-Msg-Id", "nobody", 10070),
        ("Nats-Rollup", "sub", 10111),
        ("Nats-TTL", "0", 10165),
        ("Nats-TTL", "500ms", 10165),
        ("Nats-TTL", "soon", 10165),
        ("Nats-TTL", "5s", 10166),
        ("Nats-TTL", "never", 10166),
        ("Nats-Stream-Source", "X 1", 10227),
    ],
)
def test_an_expectation_that_fails_stores_nothing(
    client: Client, header: str, value: str, err_code: int
) -> None:
    client.stream()
    answer = client.put(b"s.a", **{header.replace("-", "_"): value})
    assert answer["error"]["err_code"] == err_code
    assert answer["seq"] == 0
    assert state(client)["messages"] == 0


def test_expectations_that_hold_store_the_message(client: Client) -> None:
    client.stream()
    client.put(b"s.a", Nats_Msg_Id="one")
    answer = client.put(
        b"s.b",
        Nats_Expected_Stream="S",
        Nats_Expected_Last_Sequence="1",
        Nats_Expected_Last_Subject_Sequence="0",
        Nats_Expected_Last_Msg_Id="one",
    )
    assert answer["seq"] == 2


def test_the_expectation_of_another_subject_may_be_a_pattern(client: Client) -> None:
    client.stream()
    client.put(b"s.a")
    headers = {"Nats_Expected_Last_Subject_Sequence_Subject": "s.*"}
    assert client.put(b"s.b", Nats_Expected_Last_Subject_Sequence="1", **headers)["seq"] == 2


def test_old_messages_give_way(client: Client) -> None:
    client.stream(max_msgs=3)
    for _ in range(5):
        client.put(b"s.a")
    assert kept(client) == [3, 4, 5]


def test_new_messages_are_refused(client: Client) -> None:
    client.stream(max_msgs=1, discard="new")
    client.put(b"s.a")
    error = client.put(b"s.a")["error"]
    assert (error["code"], error["err_code"]) == (503, 10077)
    assert error["description"] == "maximum messages exceeded"
    client.api("STREAM.MSG.DELETE.S", {"seq": 1})
    assert client.put(b"s.a")["seq"] == 2


def test_messages_grow_too_old(client: Client) -> None:
    client.stream(max_age=10 * SECOND, duplicate_window=SECOND)
    client.put(b"s.a")
    client.world.advance(6)
    client.put(b"s.a")
    client.world.advance(4.5)
    assert kept(client) == [2]
    client.world.advance(6)
    assert state(client)["messages"] == 0


def test_the_oldest_of_a_subject_gives_way(client: Client) -> None:
    client.stream(max_msgs_per_subject=2)
    for subject in (b"s.a", b"s.b", b"s.a", b"s.a"):
        client.put(subject)
    assert kept(client) == [2, 3, 4]


def test_new_messages_of_a_full_subject_can_be_refused(client: Client) -> None:
    client.stream(max_msgs_per_subject=1, discard="new", discard_new_per_subject=True)
    client.put(b"s.a")
    error = client.put(b"s.a")["error"]
    assert error["description"] == "maximum messages per subject exceeded"
    assert client.put(b"s.b")["seq"] == 2


def test_a_rollup_replaces_what_came_before(client: Client) -> None:
    client.stream(allow_rollup_hdrs=True)
    for subject in (b"s.a", b"s.b", b"s.a"):
        client.put(subject)
    client.put(b"s.a", Nats_Rollup="sub")
    assert kept(client) == [2, 4]
    client.put(b"s.c", Nats_Rollup="all")
    assert kept(client) == [5]


def test_a_transform_decides_the_stored_subject(client: Client) -> None:
    transform = {"src": "s.*.*", "dest": "{{partition(4,2)}}.s.{{wildcard(1)}}.{{wildcard(2)}}"}
    client.stream(subject_transform=transform)
    client.put(b"s.jfk.N14228")
    message = client.api("STREAM.MSG.GET.S", {"seq": 1})["message"]
    assert message["subject"] == f"{partition(b'N14228', 4)}.s.jfk.N14228"


def test_a_stream_without_acks_keeps_silent(client: Client) -> None:
    client.stream(no_ack=True)
    assert not client.request(b"s.a").take()
    assert state(client)["messages"] == 1


def test_a_sealed_stream_takes_nothing_and_gives_nothing_up(client: Client) -> None:
    client.stream()
    client.put(b"s.a")
    client.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "sealed": True})
    assert client.put(b"s.a")["error"]["err_code"] == 10109
    assert client.api("STREAM.MSG.DELETE.S", {"seq": 1})["error"]["err_code"] == 10109
    assert client.api("STREAM.PURGE.S")["error"]["err_code"] == 10109


def test_an_update_changes_subjects_and_limits(client: Client) -> None:
    client.stream()
    for _ in range(3):
        client.put(b"s.a")
    client.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["t.>"], "max_msgs": 1})
    assert kept(client) == [3]
    assert client.request(b"s.a").take()[0].status == "503"
    assert client.put(b"t.a")["seq"] == 4


def test_a_deleted_stream_leaves_nothing_behind(client: Client) -> None:
    client.stream()
    client.consumer()
    waiting = client.pull({"expires": SECOND})
    client.api("STREAM.DELETE.S")
    assert [m.status for m in waiting.take()] == ["409 Consumer Deleted"]
    assert client.request(b"s.a").take()[0].status == "503"
    client.world.restart()
    again = client.world.client()
    assert again.api("STREAM.NAMES")["streams"] is None


def test_streams_come_back_after_a_restart(client: Client) -> None:
    created = client.stream(max_msgs=7, description="kept")
    client.put(b"s.a", b"hello")
    client.world.restart()
    again = client.world.client()
    info = again.api("STREAM.INFO.S")
    assert info["config"] == created["config"]
    assert info["created"] == created["created"]
    assert again.put(b"s.a")["seq"] == 2


def test_a_stream_in_memory_is_gone_after_a_restart(client: Client) -> None:
    client.stream(storage="memory")
    client.world.restart()
    assert client.world.client().api("STREAM.INFO.S")["error"]["err_code"] == 10059


def test_a_clock_set_back_does_not_turn_the_times_of_a_stream(client: Client) -> None:
    client.stream()
    client.put(b"s.a")
    client.world.clock.jump(-3600)
    client.put(b"s.a")
    times = [client.api("STREAM.MSG.GET.S", {"seq": n})["message"]["time"] for n in (1, 2)]
    assert times[0] <= times[1]


def test_an_interest_stream_keeps_what_somebody_waits_for(client: Client) -> None:
    client.stream(retention="interest")
    client.put(b"s.a")
    assert state(client)["messages"] == 0
    client.consumer("A", filter_subject="s.a")
    client.consumer("B")
    client.put(b"s.a")
    client.put(b"s.b")
    for message in client.pull(b"2", name="B").take():
        client.ack(message)
    assert kept(client) == [2]
    client.ack(client.pull(b"1", name="A").take()[0])
    assert state(client)["messages"] == 0


def test_deleting_the_last_interested_consumer_frees_its_messages(client: Client) -> None:
    client.stream(retention="interest")
    client.consumer()
    client.put(b"s.a")
    client.api("CONSUMER.DELETE.S.C")
    assert state(client)["messages"] == 0


def test_a_work_queue_loses_what_is_acknowledged_or_terminated(client: Client) -> None:
    client.stream(retention="workqueue")
    client.consumer()
    for _ in range(3):
        client.put(b"s.a")
    first, second, _third = client.pull(b"3").take()
    client.ack(first)
    client.ack(second, b"+TERM")
    assert kept(client) == [3]


def test_a_given_up_message_stays_in_a_work_queue(client: Client) -> None:
    client.stream(retention="workqueue")
    client.consumer(max_deliver=1)
    client.put(b"s.a")
    (message,) = client.pull(b"1").take()
    client.ack(message, b"-NAK")
    assert kept(client) == [1]
    assert client.info()["num_ack_pending"] == 0


def test_limits_on_the_number_of_streams_and_consumers_hold() -> None:
    options = JetStreamOptions(max_streams=1, max_consumers_per_stream=1)
    client = World(options=options).client()
    client.stream()
    assert client.stream("T")["error"]["err_code"] == 10027
    client.consumer("A")
    assert client.consumer("B")["error"]["err_code"] == 10026
    assert "error" not in client.consumer("A")
