"""Large removals: everybody else is served between two slices, and who asked is answered at the end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from faultfs import FaultFS
from headrace.broker.core.jetstream.stream import expiry, removing
from headrace.broker.core.jetstream.tick import removals
from headrace.broker.store import FileStorage
from jetstream_world import Client, HeldStorage, Inbox, World

SLICE = 2_000
"""Units of work: 100 messages from inside a stream, or some 600 from its head."""


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (removals, removing):
        monkeypatch.setattr(module, "SLICE", SLICE)
    monkeypatch.setattr(removing, "_MUCH", 100)
    monkeypatch.setattr(expiry, "_SINGLE_MAX", 100)
    monkeypatch.setattr(expiry, "_MARKED_MAX", 100)
    monkeypatch.setattr(removing, "_LOOKS", 200)
    yield


@pytest.fixture
def world() -> World:
    return World(HeldStorage())


@pytest.fixture
def client(world: World) -> Client:
    return world.client()


def fill(client: Client, count: int, subjects: int = 2) -> None:
    client.send(b"".join(b"PUB s.%d 1\r\nx\r\n" % (number % subjects) for number in range(count)))


def begin(client: Client, verb: str, document: Any) -> Inbox:
    return client.request(f"$JS.API.{verb}".encode(), json.dumps(document).encode())


def state(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.api("STREAM.INFO.S")["state"]
    return found


def turns(world: World, inbox: Inbox) -> list[dict[str, Any]]:
    """Turn by turn until the answer comes; returns what the stream was like before each."""
    seen, other = [], world.client()
    while not inbox.messages:
        seen.append(state(other))
        assert world.hub.run_timers()
        world.tick()
        assert len(seen) < 1_000
    return seen


def answer(inbox: Inbox) -> dict[str, Any]:
    (message,) = inbox.take()
    found: dict[str, Any] = json.loads(message.payload)
    return found


class TestAPurge:
    def test_is_answered_when_its_last_slice_is_durable(self, world: World, client: Client) -> None:
        client.stream()
        fill(client, 2_000)
        inbox = begin(client, "STREAM.PURGE.S", {"filter": "s.1"})
        counts = [each["messages"] for each in turns(world, inbox)]
        assert counts == sorted(counts, reverse=True)
        steps = [before - after for before, after in pairwise(counts)]
        assert len(counts) >= 8
        assert max(steps) <= 101
        assert answer(inbox)["purged"] == 1_000
        assert state(client)["messages"] == 1_000
        assert state(client)["num_subjects"] == 1

    def test_waits_for_the_disk_between_two_slices(self, world: World, client: Client) -> None:
        client.stream()
        fill(client, 1_000)
        storage = world.storage
        assert isinstance(storage, HeldStorage)
        storage.hold = True
        inbox = begin(client, "STREAM.PURGE.S", {"filter": "s.1"})
        before = state(client)["messages"]
        world.settle()
        assert state(client)["messages"] == before > 500
        while not inbox.messages:
            assert storage.held
            storage.release()
            world.tick()
            world.settle()
        assert answer(inbox)["purged"] == 500

    def test_leaves_alone_what_is_published_meanwhile_and_is_seen_exactly(
        self, world: World, client: Client
    ) -> None:
        client.stream()
        client.consumer(filter_subject="s.1")
        fill(client, 1_000)
        inbox = begin(client, "STREAM.PURGE.S", {"filter": "s.1"})
        published, other = 0, world.client()
        while not inbox.messages:
            client.put(b"s.1")
            published += 1
            seen = state(other)
            counts = client.api("STREAM.INFO.S", {"subjects_filter": ">"})["state"]["subjects"]
            assert sum(counts.values()) == seen["messages"]
            assert (
                seen["last_seq"] - seen["first_seq"] + 1 - seen["num_deleted"] == seen["messages"]
            )
            assert client.info()["num_pending"] == counts["s.1"]
            assert world.hub.run_timers()
            world.tick()
        assert published > 3
        assert answer(inbox)["purged"] == 500
        assert client.info()["num_pending"] == published
        got = client.pull({"batch": 100, "no_wait": True}).take()
        assert [m.stream_seq for m in got if m.reply] == list(range(1_001, 1_001 + published))

    def test_ends_deliveries_of_what_it_removes(self, world: World, client: Client) -> None:
        client.stream()
        client.consumer(max_ack_pending=5_000)
        fill(client, 1_000)
        assert len([m for m in client.pull({"batch": 1_000, "no_wait": True}).take() if m.reply])
        world.settle()
        assert client.info()["num_ack_pending"] == 1_000
        inbox = begin(client, "STREAM.PURGE.S", {"filter": "s.1"})
        while not inbox.messages:
            assert client.info()["num_ack_pending"] == state(client)["messages"]
            assert world.hub.run_timers()
            world.tick()
        assert client.info()["num_ack_pending"] == 500

    def test_meets_another_one(self, world: World, client: Client) -> None:
        client.stream()
        fill(client, 1_000)
        one = begin(client, "STREAM.PURGE.S", {"filter": "s.1"})
        two = begin(client, "STREAM.PURGE.S", {"keep": 10})
        world.settle()
        purged = [answer(inbox)["purged"] for inbox in (one, two)]
        left = state(client)["messages"]
        assert sum(purged) == 1_000 - left
        assert 5 <= left <= 10

    def test_of_a_stream_that_is_deleted_is_refused(self, world: World, client: Client) -> None:
        client.stream()
        fill(client, 1_000)
        inbox = begin(client, "STREAM.PURGE.S", {"filter": "s.1"})
        assert client.api("STREAM.DELETE.S")["success"]
        world.settle()
        assert "error" in answer(inbox)
        client.stream()
        assert state(client)["messages"] == 0

    def test_goes_on_beside_an_update(self, world: World, client: Client) -> None:
        client.stream()
        fill(client, 2_000)
        purge = begin(client, "STREAM.PURGE.S", {"filter": "s.1"})
        config = {"name": "S", "subjects": ["s.>"], "max_msgs": 50}
        update = begin(client, "STREAM.UPDATE.S", config)
        world.settle()
        assert answer(update)["state"]["messages"] <= 50
        assert answer(purge)["purged"] <= 1_000
        assert 0 < state(client)["messages"] <= 50
        assert state(client)["num_subjects"] == 1

    def test_that_the_disk_refuses_is_answered_so_and_comes_back(
        self, world: World, client: Client
    ) -> None:
        fs = FaultFS()
        world = World(FileStorage("/store", fs=fs, threaded=False))
        client = world.client()
        client.stream()
        fill(client, 1_000)
        inbox = begin(client, "STREAM.PURGE.S", {"filter": "s.1"})
        before = state(client)["messages"]
        assert 500 < before < 1_000
        fs.fail(fs.operations + 1, "enospc")
        world.settle()
        assert answer(inbox)["error"]["err_code"] == 10023
        assert state(client)["messages"] == before
        assert client.api("STREAM.PURGE.S", {"filter": "s.1"})["purged"] == before - 500

    def test_that_a_crash_cuts_short_leaves_each_message_or_not(self) -> None:
        fs = FaultFS()
        world = World(FileStorage("/store", fs=fs, threaded=False))
        client = world.client()
        client.stream()
        fill(client, 1_000)
        begin(client, "STREAM.PURGE.S", {"filter": "s.1"})
        for _ in range(2):
            world.hub.run_timers()
            world.tick()
        before = state(client)
        assert 500 < before["messages"] < 1_000
        world = World(FileStorage("/store", fs=fs.kill(), threaded=False))
        client = world.client()
        assert {**state(client), "consumer_count": 0} == {**before, "consumer_count": 0}
        assert client.api("STREAM.PURGE.S", {"filter": "s.1"})["purged"] == before["messages"] - 500


class TestLimits:
    @pytest.mark.parametrize("limit", [{"max_msgs": 50}, {"max_bytes": 1_000}])
    def test_that_are_lowered_are_met_when_the_update_is_answered(
        self, world: World, client: Client, limit: dict[str, int]
    ) -> None:
        client.stream()
        fill(client, 8_000)
        update = begin(client, "STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], **limit})
        seen = turns(world, update)
        assert len(seen) > 3
        found = answer(update)
        assert found["state"]["messages"] <= 50
        assert found["state"]["last_seq"] == 8_000
        client.put(b"s.1")
        assert state(client)["messages"] <= 50

    def test_of_each_subject_take_one_pass(self, world: World, client: Client) -> None:
        client.stream(max_msgs_per_subject=100)
        fill(client, 2_000, subjects=20)
        config = {"name": "S", "subjects": ["s.>"], "max_msgs_per_subject": 10}
        update = begin(client, "STREAM.UPDATE.S", config)
        published, other = 0, world.client()
        while not update.messages:
            client.put(b"s.%d" % (published % 3))
            published += 1
            state(other)
            assert world.hub.run_timers()
            world.tick()
        assert published > 10
        subjects = client.api("STREAM.INFO.S", {"subjects_filter": ">"})["state"]["subjects"]
        assert set(subjects.values()) == {10}
        assert client.api("STREAM.MSG.GET.S", {"next_by_subj": "s.7", "seq": 1})["message"][
            "seq"
        ] == (2_000 - 20 * 10 + 8)

    def test_of_one_message_per_subject_replace_while_the_pass_is_under_way(
        self, world: World, client: Client
    ) -> None:
        client.stream()
        fill(client, 2_000, subjects=20)
        config = {"name": "S", "subjects": ["s.>"], "max_msgs_per_subject": 1}
        update = begin(client, "STREAM.UPDATE.S", config)
        published = 0
        while not update.messages:
            client.put(b"s.%d" % (published % 3))
            published += 1
            assert world.hub.run_timers()
            world.tick()
        assert published > 5
        assert state(client)["messages"] == state(client)["num_subjects"] == 20

    def test_go_on_after_a_restart(self) -> None:
        fs = FaultFS()
        world = World(FileStorage("/store", fs=fs, threaded=False))
        client = world.client()
        client.stream()
        fill(client, 2_000, subjects=20)
        config = {"name": "S", "subjects": ["s.>"], "max_msgs_per_subject": 10}
        begin(client, "STREAM.UPDATE.S", config)
        for _ in range(2):
            world.hub.run_timers()
            world.tick()
        assert state(client)["messages"] > 1_000
        world = World(FileStorage("/store", fs=fs.kill(), threaded=False))
        client = world.client()
        world.settle()
        assert state(client)["messages"] == 200

    def test_are_begun_anew_when_a_flush_fails(self) -> None:
        fs = FaultFS()
        world = World(FileStorage("/store", fs=fs, threaded=False))
        client = world.client()
        client.stream()
        fill(client, 2_000, subjects=20)
        config = {"name": "S", "subjects": ["s.>"], "max_msgs_per_subject": 10}
        update = begin(client, "STREAM.UPDATE.S", config)
        fs.fail(fs.operations + 1, "enospc")
        world.settle()
        assert answer(update)["error"]["err_code"] == 10023
        world.advance(1)
        assert state(client)["messages"] == 200

    def test_of_age_remove_much_in_turns(self, world: World, client: Client) -> None:
        client.stream(max_age=5_000_000_000)
        fill(client, 8_000)
        world.clock.advance(6)
        steps, before = 0, 8_000
        while before:
            assert world.hub.run_timers()
            world.tick()
            after = (
                world.hub.jetstream_state("S") if hasattr(world.hub, "jetstream_state") else None
            )
            after = state(client)["messages"] if after is None else after
            assert before - after <= 700 * 2
            before, steps = after, steps + 1
        assert steps > 4

    def test_of_single_messages_that_expire_together(self, world: World, client: Client) -> None:
        client.stream(allow_msg_ttl=True)
        for _ in range(450):
            client.publish(b"s.1", Nats_TTL="5s")
        fill(client, 10)
        world.clock.advance(7)
        assert world.hub.run_timers()
        world.tick()
        assert state(client)["messages"] == 360
        world.settle()
        assert state(client)["messages"] == 10


class TestARollup:
    @pytest.mark.parametrize("scope", ["sub", "all"])
    def test_is_acknowledged_when_everything_before_it_is_gone(
        self, world: World, client: Client, scope: Any
    ) -> None:
        client.stream(allow_rollup_hdrs=True)
        fill(client, 8_000)
        inbox = client.request(b"s.1", b"new", Nats_Rollup=scope)
        assert not inbox.messages
        seen = turns(world, inbox)
        assert len(seen) > 3
        assert answer(inbox)["seq"] == 8_001
        assert state(client)["messages"] == (1 if scope == "all" else 4_001)


class TestInterest:
    def test_that_goes_frees_everything_in_turns(self, world: World, client: Client) -> None:
        client.stream(retention="interest")
        client.consumer()
        fill(client, 8_000)
        assert client.api("CONSUMER.DELETE.S.C")["success"]
        assert state(client)["messages"] > 4_000
        world.settle()
        assert state(client)["messages"] == 0

    def test_of_others_keeps_what_they_need(self, world: World, client: Client) -> None:
        client.stream(retention="interest")
        client.consumer("C")
        client.consumer("D", filter_subject="s.1")
        fill(client, 2_000)
        assert client.api("CONSUMER.DELETE.S.C")["success"]
        assert 1_000 < state(client)["messages"] < 2_000
        world.settle()
        assert state(client)["messages"] == 1_000
        assert client.info("D")["num_pending"] == 1_000

    def test_that_comes_meanwhile_keeps_the_rest(self, world: World, client: Client) -> None:
        client.stream(retention="interest")
        client.consumer()
        fill(client, 8_000)
        client.api("CONSUMER.DELETE.S.C")
        left = state(client)["messages"]
        assert 0 < left < 8_000
        client.consumer("D")
        world.settle()
        assert state(client)["messages"] == client.info("D")["num_pending"] == left


def test_a_deleted_streams_memory_is_let_go_in_turns(world: World, client: Client) -> None:
    client.stream(storage="memory")
    fill(client, 10_000)
    store = world.storage.open_stream("S")
    assert len(store.segments) > 2
    client.api("STREAM.DELETE.S")
    assert len(store.segments) > 2
    world.settle()
    assert len(store.segments) == 1


@pytest.mark.parametrize("turns_before", [0, 1, 3])
@pytest.mark.parametrize("verb", ["PURGE", "UPDATE"])
def test_a_stream_may_be_deleted_while_much_of_it_is_removed(
    world: World, client: Client, verb: str, turns_before: int
) -> None:
    client.stream(max_age=10**12)
    client.consumer()
    fill(client, 5_000)
    limits = {"name": "S", "subjects": ["s.>"], "max_msgs": 10}
    inbox = begin(client, f"STREAM.{verb}.S", {"filter": "s.1"} if verb == "PURGE" else limits)
    for _ in range(turns_before):
        world.hub.run_timers()
        world.tick()
    assert world.streams["S"].store.messages > 10
    deleted = begin(client, "STREAM.DELETE.S", {})
    for _ in range(300):  # beyond the last slice of what was being removed, and of the disposal
        world.hub.run_timers()
        world.tick()
    assert answer(deleted)["success"]
    assert len(inbox.take()) == 1  # it is answered, and a fault would have been raised in a tick
    assert client.stream()["state"]["messages"] == 0
    assert client.put(b"s.1", b"x")["seq"] == 1
