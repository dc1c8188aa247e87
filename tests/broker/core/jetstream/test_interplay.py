"""Features that meet: what one of them leaves behind must not trip another."""

from __future__ import annotations

import gc
import json
import shutil
import weakref
from pathlib import Path
from typing import Any

import pytest

from faultfs import FaultFS
from headrace.broker.core.jetstream import schedules
from headrace.broker.core.jetstream.publish.duplicate_window import DuplicateWindow
from headrace.broker.store import FileStorage
from jetstream_world import Client, HeldStorage, World, publication


def state(client: Client, name: str = "S") -> dict[str, Any]:
    found: dict[str, Any] = client.api(f"STREAM.INFO.{name}")["state"]
    return found


def test_an_id_that_is_known_twice_is_forgotten_without_a_fuss() -> None:
    window = DuplicateWindow(10, ids_max=3)
    window.add(b"a", 1, 0)
    window.add(b"a", 2, 5)
    assert window.find(b"a", 12) == 2
    assert window.find(b"a", 15) == 0
    for sequence in range(3, 9):
        window.add(b"b", sequence, 16)
    assert window.find(b"b", 17) == 8
    window.add(b"c", 9, 18)
    assert window.find(b"b", 26) == 0
    assert window.find(b"c", 27) == 9


def test_a_longer_window_and_a_restart_find_an_id_twice() -> None:
    world = World()
    client = world.client()
    client.stream(duplicate_window=100_000_000)
    client.put(b"s.a", Nats_Msg_Id="x")
    world.advance(1)
    assert client.put(b"s.a", Nats_Msg_Id="x")["seq"] == 2
    config = client.api("STREAM.INFO.S")["config"] | {"duplicate_window": 60_000_000_000}
    client.api("STREAM.UPDATE.S", config)
    world.restart()
    client = world.client()
    world.advance(59.5)
    assert client.put(b"s.a", Nats_Msg_Id="x")["seq"] == 2
    world.advance(60)
    assert client.put(b"s.a", Nats_Msg_Id="x")["seq"] == 3


def test_a_mirror_that_becomes_a_stream_knows_ids_its_origin_had_forgotten() -> None:
    world = World()
    client = world.client()
    client.stream(duplicate_window=100_000_000)
    mirror = {"name": "M", "mirror": {"name": "S"}, "duplicate_window": 60_000_000_000}
    client.api("STREAM.CREATE.M", mirror)
    for _ in range(3):
        client.put(b"s.a", Nats_Msg_Id="x")
        world.advance(1)
    assert state(client, "M")["messages"] == 3
    client.api("STREAM.UPDATE.M", {**mirror, "mirror": None, "subjects": ["m.>"]})
    world.advance(100)
    assert client.put(b"m.a", Nats_Msg_Id="x")["seq"] == 4


def test_an_id_whose_message_was_not_kept_is_not_the_last_one() -> None:
    window = DuplicateWindow(10)
    window.add(b"a", 5, 0)
    window.forget_after(4)
    assert (window.last_id, window.last_sequence) == (b"", 0)


def test_an_update_loses_nothing_that_is_still_to_be_republished() -> None:
    storage = HeldStorage()
    world = World(storage)
    client = world.client()
    created = client.stream(republish={"src": ">", "dest": "out.>"})
    heard = client.subscribe(b"out.>")
    storage.hold = True
    client.publish(b"s.a")
    client.request(
        b"$JS.API.STREAM.UPDATE.S", json.dumps({**created["config"], "description": "x"}).encode()
    )
    client.publish(b"s.b")
    storage.hold = False
    while storage.held:
        storage.release()
        world.tick()
    assert [message.subject for message in heard.take()] == [b"out.s.a", b"out.s.b"]


def test_an_update_that_ends_republishing_lets_what_came_before_go_out() -> None:
    storage = HeldStorage()
    world = World(storage)
    client = world.client()
    created = client.stream(republish={"src": ">", "dest": "out.>"})
    heard = client.subscribe(b"out.>")
    storage.hold = True
    client.publish(b"s.a")
    config = {key: value for key, value in created["config"].items() if key != "republish"}
    client.request(b"$JS.API.STREAM.UPDATE.S", json.dumps(config).encode())
    client.publish(b"s.b")
    storage.hold = False
    while storage.held:
        storage.release()
        world.tick()
    assert [message.subject for message in heard.take()] == [b"out.s.a"]


def test_a_sealed_stream_takes_no_message_from_its_schedules() -> None:
    world = World()
    client = world.client()
    created = client.stream(allow_msg_schedules=True)
    client.put(b"s.plan", Nats_Schedule="@every 1s", Nats_Schedule_Target="s.made")
    world.advance(1.5)
    before = state(client)["last_seq"]
    sealed = client.api("STREAM.UPDATE.S", {**created["config"], "sealed": True})
    assert "error" not in sealed, sealed
    world.advance(5)
    assert state(client)["last_seq"] == before


