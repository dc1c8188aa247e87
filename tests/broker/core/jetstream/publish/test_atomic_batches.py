"""Atomic batches: all or none, in memory, on disk and after a crash; never more than there is room for."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from faultfs import FaultFS, PowerCut
from headrace.broker.core.jetstream.publish import atomic_batches as batch_publish
from headrace.broker.store import FileStorage
from headrace.errors import StoreFullError
from jetstream_world import Client, HeldStorage, World, publication

ADVISORY = b"$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.S"


def part(
    client: Client, sequence: int, commit: str = "", batch: str = "one", **headers: str
) -> dict[str, Any]:
    headers |= {"Nats_Batch_Id": batch, "Nats_Batch_Sequence": str(sequence)}
    if commit:
        headers["Nats_Batch_Commit"] = commit
    (answer,) = client.request(b"s.a", b"%d" % sequence, **headers).take()
    return json.loads(answer.payload) if answer.payload else {}


def messages(client: Client) -> int:
    count: int = client.api("STREAM.INFO.S")["state"]["messages"]
    return count


@pytest.fixture
def client() -> Client:
    client = World().client()
    client.stream(allow_atomic=True)
    return client


def test_nothing_is_stored_before_the_commit(client: Client) -> None:
    assert part(client, 1) == part(client, 2) == {}
    assert messages(client) == 0
    assert part(client, 3, "1") == {"stream": "S", "seq": 3, "batch": "one", "count": 3}
    assert messages(client) == 3


def test_an_idle_batch_is_abandoned_and_its_room_free_again(client: Client) -> None:
    advisories = client.subscribe(ADVISORY)
    for number in range(50):
        part(client, 1, batch=str(number))
    assert part(client, 1, batch="one too many")["error"]["err_code"] == 10210
    client.world.advance(8)
    part(client, 2, batch="0")
    client.world.advance(3)
    reasons = [json.loads(advisory.payload)["reason"] for advisory in advisories.take()]
    assert reasons == ["timeout"] * 49
    assert part(client, 3, "1", batch="0")["count"] == 3
    assert part(client, 1, "1", batch="one more")["count"] == 1


def test_what_batches_hold_is_bounded(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_publish, "ATOMIC_BATCHES_BYTES_MAX", 500)
    advisories = client.subscribe(ADVISORY)
    held = 0
    while not (answer := part(client, 1, batch=str(held))):
        held += 1
    assert answer["error"]["err_code"] == 10210
    assert 1 < held < 10
    assert [json.loads(a.payload)["reason"] for a in advisories.take()] == ["large"]
    for number in range(held):
        assert part(client, 2, "eob", batch=str(number))["count"] == 1
    assert part(client, 1) == {}


def test_all_streams_together_have_so_many_batches(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_publish, "ATOMIC_BATCHES_MAX", 3)
    client.stream("T", subjects=["t.a"], allow_atomic=True)
    for number in range(3):
        assert part(client, 1, batch=str(number)) == {}
    headers = {"Nats_Batch_Id": "t", "Nats_Batch_Sequence": "1"}
    assert client.put(b"t.a", b"", **headers)["error"]["err_code"] == 10210
    part(client, 2, "1", batch="1")
    (answer,) = client.request(b"t.a", b"", **headers).take()
    assert answer.payload == b""


def test_batches_of_a_deleted_stream_free_their_room(client: Client) -> None:
    for number in range(50):
        part(client, 1, batch=str(number))
    client.api("STREAM.DELETE.S")
    client.stream(allow_atomic=True)
    assert part(client, 2, "1", batch="7")["error"]["err_code"] == 10176
    assert part(client, 1, "1", batch="7")["count"] == 1


def test_consumers_and_the_publisher_wait_for_the_disk() -> None:
    storage = HeldStorage()
    world = World(storage)
    client = world.client()
    client.stream(allow_atomic=True)
    client.consumer()
    part(client, 1)
    pull = client.pull({"batch": 2})
    storage.hold = True
    headers = {"Nats_Batch_Id": "one", "Nats_Batch_Sequence": "2", "Nats_Batch_Commit": "1"}
    answer = client.request(b"s.a", b"2", **headers)
    assert answer.take() == pull.take() == []
    storage.hold = False
    storage.release()
    world.tick()
    assert json.loads(answer.take()[0].payload)["seq"] == 2
    assert [message.payload for message in pull.take()] == [b"1", b"2"]


def test_a_commit_that_does_not_reach_the_disk_is_refused_whole() -> None:
    storage = HeldStorage()
    world = World(storage)
    client = world.client()
    client.stream(allow_atomic=True)
    part(client, 1)
    storage.hold, storage.fail = True, StoreFullError("full")
    headers = {"Nats_Batch_Id": "one", "Nats_Batch_Sequence": "2", "Nats_Batch_Commit": "1"}
    answer = client.request(b"s.a", b"2", **headers)
    storage.hold = False
    storage.release()
    world.tick()
    assert json.loads(answer.take()[0].payload)["error"]["err_code"] == 10023


@pytest.mark.parametrize("seed", range(4))
def test_a_power_cut_leaves_whole_batches_only(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(8):
        fs = FaultFS()
        options: dict[str, Any] = {"threaded": False, "segment_bytes": 8192}
        world = World(FileStorage("/s", fs=fs, salts=random.Random(1), **options))
        client = world.client()
        client.stream(allow_atomic=True)
        acknowledged = 0
        fs.fail(fs.operations + rng.randrange(1, 60), rng.choice(["crash", "crash after"]))
        try:
            for number in range(40):
                size = rng.randrange(1, 6)
                for sequence in range(1, size + 1):
                    commit = "1" if sequence == size else ""
                    part(client, sequence, commit, f"{number}/{size}")
                acknowledged += size
        except PowerCut:
            pass
        found = fs.power_cut(rng) if rng.random() < 0.7 else fs.kill()
        world = World(FileStorage("/s", fs=found, salts=random.Random(2), **options))
        again = world.client()
        state = again.api("STREAM.INFO.S")["state"]
        assert state["messages"] >= acknowledged
        left: dict[str, int] = {}
        again.consumer(ack_policy="none")
        for message in again.pull({"batch": 500, "no_wait": True}).take():
            if batch := message.header.get("Nats-Batch-Id"):
                left[batch] = left.get(batch, 0) + 1
        assert all(count == int(batch.partition("/")[2]) for batch, count in left.items())
        assert sum(left.values()) == state["messages"]


def test_pieces_of_several_batches_may_mix(client: Client) -> None:
    inbox = client.subscribe()
    chunk = b"".join(
        publication(
            b"s.a",
            batch.encode(),
            inbox.subject if sequence == 2 else b"",
            Nats_Batch_Id=batch,
            Nats_Batch_Sequence=str(sequence),
            **({"Nats_Batch_Commit": "1"} if sequence == 2 else {}),
        )
        for sequence in (1, 2)
        for batch in "abc"
    )
    client.session.receive(chunk)
    client.world.tick()
    assert [json.loads(answer.payload)["seq"] for answer in inbox.take()] == [2, 4, 6]
