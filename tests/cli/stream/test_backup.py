"""``headrace stream backup`` and ``restore``, against our broker and nats-server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import peers
from headrace import sync
from waiting import until_here

Run = Callable[..., Any]


def fill(js: sync.JetStream, name: str = "ORDERS", messages: int = 5) -> None:
    js.create_stream(name=name, subjects=[f"{name}.>"])
    for number in range(messages):
        js.publish(f"{name}.{number}", b"%d" % number, headers={"N": str(number)})
    js.create_consumer(name, durable_name="billing").fetch(2)


@pytest.fixture
def delete(js: sync.JetStream, either_server: peers.ServerProcess) -> Callable[[str], None]:
    """Delete a stream for good: nats-server removes its files later, and a new one might find them."""

    def is_gone(name: str) -> bool:
        try:
            return not [path for path in either_server.store_dir.rglob(name) if path.is_dir()]
        except FileNotFoundError:  # a directory went while it was looked into
            return False

    def delete(name: str) -> None:
        js.delete_stream(name)
        until_here(lambda: is_gone(name), f"the files of {name} stay")

    return delete


def test_one_stream(
    at_server: Run, js: sync.JetStream, delete: Callable[[str], None], tmp_path: Path
) -> None:
    fill(js)
    told = at_server("stream", "backup", "ORDERS", str(tmp_path / "b"), "--json").told
    assert told["stream"] == "ORDERS"
    assert told["state"]["messages"] == 5
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == [
        "backup.json",
        "stream.tar.s2",
    ]
    delete("ORDERS")
    lines = at_server("stream", "restore", str(tmp_path / "b")).lines
    assert lines == ["restored stream ORDERS with 5 messages, sequences 1 to 5"]
    info = js.consumer("ORDERS", "billing").info()
    assert info.delivered.stream_seq == 2
    again = at_server("stream", "restore", str(tmp_path / "b"))
    assert again.status == 1
    assert "already in use" in again.err


def test_the_form_of_older_servers(
    at_server: Run, js: sync.JetStream, delete: Callable[[str], None], tmp_path: Path
) -> None:
    fill(js, "OLDER")
    place = str(tmp_path / "b")
    assert at_server("stream", "backup", "OLDER", place, "--older").status == 0
    assert b"msgs/1.blk" in (tmp_path / "b" / "stream.tar.s2").read_bytes()
    delete("OLDER")
    assert at_server("stream", "restore", place).status == 0
    assert js.stream("OLDER").get_message(5).payload == b"4"
    assert js.consumer("OLDER", "billing").info().num_ack_pending == 2


def test_another_name_and_configuration(at_server: Run, js: sync.JetStream, tmp_path: Path) -> None:
    fill(js, "BEFORE")
    place = str(tmp_path / "b")
    assert at_server("stream", "backup", "BEFORE", place).status == 0
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"name": "x", "subjects": ["other.>"], "max_age": 0}))
    done = at_server("stream", "restore", place, "--name", "SHADOW", "--config", str(config))
    assert done.status == 0, done
    shadow = js.stream("SHADOW")
    info = shadow.info()
    assert info.config.subjects == ("other.>",)
    assert (info.state.messages, info.state.last_seq) == (5, 5)
    assert [shadow.get_message(n).payload for n in range(1, 6)] == [b"%d" % n for n in range(5)]


def test_all_of_them_in_two_goes(
    at_server: Run, js: sync.JetStream, delete: Callable[[str], None], tmp_path: Path
) -> None:
    fill(js, "A")
    fill(js, "B")
    assert at_server("stream", "backup", "--all", str(tmp_path)).lines[-1] == "backed up 2 streams"
    fill(js, "C")
    (tmp_path / "B" / "backup.json").unlink()  # as if it had been interrupted
    told = at_server("stream", "backup", "--all", "--resume", str(tmp_path), "--json").told
    assert [each["stream"] for each in told["streams"]] == ["B", "C"]
    for name in "AC":
        delete(name)
    assert at_server("stream", "restore", "--all", "--resume", str(tmp_path)).status == 0
    assert sorted(js.stream_names()) == ["A", "B", "C"]


def test_what_is_said_of_mistakes(at_server: Run, js: sync.JetStream, tmp_path: Path) -> None:
    assert "give a stream and a directory" in at_server("stream", "backup", "ORDERS").err
    assert "no backup in" in at_server("stream", "restore", str(tmp_path)).err
    assert "there is no stream" in at_server("stream", "backup", "NOPE", str(tmp_path / "x")).err
    assert not (tmp_path / "x").exists()
    assert "holds a backup" in at_server("stream", "restore", "--all", str(tmp_path)).err
    assert "holds a backup" in at_server("stream", "restore", "--all", str(tmp_path / "x")).err
    fill(js, "A")
    assert at_server("stream", "backup", "--all", str(tmp_path)).status == 0
    done = at_server("stream", "restore", str(tmp_path))
    assert (done.status, f"headrace stream restore --all {tmp_path}" in done.err) == (1, True)


def test_a_backup_that_is_there_is_replaced_only_when_asked_for(
    at_server: Run, js: sync.JetStream, tmp_path: Path
) -> None:
    fill(js, "FULL")
    js.create_stream(name="EMPTY", subjects=["EMPTY.>"])
    place = str(tmp_path / "FULL")
    dry = at_server("stream", "backup", "FULL", place, "--dry-run")
    assert (dry.status, dry.out) == (0, f"would back up stream FULL into {place}\n")
    assert not Path(place).exists()
    assert at_server("stream", "backup", "FULL", place).status == 0
    kept = (Path(place) / "stream.tar.s2").read_bytes()
    there = f"{place} (stream FULL, 5 messages, up to sequence 5)"
    asked = at_server("stream", "backup", "EMPTY", place, answer="n\n")
    assert asked.status == 1
    assert f"Really back up stream EMPTY into {place} and replace 1 backup: {there}? " in asked.err
    assert at_server("stream", "backup", "--all", str(tmp_path)).status == 1  # nobody answers
    assert (Path(place) / "stream.tar.s2").read_bytes() == kept
    assert not (tmp_path / "EMPTY").exists()
    assert at_server("stream", "backup", "--all", "--resume", str(tmp_path)).status == 0
    assert (Path(place) / "stream.tar.s2").read_bytes() == kept
    assert (tmp_path / "EMPTY").exists()
    assert at_server("stream", "backup", "--all", str(tmp_path), "--force").status == 0
    assert at_server("stream", "backup", "EMPTY", place, answer="y\n").status == 0
    assert json.loads((Path(place) / "backup.json").read_bytes())["config"]["name"] == "EMPTY"