def test_a_sealed_stream_takes_no_marker() -> None:
    world = World()
    client = world.client()
    created = client.stream(
        subject_delete_marker_ttl=1_000_000_000,
        max_age=3_000_000_000,
        duplicate_window=1_000_000_000,
    )
    client.put(b"s.a", Nats_TTL="2s")
    sealed = client.api("STREAM.UPDATE.S", {**created["config"], "sealed": True})
    assert "error" not in sealed, sealed
    world.advance(5)
    assert state(client)["last_seq"] == 1


def test_what_was_copied_leaves_a_work_queue_after_a_restart_too() -> None:
    storage = HeldStorage()
    world = World(storage)
    client = world.client()
    client.stream(retention="workqueue")
    client.stream("T", subjects=[], sources=[{"name": "S"}])
    storage.hold = True
    client.publish(b"s.a")
    client.publish(b"s.b")
    for _ in range(50):
        world.settle()
        if storage.held:
            storage.release()
        world.tick()
        world.advance(0.01)
        if world.streams["T"].store.durable_seq >= 2:
            break
    assert world.streams["T"].store.durable_seq == 2
    world.advance(1)
    storage.hold = False
    while storage.held:
        storage.release()
        world.tick()
    world.advance(1)
    assert state(client)["messages"] == 0
    assert state(client, "T")["messages"] == 2


def test_what_comes_between_a_flush_and_the_end_of_its_tick_is_acknowledged() -> None:
    storage = HeldStorage()
    world = World(storage)
    client = world.client()
    client.stream("A", subjects=["a.>"], republish={"src": "a.>", "dest": "b.>"})
    client.stream("B", subjects=["b.>"])
    answers = client.subscribe()
    storage.hold = True
    client.publish(b"a.x")
    storage.release()  # what is republished is in the next flush already, and no tick came yet
    client.publish(b"b.y", b"", answers.subject)
    storage.hold = False
    while storage.held:
        storage.release()
        world.tick()
    assert [json.loads(answer.payload)["seq"] for answer in answers.take()] == [2]


def test_streams_that_republish_into_each_other_end_when_headers_are_full() -> None:
    world = World()
    client = world.client()
    client.stream("A", subjects=["a.>"], republish={"src": "a.>", "dest": "b.>"})
    client.stream("B", subjects=["b.>"], republish={"src": "b.>", "dest": "a.>"})
    client.publish(b"a.x", b"round")
    assert 10 < state(client, "A")["last_seq"] < 1000
    assert client.put(b"a.y")["stream"] == "A"


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_what_was_copied_leaves_its_origin_when_the_power_went_in_between(
    retention: str, tmp_path: Path
) -> None:
    world = World(FileStorage(tmp_path / "a", threaded=False))
    client = world.client()
    client.stream("T", subjects=[], sources=[{"name": "S", "filter_subject": "s.a"}])
    client.stream(retention=retention)
    client.consumer(filter_subject="s.b")
    store = world.streams["S"].store
    client.publish(b"s.b")
    client.publish(b"s.a")
    for _ in range(100):
        world.settle()
        if state(client, "T")["messages"]:
            break
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert store.messages <= 2
    world = World(FileStorage(tmp_path / "b", threaded=False))
    world.advance(1)
    client = world.client()
    assert state(client)["messages"] == 1
    assert state(client, "T")["messages"] == 1


def test_a_stream_that_is_deleted_leaves_no_timer_and_is_forgotten() -> None:
    world = World()
    client = world.client()
    listening = client.subscribe(b"push.p")
    before = len(world.hub.timers)
    client.stream("O", subjects=["o.>"])
    client.stream(
        allow_atomic=True,
        allow_msg_schedules=True,
        allow_msg_ttl=True,
        max_age=60_000_000_000,
        subject_delete_marker_ttl=1_000_000_000,
        republish={"src": ">", "dest": "out.>"},
    )
    client.stream(
        "T", subjects=[], sources=[{"name": "S"}, {"name": "O"}], max_msgs=2, discard="new"
    )
    client.stream("M", subjects=[], mirror={"name": "S"})
    made = {}
    made["P"] = client.consumer(
        "P", deliver_subject="push.p", idle_heartbeat=1_000_000_000, flow_control=True
    )
    made["G"] = client.consumer("G", priority_policy="pinned_client", priority_groups=["g"])
    made["U"] = client.consumer("U", pause_until="2033-01-01T00:00:00Z")
    assert not any("error" in answer for answer in made.values()), made
    client.pull({"batch": 5, "expires": 50_000_000_000, "group": "g"}, "G")
    client.publish(b"s.b", Nats_Batch_Id="1", Nats_Batch_Sequence="1")
    client.put(b"s.plan", Nats_Schedule="@every 1s", Nats_Schedule_Target="s.made")
    for _ in range(5):
        client.put(b"s.ttl", Nats_TTL="30s")
        client.put(b"o.x")
    world.advance(3)
    assert listening.take()
    seen = [weakref.ref(stream) for stream in world.streams.values()]
    for name in ("S", "T", "O", "M"):
        client.api(f"STREAM.DELETE.{name}")
    world.advance(5)
    assert len(world.hub.timers) == before
    gc.collect()
    assert [stream.name for ref in seen if (stream := ref()) is not None] == []


