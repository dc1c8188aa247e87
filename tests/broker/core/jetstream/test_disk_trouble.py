"""A disk that is full or fails: what was refused is not there, and what was there still works."""

from __future__ import annotations

import json

import pytest

from faultfs import FaultFS
from headrace.broker.core.monitor.server import healthz
from headrace.broker.store import FileStorage
from headrace.clock import ManualClock
from headrace.errors import StoreFailedError, StoreFullError
from jetstream_world import SECOND, Client, HeldStorage, World, publication


def bottle() -> tuple[FaultFS, World, Client]:
    fs = FaultFS()
    storage = FileStorage("/store", fs=fs, threaded=False)
    world = World(storage)
    return fs, world, world.client()


def fill_up(fs: FaultFS) -> None:
    """The next write finds no room; after it there is some again."""
    fs.fail(fs.operations + 1, "enospc")


def test_a_publish_refused_for_lack_of_room_is_not_remembered_as_a_duplicate() -> None:
    fs, _world, client = bottle()
    client.stream()
    client.put(b"s.a", Nats_Msg_Id="zero")
    fill_up(fs)
    refused = client.put(b"s.a", Nats_Msg_Id="one")
    assert refused["error"]["err_code"] == 10023
    assert client.put(b"s.a", Nats_Expected_Last_Msg_Id="one")["error"]["err_code"] == 10070
    again = client.put(b"s.a", Nats_Msg_Id="one", Nats_Expected_Last_Msg_Id="zero")
    assert "duplicate" not in again
    assert again["seq"] == client.api("STREAM.INFO.S")["state"]["last_seq"]


def test_pending_counts_forget_what_was_refused() -> None:
    fs, _world, client = bottle()
    client.stream()
    client.consumer()
    client.put(b"s.a")
    assert client.info()["num_pending"] == 1
    fill_up(fs)
    client.put(b"s.a")
    assert client.info()["num_pending"] == 1
    assert [m.stream_seq for m in client.pull({"batch": 5, "no_wait": True}).take()[:-1]] == [1]


def test_a_stream_refused_for_lack_of_room_does_not_exist() -> None:
    fs, _world, client = bottle()
    client.stream()
    fill_up(fs)
    answer = client.stream("T")
    assert answer["error"]["err_code"] == 10023
    assert client.api("STREAM.NAMES")["streams"] == ["S"]
    assert client.request(b"t.a").take()[0].status == "503"
    assert "error" not in client.stream("T")


def test_a_work_queue_message_whose_removal_did_not_fit_is_removed_later() -> None:
    fs, world, client = bottle()
    client.stream(retention="workqueue")
    client.consumer()
    client.put(b"s.a")
    (message,) = client.pull(b"1").take()
    fill_up(fs)
    client.publish(message.reply, b"+ACK")
    world.advance(1)
    world.advance(1)
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 0
    assert client.info()["num_ack_pending"] == 0


def test_a_failed_disk_refuses_changes_and_still_delivers_what_it_has() -> None:
    fs, world, client = bottle()
    client.stream(max_msgs=5)
    client.consumer()
    client.put(b"s.a", b"kept")
    fs.fail(fs.operations + 1, "eio")
    assert client.put(b"s.a")["error"]["code"] == 503
    assert client.put(b"s.a")["error"]["code"] == 503
    assert client.stream("T")["error"]["code"] == 503
    inbox = client.pull({"batch": 5, "expires": SECOND})
    (message,) = inbox.take()
    assert message.payload == b"kept"
    assert not client.ack(message)  # a restart will not know of it
    world.advance(5)
    assert client.api("STREAM.INFO.S")["config"]["name"] == "S"


def test_a_read_only_store_says_so_to_every_call_with_the_path_and_the_reason() -> None:
    fs, _world, client = bottle()
    client.stream()
    client.consumer()
    client.put(b"s.a")
    fs.fail(fs.operations + 2, "eio")  # the sync of the segment
    why = (
        "the store is read-only from here on: syncing /store/streams/S/0000000001.seg: "
        "Input/output error"
    )
    answers = [client.put(b"s.a"), client.put(b"s.a"), client.stream("T"), client.consumer("D")]
    document = {"name": "S", "subjects": ["s.>", "t.>"]}
    answers += [client.api("STREAM.UPDATE.S", document), client.api("STREAM.PURGE.S")]
    answers += [client.api("STREAM.MSG.DELETE.S", {"seq": 1}), client.api("CONSUMER.DELETE.S.C")]
    answers.append(client.api("STREAM.DELETE.S"))
    for answer in answers:
        assert answer["error"] == {"code": 503, "err_code": 10077, "description": why}


def test_a_full_disk_is_said_to_be_the_reason_with_the_path() -> None:
    fs, clock = FaultFS(), ManualClock()
    world = World(FileStorage("/store", fs=fs, threaded=False, clock=clock))
    client = world.client()
    client.stream()
    client.put(b"s.a")
    fs.capacity = sum(len(fs.content(path)) for path in fs.files())
    why = "insufficient resources: the disk is full: "
    big = b"x" * 100_000
    for answer in (client.put(b"s.a", big), client.put(b"s.a", big)):
        error = answer["error"]
        assert (error["code"], error["err_code"]) == (503, 10023)
        assert error["description"].startswith(why + "writing /store/streams/S/0000000001.seg: ")
    full = world.hub.storage_error
    assert full is not None
    assert "the disk is full: writing /store/streams/S/" in str(full)
    assert healthz(world.hub)[0] == 503
    client.api(
        "STREAM.PURGE.S"
    )  # what removes is still done, and says nothing of the room there is
    clock.advance(2)
    world.storage.complete()
    assert healthz(world.hub)[0] == 503
    fs.capacity = None
    world.storage.complete()
    assert healthz(world.hub)[0] == 503  # it is looked at once a second
    clock.advance(2)
    world.storage.complete()
    assert healthz(world.hub) == (200, {"status": "ok"})
    assert not [path for path in fs.files() if "room" in path]


