"""``headrace store``: a stopped broker's store is checked, repaired, scrubbed and saved."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace import sync

Run = Callable[..., Any]
PAYLOAD = b"find this message 7 in the file"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A store with two streams, a gap and a consumer."""
    directory = tmp_path / "store"
    with sync.Broker(store_dir=str(directory)) as broker, broker.connect() as connection:
        js = connection.jetstream()
        js.create_stream(name="ORDERS", subjects=["orders.>"])
        for number in range(1, 11):
            payload = PAYLOAD if number == 7 else b"\xff%d" % number if number == 2 else b"x"
            js.publish(f"orders.{number}", payload, headers={"N": str(number)})
        js.stream("ORDERS").delete_message(3)
        consumer = js.create_consumer("ORDERS", durable_name="billing")
        consumer.fetch(4)[0].ack_sync()
        js.create_stream(name="EMPTY", subjects=["empty"])
    return directory


def damage(place: Path) -> None:
    """A byte of message 7 rots."""
    for path in (place / "streams" / "ORDERS").glob("*.seg"):
        data = path.read_bytes()
        at = data.find(PAYLOAD)
        if at >= 0:
            path.write_bytes(data[:at] + b"F" + data[at + 1 :])
            return
    raise AssertionError("the message is nowhere")


def everything(place: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(place)): path.read_bytes()
        for path in sorted(place.rglob("*"))
        if path.is_file()
    }


def test_a_store_in_order(headrace: Run, place: Path) -> None:
    before = everything(place)
    told = headrace("store", "check", str(place), "--json").told
    assert told["findings"] == []
    assert [(s["stream"], s["messages"], s["consumers"]) for s in told["streams"]] == [
        ("EMPTY", 0, 0),
        ("ORDERS", 9, 1),
    ]
    saved = str(place.parent / "saved")
    done = headrace("store", "repair", str(place), "--save", saved)
    assert done.lines == ["no stream is damaged"]
    assert headrace("store", "scrub", str(place)).lines[0].startswith("read ")
    assert everything(place) == before


def test_what_is_damaged_is_told_and_can_be_let_go(
    headrace: Run, place: Path, tmp_path: Path
) -> None:
    damage(place)
    before = everything(place)
    done = headrace("store", "check", str(place), "--json")
    assert done.status == 1
    told = json.loads(done.out)
    assert [7, 7] in [finding["lost"] for finding in told["findings"]]
    assert everything(place) == before
    saved = ("--save", str(tmp_path / "saved"))
    assert "would write" in headrace("store", "repair", str(place), *saved, "--dry-run").out
    assert everything(place) == before
    assert headrace("store", "repair", str(place), *saved, "--force").status == 0
    again = headrace("store", "check", str(place), "--json").told
    assert again["findings"] == []
    assert again["streams"][1]["messages"] == 8
    with sync.Broker(store_dir=str(place)) as broker, broker.connect() as connection:
        stream = connection.jetstream().stream("ORDERS")
        assert stream.info(deleted=True).state.deleted == (3, 7)
        assert stream.get_message(8).headers["N"] == "8"
        assert stream.consumer("billing").info().num_ack_pending == 3
        assert connection.jetstream().publish("orders.x", b"").seq == 11
        assert (tmp_path / "saved" / "ORDERS" / "backup.json").exists()


def test_streams_are_saved_as_backups(headrace: Run, place: Path, tmp_path: Path) -> None:
    before = everything(place)
    out = str(tmp_path / "out")
    assert headrace("store", "export", str(place), "--to", out).lines == [
        "EMPTY: 0 messages",
        "ORDERS: 9 messages",
    ]
    assert everything(place) == before
    with sync.Broker() as broker, broker.connect() as connection:
        js = connection.jetstream()
        for name in ("EMPTY", "ORDERS"):
            js.restore_stream(tmp_path / "out" / name)
        stream = js.stream("ORDERS")
        assert stream.get_message(7).payload == PAYLOAD
        assert stream.info(deleted=True).state.deleted == (3,)
        info = stream.consumer("billing").info()
        assert (info.delivered.stream_seq, info.ack_floor.stream_seq) == (5, 1)
        assert info.num_ack_pending == 3


def test_what_is_left_is_saved(headrace: Run, place: Path, tmp_path: Path) -> None:
    damage(place)
    done = headrace("store", "export", str(place), "--to", str(tmp_path / "out"), "--form", "jsonl")
    assert done.status == 1
    lines = (tmp_path / "out" / "ORDERS.jsonl").read_text().splitlines()
    messages = [json.loads(line) for line in lines]
    assert [message["seq"] for message in messages] == [1, 2, 4, 5, 6, 8, 9, 10]
    assert messages[0]["headers"] == [["N", "1"]]
    assert messages[1]["payload_base64"] == "/zI="


def test_what_is_said_of_mistakes(headrace: Run, place: Path, tmp_path: Path) -> None:
    assert "is not the store of a broker" in headrace("store", "check", str(tmp_path)).err
    assert not list(tmp_path.glob("lock"))
    export = ("store", "export", str(place), "--to", str(tmp_path / "o"), "--stream", "NOPE")
    assert "not all of these streams are there" in headrace(*export).err
    with sync.Broker(store_dir=str(place)):
        assert "is in use by process" in headrace("store", "check", str(place)).err
