"""What a limit that was lowered takes, and what it leaves; the conformance tests compare this, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.broker.store import FileStorage
from jetstream_world import Client, World

SIZE = 119  # of a message below


@pytest.fixture
def client() -> Client:
    return World().client()


def filled(client: Client, **config: Any) -> dict[str, Any]:
    """A stream of twenty messages on four subjects, and its configuration."""
    made: dict[str, Any] = client.stream(**config)["config"]
    for number in range(20):
        client.put(b"s.%d" % (number % 4), b"x" * 100)
    return made


def kept(client: Client) -> list[int]:
    state = client.api("STREAM.INFO.S", {"deleted_details": True})["state"]
    gone = state.get("deleted") or []
    return [each for each in range(state["first_seq"], state["last_seq"] + 1) if each not in gone]


def changed(client: Client, before: dict[str, Any], **config: Any) -> dict[str, Any]:
    answer = client.api("STREAM.UPDATE.S", {**before, **config})
    made: dict[str, Any] = answer["config"]
    return made


def refusal(answer: dict[str, Any]) -> str:
    text: str = answer["error"]["description"]
    return text


@pytest.mark.parametrize("limit", [{"max_msgs": 5}, {"max_bytes": 700}], ids=["messages", "bytes"])
@pytest.mark.parametrize("retention", ["limits", "workqueue"])
def test_a_stream_that_refuses_new_messages_keeps_what_it_has(
    client: Client, limit: dict[str, int], retention: str
) -> None:
    config = filled(client, discard="new", retention=retention)
    config = changed(client, config, **limit)
    assert kept(client) == [*range(1, 21)]
    assert "exceeded" in refusal(client.put(b"s.0", b"x" * 100))
    client.world.restart()
    client = client.world.client()
    assert kept(client) == [*range(1, 21)]
    assert "exceeded" in refusal(client.put(b"s.0", b"x" * 100))
    client.api("STREAM.PURGE.S", {"keep": 4})
    assert client.put(b"s.0", b"x" * 100)["seq"] == 21


@pytest.mark.parametrize("limit", [{"max_msgs": 5}, {"max_bytes": 700}], ids=["messages", "bytes"])
def test_it_is_trimmed_when_it_is_told_to_discard_the_old(
    client: Client, limit: dict[str, int]
) -> None:
    config = changed(client, filled(client, discard="new"), **limit)
    config = changed(client, config, discard="old")
    assert kept(client) == [16, 17, 18, 19, 20]


def test_what_is_kept_survives_files_that_are_opened_again(tmp_path: Path) -> None:
    world = World(FileStorage(tmp_path, threaded=False))
    client = world.client()
    changed(client, filled(client, discard="new"), max_msgs=5)
    world.restart(lambda: FileStorage(tmp_path, threaded=False))
    client = world.client()
    assert kept(client) == [*range(1, 21)]
    world.storage.close()


def test_a_limit_per_subject_keeps_the_newest_of_each_whatever_is_discarded(client: Client) -> None:
    config = filled(client, discard="new", max_msgs_per_subject=5)
    changed(client, config, max_msgs_per_subject=3, max_msgs=4)
    assert kept(client) == [*range(9, 21)]
    assert client.put(b"s.0")["seq"] == 21  # in the place of the oldest of its subject
    assert kept(client) == [*range(10, 22)]
    assert refusal(client.put(b"s.new")) == "maximum messages exceeded"


def test_a_value_that_replaces_another_never_costs_a_third(client: Client) -> None:
    config = filled(client, discard="new", max_msgs_per_subject=1, storage="memory")
    changed(client, config, max_bytes=4 * SIZE)
    assert client.put(b"s.0", b"y" * 100)["seq"] == 21
    assert refusal(client.put(b"s.1", b"y" * 101)) == "maximum bytes exceeded"
    assert client.put(b"s.2", b"y" * 99)["seq"] == 22
    assert client.put(b"s.1", b"y" * 101)["seq"] == 23
    assert kept(client) == [20, 21, 22, 23]
    changed(client, config, max_bytes=SIZE)  # far too full: what does not grow is taken
    assert refusal(client.put(b"s.1", b"y" * 102)) == "maximum bytes exceeded"
    assert client.put(b"s.1", b"y" * 101)["seq"] == 24
    assert kept(client) == [20, 21, 22, 24]


def test_a_roll_up_does_not_empty_a_stream_it_does_not_fit_into(client: Client) -> None:
    config = filled(client, discard="new", max_msgs_per_subject=1, allow_rollup_hdrs=True)
    changed(client, config, max_bytes=300)
    answer = client.put(b"s.0", b"y" * 300, Nats_Rollup="all")
    assert refusal(answer) == "maximum bytes exceeded"
    assert kept(client) == [17, 18, 19, 20]