def test_a_message_that_fits_again_ends_that_the_disk_is_full() -> None:
    fs, world, client = bottle()
    client.stream()
    client.put(b"s.a")
    fill_up(fs)
    assert client.put(b"s.a")["error"]["err_code"] == 10023
    assert healthz(world.hub)[0] == 503
    assert client.put(b"s.a")["seq"]
    assert healthz(world.hub)[0] == 200


def test_messages_whose_purge_did_not_fit_are_delivered_after_all() -> None:
    fs, _world, client = bottle()
    client.stream()
    client.consumer()
    for _ in range(4):
        client.put(b"s.a")
    fill_up(fs)
    assert client.api("STREAM.PURGE.S")["error"]["err_code"] == 10023
    assert client.info()["num_pending"] == 4
    assert [message.stream_seq for message in client.pull(b"4").take()] == [1, 2, 3, 4]


def test_a_delivery_is_not_over_when_the_removal_of_its_message_did_not_fit() -> None:
    fs, world, client = bottle()
    client.stream(retention="workqueue")
    client.consumer(max_ack_pending=3)
    for _ in range(4):
        client.put(b"s.a")
    first = client.pull(b"3").take()
    client.ack(first[2], b"-NAK")
    client.pull(b"1")
    fill_up(fs)
    assert client.api("STREAM.PURGE.S", {"seq": 4})["error"]["err_code"] == 10023
    info = client.info()
    assert (info["num_ack_pending"], info["num_redelivered"], info["num_pending"]) == (3, 1, 1)
    assert info["ack_floor"]["stream_seq"] == 0
    client.ack(first[0])
    world.restart(lambda: FileStorage("/store", fs=fs, threaded=False))
    client = world.client()
    assert client.info()["num_ack_pending"] == 2
    world.advance(31)
    again = client.pull(b"5").take()
    assert [message.tokens[:2] for message in again] == [(2, 2), (3, 3), (1, 4)]


def test_a_message_passed_over_while_its_removal_was_on_its_way_is_delivered_when_it_is_back() -> (
    None
):
    fs, world, client = bottle()
    client.stream()
    client.consumer()
    client.put(b"s.a")
    client.put(b"s.b")
    gone, pulled = client.subscribe(), client.subscribe()
    fill_up(fs)
    client.send(
        publication(b"$JS.API.STREAM.PURGE.S", b"", gone.subject)
        + publication(b"$JS.API.CONSUMER.MSG.NEXT.S.C", b"5", pulled.subject)
    )
    assert b"10023" in gone.take()[0].payload
    world.settle()
    world.tick()
    assert [message.stream_seq for message in pulled.take()] == [1, 2]


@pytest.mark.parametrize("error", [StoreFullError("full"), StoreFailedError("broken")])
def test_a_publish_again_is_no_duplicate_of_what_the_disk_refuses(error: Exception) -> None:
    """The first is on its way to the disk when the second comes: both are refused, and none is stored."""
    storage = HeldStorage()
    world = World(storage)
    client = world.client()
    client.stream()
    storage.hold, storage.fail = True, error
    first = client.request(b"s.a", b"x", Nats_Msg_Id="once")
    second = client.request(b"s.a", b"x", Nats_Msg_Id="once")
    assert first.take() + second.take() == []
    storage.release()
    storage.hold = False
    world.tick()
    answers = [json.loads(answer.payload) for answer in first.take() + second.take()]
    assert ["error" in answer for answer in answers] == [True, True], answers


@pytest.mark.parametrize("policy", ["all", "new", "last", "last_per_subject"])
def test_a_consumer_made_beside_refused_messages_misses_none_of_those_that_take_their_place(
    policy: str,
) -> None:
    """One chunk, and so one write: messages, of which only the last stays, and a consumer behind them."""
    fs, world, client = bottle()
    client.stream(max_msgs=1)
    inbox = client.subscribe()
    config = {"durable_name": "C", "ack_policy": "explicit", "deliver_policy": policy}
    config |= {"filter_subject": "s.>"} if policy == "last_per_subject" else {}
    body = json.dumps({"stream_name": "S", "config": config}).encode()
    fs.fail(fs.operations + 2, "enospc")  # the first call makes room, and may fail
    client.send(
        b"".join(publication(b"s.a", b"x", inbox.subject) for _ in range(3))
        + publication(b"$JS.API.CONSUMER.CREATE.S.C", body, inbox.subject)
    )
    fs.relent()
    world.advance(1)
    answers = [json.loads(answer.payload) for answer in inbox.take()]
    assert all("error" in answer for answer in answers[:3]), answers
    answer = client.put(b"s.b")
    assert "error" not in answer, answer
    stored = [answer["seq"]]
    if "error" in client.api("CONSUMER.INFO.S.C"):
        return  # it is no more, which is as good
    assert [message.stream_seq for message in client.pull(b"5").take()] == stored
