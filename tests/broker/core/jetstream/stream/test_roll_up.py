"""A roll-up by subject: what the index names is removed as a purge would remove it, without a search."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.core.jetstream.stream.removing import Removing
from headrace.broker.core.jetstream.tick.removals import Purge
from headrace.broker.store import FileStorage
from headrace.errors import StoreReadError
from headrace.subjects import SubjectFilter
from jetstream_world import Client, World

SUBJECTS = (b"s.1", b"s.2", b"s.3")


def world_on(folder: Path | None) -> World:
    return World() if folder is None else World(FileStorage(folder, threaded=False))


def state(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.api("STREAM.INFO.S", {"deleted_details": True})["state"]
    return {name: value for name, value in found.items() if not name.endswith("_ts")}


def played(seed: int, folder: Path | None, most: int) -> list[Any]:
    """Messages of few subjects, some of which roll up, alone and in batches; what there is after each."""
    choose, world = random.Random(seed), world_on(folder)
    client = world.client()
    client.stream(subjects=["s.*"], allow_rollup_hdrs=True, allow_atomic=True)
    client.consumer("C", filter_subject="s.1")
    seen: list[Any] = []
    for number in range(40):
        subject = choose.choice(SUBJECTS)
        headers = {"Nats_Rollup": "sub"} if choose.random() < 0.6 else {}
        if choose.random() < 0.3:
            size = choose.randint(1, most)
            for place in range(1, size + 1):
                last = {"Nats_Batch_Commit": "1"} if place == size else {}
                batch = {"Nats_Batch_Id": f"b{number}", "Nats_Batch_Sequence": str(place)}
                rolls = headers if place == size else {}
                client.publish(choose.choice(SUBJECTS), b"x", **batch, **rolls, **last)
        else:
            client.publish(subject, b"x", **headers)
        world.settle()
        seen.append((state(client), client.info("C")["num_pending"]))
    world.storage.close()
    return seen


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["memory", "file"])
def test_it_leaves_what_a_purge_leaves(
    seed: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick, plain = (None, None) if kind == "memory" else (tmp_path / "1", tmp_path / "2")
    entered: list[bool] = []
    is_rolled_up = Removing._is_rolled_up

    def noted(removing: Removing, subject: bytes, last_seq: int) -> bool:
        entered.append(is_rolled_up(removing, subject, last_seq))
        return entered[-1]

    monkeypatch.setattr(Removing, "_is_rolled_up", noted)
    found = played(seed, quick, 3)
    assert any(entered)
    monkeypatch.setattr(Removing, "_is_rolled_up", lambda *_: False)
    assert played(seed, plain, 3) == found


def test_a_marker_that_replaces_the_one_before_begins_no_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    client = world.client()
    client.stream(subjects=["s.*"], allow_rollup_hdrs=True)
    searches: list[int] = []
    purge = Removing.purge

    def noted(removing: Removing, filter: SubjectFilter | None, below_seq: int = 0) -> Purge:
        searches.append(below_seq)
        return purge(removing, filter, below_seq)

    monkeypatch.setattr(Removing, "purge", noted)
    for _ in range(5):
        client.put(b"s.1", b"row")
        client.put(b"s.2", b"marker", Nats_Rollup="sub")
    assert state(client)["messages"] == 6
    assert not searches
    client.put(b"s.1", b"all of them", Nats_Rollup="sub")
    assert state(client)["messages"] == 2
    assert searches == [11]


def test_what_cannot_be_read_now_is_left_to_a_purge_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    client = world.client()
    client.stream(subjects=["s.*"], allow_rollup_hdrs=True)
    client.put(b"s.2", b"marker", Nats_Rollup="sub")

    def unreadable(*_: object) -> int:
        raise StoreReadError("not now")

    with monkeypatch.context() as patched:
        patched.setattr(Removing, "remove", unreadable)
        assert client.put(b"s.2", b"marker", Nats_Rollup="sub")["seq"] == 2
    assert state(client)["messages"] == 1
