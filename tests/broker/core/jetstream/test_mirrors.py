"""Mirrors: the same messages with the same sequences and times, and nobody publishes to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.core.jetstream import JetStreamOptions
from headrace.broker.store import FileStorage
from headrace.message import StoredMessage
from jetstream_world import Client, World

SECOND = 1_000_000_000


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> Client:
    return world.client()


def mirror(client: Client, **config: Any) -> dict[str, Any]:
    of = {"name": "S", **config.pop("mirror", {})}
    answer = client.api("STREAM.CREATE.T", {"name": "T", "mirror": of, **config})
    client.world.settle()
    return answer


def fill(client: Client, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        client.publish(f"s.{number % 3}".encode(), b"%d" % number)
        client.world.clock.advance(0.5)
    client.world.settle()


def contents(client: Client, name: str = "T") -> list[StoredMessage]:
    client.world.settle()
    stream = client.world.hub.engine.registry.streams[name]  # type: ignore[union-attr]
    return stream.store.read(0, None, 1 << 20, 1 << 30, stream.store.last_seq)


def state(client: Client, name: str = "T") -> dict[str, Any]:
    info: dict[str, Any] = client.api(f"STREAM.INFO.{name}", {"deleted_details": True})["state"]
    return info


def test_a_mirror_has_the_same_messages_sequences_and_times(client: Client) -> None:
    client.stream()
    fill(client, 3)
    mirror(client)
    fill(client, 3, start=3)
    assert contents(client) == contents(client, "S")
    assert len(contents(client)) == 6


def test_gaps_stay_gaps(client: Client) -> None:
    client.stream()
    fill(client, 10)
    for sequence in (1, 4, 5, 9):
        client.api("STREAM.MSG.DELETE.S", {"seq": sequence})
    mirror(client)
    assert contents(client) == contents(client, "S")
    assert state(client)["deleted"] == [4, 5, 9]
    assert state(client)["num_subjects"] == 3


def test_a_long_gap_costs_nothing(client: Client) -> None:
    client.stream(allow_rollup_hdrs=True)
    fill(client, 2)
    client.send(b"".join(b"PUB s.x 1\r\nx\r\n" for _ in range(20_000)))
    client.api("STREAM.PURGE.S", {"filter": "s.x"})
    fill(client, 1, start=2)
    mirror(client)
    assert contents(client) == contents(client, "S")
    assert [message.sequence for message in contents(client)] == [1, 2, 20_003]


def test_a_stream_that_begins_late_is_mirrored_from_there(client: Client) -> None:
    client.stream(first_seq=1_000_000)
    mirror(client)
    fill(client, 2)
    assert contents(client) == contents(client, "S")
    assert state(client)["first_seq"] == 1_000_000


def test_a_filter_leaves_gaps(client: Client) -> None:
    client.stream()
    mirror(client, mirror={"filter_subject": "s.1"})
    fill(client, 9)
    assert [message.sequence for message in contents(client)] == [2, 5, 8]


def test_a_transform_changes_subjects_alone(client: Client) -> None:
    client.stream()
    rule = {"src": "s.*", "dest": "t.{{wildcard(1)}}"}
    mirror(client, mirror={"subject_transforms": [rule]})
    fill(client, 3)
    expected = [m._replace(subject=b"t" + m.subject[1:]) for m in contents(client, "S")]
    assert contents(client) == expected


def test_nobody_publishes_to_a_mirror(client: Client) -> None:
    client.stream()
    mirror(client)
    assert client.request(b"T", b"x").take()[0].status == "503"
    assert client.put(b"s.1")["stream"] == "S"


def test_the_mirror_keeps_what_the_origin_lets_go(client: Client) -> None:
    client.stream()
    fill(client, 3)
    mirror(client)
    client.api("STREAM.PURGE.S")
    fill(client, 1, start=3)
    assert [message.sequence for message in contents(client)] == [1, 2, 3, 4]


def test_a_mirror_with_limits_keeps_the_newest(client: Client) -> None:
    client.stream()
    mirror(client, max_msgs=2)
    fill(client, 5)
    client.world.tick()
    assert [message.sequence for message in contents(client)] == [4, 5]


def test_a_full_mirror_that_refuses_waits_for_room(client: Client) -> None:
    client.stream()
    mirror(client, max_msgs=2, discard="new")
    fill(client, 5)
    assert [message.sequence for message in contents(client)] == [1, 2]
    client.api("STREAM.PURGE.T", {"keep": 1})
    assert [message.sequence for message in contents(client)] == [2, 3]


def test_the_age_of_a_message_is_that_of_the_original(world: World, client: Client) -> None:
    client.stream()
    fill(client, 1)
    world.advance(8)
    mirror(client, max_age=10 * SECOND)
    assert len(contents(client)) == 1
    world.advance(3)
    assert contents(client) == []


def test_roll_ups_are_followed_where_they_are_allowed(client: Client) -> None:
    client.stream(allow_rollup_hdrs=True)
    mirror(client, allow_rollup_hdrs=True)
    fill(client, 6)
    client.put(b"s.1", b"all", Nats_Rollup="sub")
    assert contents(client) == contents(client, "S")
    assert len(contents(client)) == 5


def test_expectations_are_not_kept(client: Client) -> None:
    client.stream()
    mirror(client)
    client.put(b"s.1", b"x", Nats_Expected_Last_Sequence="0", Own="yes", Nats_Msg_Id="one")
    (message,) = contents(client)
    assert message.headers == b"NATS/1.0\r\nOwn: yes\r\nNats-Msg-Id: one\r\n\r\n"


class TestPromotion:
    def test_makes_a_plain_stream_of_a_mirror(self, client: Client) -> None:
        client.stream()
        mirror(client)
        fill(client, 2)
        client.api("STREAM.DELETE.S")
        answer = client.api("STREAM.UPDATE.T", {"name": "T", "subjects": ["s.>"]})
        assert "mirror" not in answer
        assert client.put(b"s.1") == {"stream": "T", "seq": 3}

    def test_into_a_source_goes_on_where_the_mirror_was(self, client: Client) -> None:
        client.stream()
        mirror(client)
        fill(client, 2)
        client.api("STREAM.UPDATE.T", {"name": "T", "sources": [{"name": "S"}]})
        fill(client, 1, start=2)
        assert [message.payload for message in contents(client)] == [b"0", b"1", b"2"]

    def test_does_not_turn_it_into_another_mirror(self, client: Client) -> None:
        client.stream()
        mirror(client)
        answer = client.api("STREAM.UPDATE.T", {"name": "T", "mirror": {"name": "OTHER"}})
        assert answer["error"]["err_code"] == 10055


class TestAMissingOrigin:
    def test_may_come_later(self, client: Client) -> None:
        mirror(client)
        assert client.api("STREAM.INFO.T")["mirror"]["error"]["err_code"] == 10059
        client.stream()
        fill(client, 2)
        assert contents(client) == contents(client, "S")

    def test_is_stood_in_for_by_a_mirror_that_may(self, client: Client) -> None:
        client.stream(allow_direct=True)
        answer = mirror(client)
        assert answer["config"]["mirror_direct"] is True
        client.put(b"s.1", b"kept")
        client.world.settle()
        client.api("STREAM.DELETE.S")
        (message,) = client.request(b"$JS.API.DIRECT.GET.S.s.1").take()
        assert message.payload == b"kept"
        assert message.header["Nats-Stream"] == "T"

    @pytest.mark.parametrize("count", [0, 2, 3, 17])
    def test_made_again_is_not_mixed_with_what_was_mirrored(self, count: int) -> None:
        said: list[str] = []
        client = World(options=JetStreamOptions(warn=said.append)).client()
        client.stream()
        mirror(client)
        fill(client, 3)
        told = client.subscribe(b"$JS.EVENT.ADVISORY.STREAM.COPY_STOPPED.T")
        client.api("STREAM.DELETE.S")
        client.stream()
        fill(client, count, start=10)
        world = client.world
        world.advance(10)
        assert [message.payload for message in contents(client)] == [b"0", b"1", b"2"]
        shown = client.api("STREAM.INFO.T")["mirror"]
        assert shown["error"]["err_code"] == 10029
        assert "made again" in shown["error"]["description"]
        assert said[-1:] == [f"stream 'T': {shown['error']['description']}"]
        (event,) = [json.loads(message.payload) for message in told.take()]
        assert event["type"] == "io.headrace.jetstream.advisory.v1.stream_copy_stopped"
        assert (event["stream"], event["origin"]) == ("T", "S")
        assert event["reason"] == shown["error"]["description"]
        client.api("STREAM.DELETE.S")
        assert client.api("STREAM.INFO.T")["mirror"]["error"]["err_code"] == 10059
        client.stream()
        assert client.api("STREAM.INFO.T")["mirror"]["error"] == shown["error"]
        fill(client, count, start=10)
        client.api("STREAM.DELETE.T")
        mirror(client)
        assert contents(client) == contents(client, "S")
        assert "error" not in client.api("STREAM.INFO.T")["mirror"]

    def test_made_again_is_mirrored_if_nothing_was(self, client: Client) -> None:
        client.stream()
        mirror(client)
        client.api("STREAM.DELETE.S")
        client.stream()
        fill(client, 2)
        assert contents(client) == contents(client, "S")


class TestARestart:
    @pytest.fixture
    def world(self, tmp_path: Path) -> World:
        return World(FileStorage(tmp_path, threaded=False))

    def test_goes_on_where_the_mirror_ends(
        self, world: World, client: Client, tmp_path: Path
    ) -> None:
        client.stream()
        mirror(client)
        fill(client, 3)
        client.api("STREAM.MSG.DELETE.S", {"seq": 3})
        client.api("STREAM.PURGE.T")
        world.restart(lambda: FileStorage(tmp_path, threaded=False))
        client = world.client()
        fill(client, 3, start=3)
        assert [message.sequence for message in contents(client)] == [4, 5, 6]

    def test_takes_an_origin_in_memory_with_it_and_the_next_of_its_name_is_another_one(
        self, world: World, client: Client, tmp_path: Path
    ) -> None:
        client.stream(storage="memory")
        mirror(client, storage="file")
        fill(client, 3)
        world.restart(lambda: FileStorage(tmp_path, threaded=False))
        client = world.client()
        assert client.api("STREAM.INFO.T")["mirror"]["error"]["err_code"] == 10059
        client.stream(storage="memory")
        fill(client, 5, start=10)
        assert [message.payload for message in contents(client)] == [b"0", b"1", b"2"]
        error = client.api("STREAM.INFO.T")["mirror"]["error"]
        assert (error["err_code"], "one in memory" in error["description"]) == (10029, True)
        client.api("STREAM.DELETE.T")
        mirror(client)
        assert contents(client) == contents(client, "S")

    @pytest.mark.parametrize("when", ["before", "after", "while it is away"])
    def test_finds_that_its_origin_was_made_again(
        self, world: World, client: Client, tmp_path: Path, when: str
    ) -> None:
        client.stream()
        mirror(client)
        fill(client, 3)
        if when == "after":
            world.restart(lambda: FileStorage(tmp_path, threaded=False))
            client = world.client()
        client.api("STREAM.DELETE.S")
        if when == "while it is away":
            world.restart(lambda: FileStorage(tmp_path, threaded=False))
            client = world.client()
        client.stream()
        fill(client, 5, start=10)
        for _ in range(2):
            assert [message.payload for message in contents(client)] == [b"0", b"1", b"2"]
            assert "made again" in client.api("STREAM.INFO.T")["mirror"]["error"]["description"]
            world.restart(lambda: FileStorage(tmp_path, threaded=False))
            client = world.client()

    def test_finds_gaps_again(self, world: World, client: Client, tmp_path: Path) -> None:
        client.stream()
        fill(client, 2)
        client.send(b"".join(b"PUB s.x 1\r\nx\r\n" for _ in range(6000)))
        client.api("STREAM.PURGE.S", {"filter": "s.x"})
        fill(client, 5, start=2)
        for sequence in (6003, 6005):
            client.api("STREAM.MSG.DELETE.S", {"seq": sequence})
        mirror(client)
        before = contents(client)
        assert before == contents(client, "S")
        world.restart(lambda: FileStorage(tmp_path, threaded=False))
        client = world.client()
        assert contents(client) == before
        fill(client, 2, start=7)
        assert contents(client) == contents(client, "S")
        assert not world.storage.report


def test_a_mirrored_bucket_reads_like_the_bucket(client: Client) -> None:
    """What clients make of a key-value bucket with a mirror: the same keys under the same subjects."""
    client.stream(
        "KV_B",
        subjects=["$KV.B.>"],
        max_msgs_per_subject=1,
        discard="new",
        allow_rollup_hdrs=True,
        deny_delete=True,
        allow_direct=True,
    )
    config = {
        "name": "KV_M",
        "mirror": {"name": "KV_B"},
        "max_msgs_per_subject": 1,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "mirror_direct": True,
        "allow_direct": True,
    }
    client.api("STREAM.CREATE.KV_M", config)
    for key, value in ((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"a", b"3"), (b"b", b"2")):
        client.put(b"$KV.B." + key, value)
    client.put(b"$KV.B.b", KV_Operation="PURGE", Nats_Rollup="sub")
    assert contents(client, "KV_M") == contents(client, "KV_B")
    (message,) = client.request(b"$JS.API.DIRECT.GET.KV_M.$KV.B.a").take()
    assert (message.payload, message.header["Nats-Sequence"]) == (b"3", "4")
