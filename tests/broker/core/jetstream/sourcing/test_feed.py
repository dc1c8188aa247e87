"""Sources and mirrors that copy through a durable consumer of their origin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultfs import FaultFS
from headrace.broker.store import FileStorage
from headrace.errors import StoreFullError
from jetstream_world import Client, HeldStorage, World, copy_info

THROUGH = {"name": "S", "consumer": {"name": "C", "deliver_subject": "d"}}


def flow(client: Client, limit: int = 0, **config: Any) -> None:
    """A consumer C of S to ``d`` that acks by flow control."""
    answer = client.consumer(
        ack_policy="flow_control", deliver_subject="d", max_ack_pending=limit, **config
    )
    assert "error" not in answer, answer


def target(client: Client, *, mirror: bool = False, **config: Any) -> dict[str, Any]:
    copied = {"mirror": THROUGH} if mirror else {"sources": [THROUGH]}
    answer = client.api("STREAM.CREATE.T", {"name": "T", **copied, "allow_direct": True, **config})
    client.world.settle()
    return answer


def fill(client: Client, *numbers: int) -> None:
    for number in numbers:
        client.publish(b"s.%d" % number, b"%d" % number)
    client.world.settle()


def payloads(client: Client, name: str = "T") -> list[int]:
    client.world.settle()
    store = client.world.hub.engine.registry.streams[name].store  # type: ignore[union-attr]
    return [int(m.payload) for m in store.read(0, None, 1 << 20, 1 << 30, store.last_seq)]


def ready(*, limit: int = 0, **stream: Any) -> tuple[World, Client]:
    world = World()
    client = world.client()
    client.stream(**stream)
    flow(client, limit)
    return world, client


@pytest.mark.parametrize("mirror", [False, True])
def test_it_copies_what_the_consumer_delivers_and_acknowledges_it(mirror: bool) -> None:
    world, client = ready()
    fill(client, 1, 2)
    target(client, mirror=mirror)
    fill(client, 3)
    assert payloads(client) == [1, 2, 3]
    info = client.info()
    assert info["push_bound"]
    assert info["delivered"]["stream_seq"] == 3
    world.advance(1.5)  # a heartbeat asks how far it came
    assert client.info()["ack_floor"]["stream_seq"] == 3
    assert client.info()["num_ack_pending"] == 0
    assert "error" not in copy_info(client)
    assert copy_info(client)["lag"] == 0


def test_more_than_may_be_pending_is_copied_without_waiting_for_a_heartbeat() -> None:
    _, client = ready(limit=5)
    target(client)
    fill(client, *range(100))
    assert payloads(client) == list(range(100))


def test_a_long_catch_up_leaves_room_for_others_in_every_tick() -> None:
    """A store in memory commits at once: nothing but its turns holds the copy back."""
    world, client = ready(limit=100)
    fill(client, *range(1000))
    client.api("STREAM.CREATE.T", {"name": "T", "sources": [THROUGH]})
    ticks, before = 0, 0
    store = world.hub.engine.registry.streams["T"].store  # type: ignore[union-attr]
    while before < 1000:
        world.hub.run_timers()
        world.tick()
        now = store.messages
        assert now - before <= 200
        ticks, before = ticks + 1, now
        assert ticks < 1000
    assert ticks >= 5


def test_the_filter_and_headers_only_are_the_consumers() -> None:
    world = World()
    client = world.client()
    client.stream()
    flow(client, filter_subject="s.2", headers_only=True)
    target(client)
    fill(client, 1, 2, 3)
    messages = client.request(b"$JS.API.DIRECT.GET.T", b'{"seq":1}').take()
    assert messages[0].header["Nats-Msg-Size"] == "1"
    assert messages[0].header["Nats-Stream-Source"].startswith("S:C=")
    assert messages[0].header["Nats-Stream-Source"].split(" ")[1] == "2"


def test_a_mirror_leaves_gaps_where_the_consumer_does() -> None:
    world = World()
    client = world.client()
    client.stream()
    flow(client, filter_subjects=["s.2", "s.4"])
    target(client, mirror=True)
    fill(client, 1, 2, 3, 4)
    assert payloads(client) == [2, 4]
    assert client.api("STREAM.INFO.T")["state"]["last_seq"] == 4


def test_a_consumer_that_is_missing_comes_later_and_goes_again() -> None:
    world = World()
    client = world.client()
    client.stream()
    fill(client, 1)
    target(client)
    assert copy_info(client)["error"]["err_code"] == 10014
    flow(client)
    assert payloads(client) == [1]
    client.api("CONSUMER.DELETE.S.C")
    fill(client, 2)
    assert payloads(client) == [1]
    assert copy_info(client)["error"]["err_code"] == 10014
    flow(client)  # begins with the first message, which is there already
    assert payloads(client) == [1, 2]


@pytest.mark.parametrize(("mirror", "code"), [(False, 10217), (True, 10214)])
def test_a_consumer_of_another_policy_is_refused(mirror: bool, code: int) -> None:
    world = World()
    client = world.client()
    client.stream()
    client.consumer(deliver_subject="d")
    target(client, mirror=mirror)
    assert copy_info(client)["error"]["err_code"] == code


def test_a_consumer_that_delivers_elsewhere_is_named() -> None:
    world = World()
    client = world.client()
    client.stream()
    client.consumer(ack_policy="flow_control", deliver_subject="e")
    target(client)
    assert copy_info(client)["error"]["err_code"] == 10045
    assert "push_bound" not in client.info()
    # Once it delivers here, the next try finds it.
    assert "error" not in client.consumer(ack_policy="flow_control", deliver_subject="d")
    world.advance(2.5)
    fill(client, 1)
    assert payloads(client) == [1]


def test_what_a_client_publishes_there_is_not_copied() -> None:
    _world, client = ready()
    target(client)
    fill(client, 1)
    client.publish(b"d", b"forged", b"$JS.ACK.S.C.1.2.2.1.0")
    client.publish(b"d", b"", b"$JS.FC.S.C.x", status="100 FlowControl Request")
    fill(client, 2)
    assert payloads(client) == [1, 2]


def test_a_full_target_stops_and_goes_on_when_there_is_room() -> None:
    _world, client = ready(limit=10)
    target(client, max_msgs=3, discard="new")
    fill(client, *range(8))
    assert payloads(client) == [0, 1, 2]
    assert "push_bound" not in client.info()  # it does not listen to what it can not take
    seen = [0, 1, 2]
    while seen[-1] < 7:
        client.api("STREAM.PURGE.T", {"keep": 1})
        now = payloads(client)
        assert now[0] == seen[-1]
        seen += now[1:]
    assert seen == list(range(8))
    assert client.info()["push_bound"]


def test_a_work_queue_keeps_what_is_not_on_the_targets_disk() -> None:
    world = World(HeldStorage())
    client = world.client()
    client.stream(retention="workqueue")
    flow(client, 2)
    target(client)
    storage = world.storage
    assert isinstance(storage, HeldStorage)
    client.publish(b"s.1", b"1")
    storage.hold = True
    client.publish(b"s.2", b"2")  # this flush is held, and with it what is copied from the first
    world.settle()
    assert payloads(client, "S")[0] == 1
    storage.hold = False
    while storage.held:
        storage.release()
        world.settle()
    world.advance(2)
    assert payloads(client) == [1, 2]
    assert payloads(client, "S") == []


def test_a_failed_flush_is_copied_again() -> None:
    world = World(HeldStorage())
    client = world.client()
    client.stream()
    flow(client)
    target(client)
    fill(client, 1)
    storage = world.storage
    assert isinstance(storage, HeldStorage)
    storage.hold, storage.fail = True, StoreFullError("disk full")
    client.publish(b"s.2", b"2")
    world.settle()
    storage.hold = False
    while storage.held:
        storage.release()
    storage.fail = None
    world.advance(5)
    fill(client, 3)
    world.advance(5)
    assert payloads(client) == payloads(client, "S")


def test_a_reset_by_hand_brings_nothing_twice() -> None:
    world, client = ready()
    target(client)
    fill(client, 1, 2, 3)
    client.api("CONSUMER.RESET.S.C", {"seq": 1})
    world.settle()
    fill(client, 4)
    world.advance(3)
    fill(client, 5)
    assert payloads(client) == [1, 2, 3, 4, 5]


def test_without_the_source_nobody_listens() -> None:
    _, client = ready()
    target(client, subjects=["t"])
    assert client.info()["push_bound"]
    config = {"name": "T", "subjects": ["t"], "allow_direct": True}
    assert "error" not in client.api("STREAM.UPDATE.T", config)
    assert "push_bound" not in client.info()


def test_the_subject_it_listens_on_changes_with_the_configuration() -> None:
    world, client = ready()
    target(client)
    fill(client, 1)
    moved = {"name": "S", "consumer": {"name": "C", "deliver_subject": "e"}}
    assert "error" not in client.api("STREAM.UPDATE.T", {"name": "T", "sources": [moved]})
    assert copy_info(client)["error"]["err_code"] == 10045
    answer = client.consumer(ack_policy="flow_control", deliver_subject="e", max_ack_pending=0)
    assert "error" not in answer
    world.advance(2.5)
    fill(client, 2)
    assert payloads(client) == [1, 2]


def test_an_origin_made_anew_is_copied_from_its_beginning() -> None:
    world, client = ready()
    target(client)
    fill(client, 1, 2)
    client.api("STREAM.DELETE.S")
    assert copy_info(client)["error"]["err_code"] == 10059
    world.advance(1)
    client.stream()
    flow(client)
    fill(client, 3)
    assert payloads(client) == [1, 2, 3]


def test_a_restart_goes_on_behind_what_is_stored(tmp_path: Path) -> None:
    def storage() -> FileStorage:
        return FileStorage(tmp_path, threaded=False)

    world = World(storage())
    client = world.client()
    client.stream(retention="interest")
    flow(client)
    target(client)
    fill(client, 1, 2, 3)  # delivered and stored, but no answer said so yet
    assert client.info()["ack_floor"]["stream_seq"] == 0
    world.restart(storage)
    client = world.client()
    fill(client, 4)
    assert payloads(client) == [1, 2, 3, 4]
    world.advance(2)
    assert payloads(client, "S") == []


events = st.lists(
    st.sampled_from(
        ["publish", "publish", "publish", "time", "reset", "gone", "back", "room", "restart"]
    ),
    max_size=30,
)


@settings(max_examples=50)
@given(events, st.integers(1, 4))
def test_every_message_comes_once_and_in_order(events: list[str], limit: int) -> None:
    """Whatever happens to the consumer, the target and the server between the messages."""
    world = World()
    client = world.client()
    client.stream()
    flow(client, limit)
    target(client, max_msgs=3, discard="new")
    published, seen = 0, [0]

    def look() -> None:
        for number in payloads(client):
            if number > seen[-1]:
                assert number == seen[-1] + 1
                seen.append(number)
        assert payloads(client) == sorted(set(payloads(client)))

    for event in events:
        if event == "publish":
            published += 1
            fill(client, published)
        elif event == "time":
            world.advance(1.1)
        elif event == "reset":
            client.publish(b"$JS.API.CONSUMER.RESET.S.C", b'{"seq":1}', b"nobody")
        elif event == "gone":
            client.api("CONSUMER.DELETE.S.C")
        elif event == "back":
            flow(client, limit)
        elif event == "room":
            look()
            client.api("STREAM.PURGE.T", {"keep": 1})
        elif event == "restart":
            world.restart()
            client = world.client()
        look()
    flow(client, limit)
    for _ in range(published + 2):
        world.advance(2.5)
        look()
        client.api("STREAM.PURGE.T")
    assert seen[-1] == published


def test_a_failed_disk_stops_it_and_nothing_else() -> None:
    """The consumer can not be begun anew where nothing can be written: the tick must not fail for it."""
    fs = FaultFS()
    world = World(FileStorage("/store", fs=fs, threaded=False))
    client = world.client()
    client.stream()
    client.consumer(ack_policy="flow_control", deliver_subject="elsewhere")
    target(client)
    assert copy_info(client)["error"]["err_code"] == 10045  # it tries again every two seconds
    fs.fail(fs.operations + 1, "eio")
    client.publish(b"s.1", b"1")
    for _ in range(4):
        world.advance(2.5)
    assert world.hub.storage_error is not None
    assert copy_info(client)["error"]["err_code"] == 10077
    assert client.api("STREAM.NAMES")["streams"] == ["S", "T"]