def test_a_work_queue_gives_up_what_was_copied_although_a_flush_failed() -> None:
    fs = FaultFS()
    world = World(FileStorage("/store", fs=fs, threaded=False))
    client = world.client()
    client.stream(retention="workqueue")
    client.stream("T", subjects=[], sources=[{"name": "S"}])
    client.publish(b"s.a")
    engine = world.hub.engine
    assert engine is not None
    target, origin = (engine.registry.streams[name].store for name in "TS")
    for _ in range(20):
        if target.durable_seq:
            break
        world.settle()
    assert target.durable_seq == 1
    assert origin.messages == 0  # but this is not on disk yet
    fs.fail(fs.operations + 1, "enospc")
    assert "error" in client.put(b"s.b")
    world.advance(5)
    assert client.put(b"s.c")["stream"] == "S"
    world.advance(5)
    assert state(client, "T")["messages"] == 2
    assert state(client)["messages"] == 0


def test_schedules_that_were_purged_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "_GONE_MAX", 4)
    world = World()
    client = world.client()
    client.stream(allow_msg_schedules=True)
    for number in range(10):
        subject = b"s.plan.%d" % number
        client.put(subject, Nats_Schedule="@every 2s", Nats_Schedule_Target="s.made")
    client.put(b"s.stays", Nats_Schedule="@every 2s", Nats_Schedule_Target="s.made")
    client.api("STREAM.PURGE.S", {"filter": "s.plan.*"})
    world.advance(3)
    engine = world.hub.engine
    assert engine is not None
    kept = engine.registry.streams["S"].schedules
    assert kept is not None
    assert list(kept._current) == [b"s.stays"]
    before = state(client)["last_seq"]
    world.advance(2)
    assert state(client)["last_seq"] == before + 1


@pytest.mark.parametrize(
    ("before", "after", "left"), [("limits", "interest", 0), ("interest", "limits", 1)]
)
def test_acknowledged_messages_stay_or_go_as_an_update_says(
    before: str, after: str, left: int
) -> None:
    client = World().client()
    config = client.stream(retention=before)["config"]
    client.consumer()
    client.put(b"s.a")
    [message] = client.pull(b"1").take()
    assert "error" not in client.api("STREAM.UPDATE.S", {**config, "retention": after})
    client.ack(message)
    assert state(client)["messages"] == left


def test_subjects_that_are_no_text_are_shown_as_well_as_they_can_be() -> None:
    client = World().client()
    client.stream(allow_direct=True)
    client.send(b"PUB s.\xff\xfe 1\r\nx\r\nPUB s.\xff\xfd 1\r\nx\r\n")
    message = client.api("STREAM.MSG.GET.S", {"seq": 1})["message"]
    assert message["subject"] == "s.\ufffd\ufffd"
    shown = client.api("STREAM.INFO.S", {"subjects_filter": ">"})["state"]
    assert shown["num_subjects"] == 2
    assert list(shown["subjects"]) == ["s.\ufffd\ufffd"]


@pytest.mark.parametrize("subject", [b"s.\xff", b"s.\x01"])
def test_subjects_that_are_no_text_are_rolled_up_and_limited_like_others(subject: bytes) -> None:
    client = World().client()
    config = client.stream(allow_rollup_hdrs=True, allow_direct=True)["config"]
    for _ in range(3):
        client.send(b"PUB %b 1\r\nx\r\n" % subject)
    client.put(b"s.other")
    latest = client.request(b"$JS.API.DIRECT.GET.S", b'{"multi_last":["s.*"],"up_to_seq":2}').take()
    assert [b"Nats-Sequence: 2\r\n" in message.headers for message in latest] == [True, False]
    assert "error" not in client.api("STREAM.UPDATE.S", {**config, "max_msgs_per_subject": 2})
    assert state(client)["messages"] == 3
    block = b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n"
    client.send(b"HPUB %b %d %d\r\n%bx\r\n" % (subject, len(block), len(block) + 1, block))
    assert state(client)["messages"] == 2
    assert "error" not in client.api("STREAM.UPDATE.S", {**config, "max_msgs_per_subject": 1})


@pytest.mark.parametrize("confirmed", [False, True])
def test_what_was_acknowledged_leaves_a_work_queue_though_its_consumer_is_deleted_in_the_same_tick(
    confirmed: bool,
) -> None:
    world = World()
    client = world.client()
    client.stream(retention="workqueue")
    client.consumer()
    client.put(b"s.a")
    (message,) = client.pull(b"1").take()
    answered = client.subscribe()
    reply = answered.subject if confirmed else b""
    client.send(
        publication(message.reply, b"+ACK", reply) + publication(b"$JS.API.CONSUMER.DELETE.S.C")
    )
    assert len(answered.take()) == confirmed
    assert state(client)["messages"] == 0
    client.consumer("D")
    assert client.info("D")["num_pending"] == 0
