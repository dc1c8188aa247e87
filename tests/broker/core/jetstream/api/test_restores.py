"""Backups in: chunks, answers, limits; all of a restore becomes a stream, or nothing of it stays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.core.jetstream import JetStreamOptions
from headrace.broker.core.jetstream.api.receiving import Receiving
from headrace.broker.core.jetstream.engine import restores
from headrace.broker.core.jetstream.engine.restores import Finishing
from headrace.broker.core.options import JetStreamLimits
from headrace.broker.core.ports import StreamStore
from headrace.broker.store import FileStorage
from headrace.errors import StoreFullError
from headrace.snapshots.archive import (
    END,
    MAGIC,
    consumer_entry,
    message_entry,
    state_entry,
)
from headrace.snapshots.contents import ConsumerState, Delivery
from headrace.snapshots.framing import IDENTIFIER, frame
from jetstream_world import Client, HeldStorage, World

CONFIG: dict[str, Any] = {"name": "S", "subjects": ["s.>"]}
NS = 1_000_000_000
THEN = 1_700_000_000 * NS


def backup(
    messages: int = 5, *, first: int = 1, last: int = 0, consumers: tuple[bytes, ...] = ()
) -> bytes:
    """An archive in one frame; each message is ``(sequence, s.<n>, payload)``."""
    state = {"first_seq": first, "last_seq": last, "consumer_count": len(consumers)}
    entries = [MAGIC, state_entry(state, THEN), *consumers]
    for sequence in range(first, first + messages):
        subject = b"s.%d" % (sequence % 2)
        entries.append(message_entry(sequence, subject, b"", b"m%d" % sequence, THEN + sequence))
    return IDENTIFIER + frame(b"".join([*entries, END]))


def announce(client: Client, config: dict[str, Any] = CONFIG, **state: int) -> dict[str, Any]:
    return client.api(f"STREAM.RESTORE.{config['name']}", {"config": config, "state": state})


def send(client: Client, deliver: str, data: bytes, size: int = 100) -> list[bytes]:
    """Send chunks as requests; the answers that are not empty."""
    told = []
    for at in range(0, len(data), size):
        inbox = client.request(deliver.encode(), data[at : at + size])
        client.world.settle()
        told += [message.payload or message.headers for message in inbox.take()]
    return [answer for answer in told if answer]


def finish(client: Client, deliver: str) -> dict[str, Any]:
    inbox = client.request(deliver.encode(), b"")
    client.world.settle()
    answers = inbox.take()
    assert len(answers) == 1, answers
    found: dict[str, Any] = json.loads(answers[0].payload)
    return found


def restore(
    client: Client, data: bytes, config: dict[str, Any] = CONFIG, **state: int
) -> dict[str, Any]:
    answer = announce(client, config, **state)
    assert "error" not in answer, answer
    told = send(client, answer["deliver_subject"], data)
    if told:
        found: dict[str, Any] = json.loads(told[0])
        return found
    return finish(client, answer["deliver_subject"])


def names(client: Client) -> list[str]:
    return client.api("STREAM.NAMES")["streams"] or []


def nothing_stays(client: Client) -> None:
    """The name is free again, and the store holds nothing of it."""
    client.world.settle()
    assert names(client) == []
    assert client.world.storage.streams() == []
    assert not [key for key in client.world.storage.meta.load() if "S" in key]
    assert client.stream()["did_create"]


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[World]:
    world = World(FileStorage(tmp_path, threaded=False))
    yield world
    world.storage.close()


def reopen(world: World, tmp_path: Path) -> Client:
    world.restart(lambda: FileStorage(tmp_path, threaded=False))
    return world.client()


def lives(client: Client, tmp_path: Path) -> Iterator[Client]:
    """The client, and then one of the broker after a restart."""
    yield client
    yield reopen(client.world, tmp_path)


def test_a_stream_is_restored_with_its_sequences_and_times(on_disk: World, tmp_path: Path) -> None:
    client = on_disk.client()
    answer = restore(client, backup(5, first=11, last=20))
    assert answer["type"] == "io.nats.jetstream.api.v1.stream_create_response"
    assert answer["config"]["subjects"] == ["s.>"]
    for life in lives(client, tmp_path):
        state = life.api("STREAM.INFO.S")["state"]
        assert (state["messages"], state["first_seq"], state["last_seq"]) == (5, 11, 20)
        assert state["first_ts"] == "2023-11-14T22:13:20.000000011Z"
    assert life.put(b"s.new")["seq"] == 21


@pytest.mark.parametrize("fuller", [3, 0, -2])
def test_a_mirror_goes_on_with_its_origin_restored_if_that_has_all_of_it(fuller: int) -> None:
    client = World().client()
    restore(client, backup(5))
    client.api("STREAM.CREATE.T", {"name": "T", "mirror": {"name": "S"}})
    client.world.settle()
    client.api("STREAM.DELETE.S")
    client.world.clock.advance(1)
    restore(client, backup(5 + fuller))
    client.put(b"s.0", b"later")
    client.world.settle()
    info = client.api("STREAM.INFO.T")
    assert ("error" in info["mirror"]) == (fuller < 0)
    assert info["state"]["messages"] == (6 + fuller if fuller >= 0 else 5)


def test_gaps_stay_gaps(on_disk: World, tmp_path: Path) -> None:
    entries = [MAGIC, state_entry({"first_seq": 3, "last_seq": 20_000}, THEN)]
    entries += [
        message_entry(sequence, b"s.1", b"", b"%d" % sequence, THEN + sequence)
        for sequence in (3, 4, 9, 10_000, 10_002)
    ]
    data = IDENTIFIER + frame(b"".join([*entries, END]))
    client = on_disk.client()
    assert "error" not in restore(client, data)
    for life in lives(client, tmp_path):
        store = life.world.streams["S"].store
        held = [row[0] for row in store.rows(1, None, 100, 1 << 20, store.last_seq)]
        assert held == [3, 4, 9, 10_000, 10_002]
        assert store.last_seq == 20_000


def making(world: World) -> StreamStore | None:
    assert world.hub.engine is not None
    return world.hub.engine.registry.making["S"][1]


@pytest.mark.parametrize("gap", [400, 4000])
def test_large_gaps_take_turns(gap: int, monkeypatch: pytest.MonkeyPatch) -> None:
    client = World().client()
    entries = [MAGIC, state_entry({"first_seq": 1, "last_seq": 0}, THEN)]
    entries += [message_entry(1 + gap * n, b"s.1", b"", b"x", THEN) for n in range(50)]
    deliver = announce(client)["deliver_subject"]
    store = making(client.world)
    assert store is not None
    turns: list[int] = []
    turn = Receiving.turn

    def counting(self: Receiving) -> None:
        before = store.last_seq
        turn(self)
        turns.append(store.last_seq - before)

    monkeypatch.setattr(Receiving, "turn", counting)
    assert send(client, deliver, IDENTIFIER + frame(b"".join([*entries, END])), 5000) == []
    assert "error" not in finish(client, deliver)
    assert sum(turns) == 49 * gap + 1
    assert max(turns) <= 8 * (500 + 500)
    assert client.api("STREAM.INFO.S")["state"]["num_deleted"] == 49 * (gap - 1)


def consumer(name: str = "C", state: ConsumerState | None = None, **config: Any) -> bytes:
    document = {"name": name, "durable_name": name, "ack_policy": "explicit", **config}
    return consumer_entry(name, document, state or ConsumerState(), THEN)


STATE = ConsumerState((4, 4), (1, 1), {2: Delivery(2, 0), 4: Delivery(4, 0)}, {2: 3})


def test_consumers_go_on(on_disk: World, tmp_path: Path) -> None:
    client = on_disk.client()
    now_ns = on_disk.clock.now_ns()
    pending = {2: Delivery(2, now_ns), 4: Delivery(4, now_ns - 20 * NS)}
    state = ConsumerState((4, 4), (1, 1), pending, {2: 3})
    data = backup(6, consumers=(consumer(state=state, ack_wait=30 * NS),))
    assert "error" not in restore(client, data)
    for life in lives(client, tmp_path):
        info = life.info()
        assert info["delivered"]["stream_seq"] == info["delivered"]["consumer_seq"] == 4
        assert info["ack_floor"]["stream_seq"] == 1
        assert (info["num_ack_pending"], info["num_redelivered"]) == (2, 1)
        assert info["num_pending"] == 2
    inbox = life.pull({"batch": 10, "expires": 60 * NS})
    assert [message.stream_seq for message in inbox.take()] == [5, 6]
    on_disk.advance(11)
    assert [message.tokens[:2] for message in inbox.take()] == [(2, 4)]
    on_disk.advance(20)
    assert (5, 2) in [message.tokens[:2] for message in inbox.take()]


def test_deliveries_of_messages_that_are_not_there_are_over() -> None:
    client = World().client()
    pending = {sequence: Delivery(sequence - 1, 0) for sequence in (2, 3)}
    state = ConsumerState((4, 9), (0, 0), pending)
    data = backup(3, first=3, last=9, consumers=(consumer(state=state),))
    assert "error" not in restore(client, data)
    info = client.info()
    assert info["num_ack_pending"] == 1
    assert info["ack_floor"]["stream_seq"] == 2


def test_messages_that_expire_do(on_disk: World) -> None:
    client = on_disk.client()
    now_ns = on_disk.clock.now_ns()
    ttl = b"NATS/1.0\r\nNats-TTL: 10\r\n\r\n"
    entries = [MAGIC, state_entry({"first_seq": 1, "last_seq": 3}, THEN)]
    entries.append(message_entry(1, b"s.1", ttl, b"gone", now_ns - 20 * NS))
    entries.append(message_entry(2, b"s.1", ttl, b"soon", now_ns))
    entries.append(message_entry(3, b"s.1", b"", b"stays", now_ns))
    data = IDENTIFIER + frame(b"".join([*entries, END]))
    assert "error" not in restore(client, data, {**CONFIG, "allow_msg_ttl": True})
    assert client.api("STREAM.INFO.S")["state"]["first_seq"] == 2
    on_disk.advance(11)
    assert client.api("STREAM.INFO.S")["state"]["first_seq"] == 3


def test_limits_of_another_configuration_are_met() -> None:
    client = World().client()
    limits = {**CONFIG, "max_msgs_per_subject": 1, "max_msgs": 10}
    assert "error" not in restore(client, backup(500), limits)
    state = client.api("STREAM.INFO.S")["state"]
    assert (state["messages"], state["first_seq"]) == (2, 499)


@pytest.mark.parametrize("retention", ["limits", "workqueue"])
def test_a_stream_that_refuses_new_messages_is_restored_with_more_than_fits(retention: str) -> None:
    client = World().client()
    limits = {**CONFIG, "retention": retention, "discard": "new", "max_msgs": 5}
    assert "error" not in restore(client, backup(20), limits)
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 20


DAMAGED = {
    "cut off": backup(50)[:-20],
    "a wrong checksum": backup(50)[:-10] + b"\0" + backup(50)[-9:],
    "no end": IDENTIFIER + frame(MAGIC + state_entry({"first_seq": 1, "last_seq": 0}, THEN)),
    "something else": b"PK\x03\x04" + bytes(200),
    "a tar of nothing": IDENTIFIER + frame(bytes(1024)),
    "messages in disorder": IDENTIFIER
    + frame(
        MAGIC
        + state_entry({"first_seq": 1, "last_seq": 0}, THEN)
        + message_entry(2, b"s.1", b"", b"", THEN)
        + message_entry(1, b"s.1", b"", b"", THEN)
        + END
    ),
    "a state that cannot be": backup(5, consumers=(consumer(state=ConsumerState((1, 1), (2, 2))),)),
    "a consumer that cannot be": backup(
        5, consumers=(consumer(state=STATE, max_waiting=-5, ack_wait=-1),)
    ),
    "a consumer's wrong name": backup(5, consumers=(consumer("a.b"),)),
    "a message too large": IDENTIFIER
    + frame(
        MAGIC
        + state_entry({"first_seq": 1, "last_seq": 0}, THEN)
        + message_entry(1, b"s.1", b"", bytes(2000), THEN)
        + END
    ),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_of_what_is_damaged_nothing_stays(what: str, on_disk: World) -> None:
    client = on_disk.client()
    events = client.subscribe(b"$JS.EVENT.ADVISORY.STREAM.RESTORE_*.S".replace(b"_*", b"_COMPLETE"))
    answer = restore(client, DAMAGED[what], {**CONFIG, "max_msg_size": 1000})
    assert answer["error"]["err_code"] in (10062, 10183, 10012, 10052), answer
    assert len(events.take()) == 1
    nothing_stays(client)


def test_who_goes_on_sending_learns_why_that_is_of_no_use() -> None:
    client = World().client()
    deliver = announce(client)["deliver_subject"]
    told = send(client, deliver, bytes(300), size=100)
    assert [json.loads(answer)["error"]["err_code"] for answer in told] == [10062] * 3
    client.world.advance(6)
    assert b"503" in client.request(deliver.encode(), b"x").take()[0].headers


def test_a_restore_that_stalls_is_given_up(on_disk: World) -> None:
    client = on_disk.client()
    deliver = announce(client)["deliver_subject"]
    assert send(client, deliver, backup(2000)[:20_000], size=5_000) == []
    on_disk.advance(4.9)
    assert on_disk.storage.streams() == ["S"]
    on_disk.advance(0.2)
    nothing_stays(client)


def test_of_a_restore_that_a_crash_cuts_off_nothing_stays(on_disk: World, tmp_path: Path) -> None:
    client = on_disk.client()
    deliver = announce(client)["deliver_subject"]
    assert send(client, deliver, backup(2000)[:20_000], size=5_000) == []
    assert names(client) == []
    client = reopen(on_disk, tmp_path)
    assert [finding.what for finding in on_disk.storage.report] == [
        "a restore was cut off: nothing of it is kept"
    ]
    nothing_stays(client)


def test_its_name_and_subjects_are_reserved_when_it_is_there() -> None:
    client = World().client()
    deliver = announce(client)["deliver_subject"]
    assert announce(client)["error"]["err_code"] == 10130
    assert client.stream()["error"]["err_code"] == 10049  # its messages are coming
    other = client.stream("T", subjects=["s.1"])
    assert other["did_create"]
    assert send(client, deliver, backup()) == []
    assert finish(client, deliver)["error"]["err_code"] == 10065
    client.api("STREAM.DELETE.T")
    nothing_stays(client)


def test_refusals_before_a_chunk_comes() -> None:
    client = World().client()
    client.stream()
    assert announce(client)["error"]["err_code"] == 10130
    overlapping = {"name": "T", "subjects": ["s.1"]}
    assert announce(client, overlapping)["error"]["err_code"] == 10065
    assert announce(client, {"name": "T", "retention": "x"})["error"]["err_code"] == 10025
    wrong = client.api("STREAM.RESTORE.T", {"config": CONFIG})
    assert wrong["error"]["err_code"] == 10056
    assert wrong["deliver_subject"] == ""


def test_nobody_is_told_before_the_disk_has_it() -> None:
    storage = HeldStorage()
    client = World(storage).client()
    storage.hold = True
    inbox = client.request(b"$JS.API.STREAM.RESTORE.S", json.dumps({"config": CONFIG}).encode())
    assert inbox.take() == []
    while storage.held:
        assert inbox.take() == []
        storage.release()
        client.world.tick()
    deliver = json.loads(inbox.take()[0].payload)["deliver_subject"]
    storage.hold = False
    assert send(client, deliver, backup()) == []
    storage.hold = True
    last = client.request(deliver.encode(), b"")
    client.world.settle()
    while storage.held:
        assert last.take() == []
        storage.release()
        client.world.tick()
        client.world.settle()
    assert "error" not in json.loads(last.take()[0].payload)


def test_a_flush_that_fails_takes_it_back() -> None:
    storage = HeldStorage()
    client = World(storage).client()
    deliver = announce(client)["deliver_subject"]
    storage.hold, storage.fail = True, StoreFullError("no space left")
    inbox = client.request(deliver.encode(), backup())
    client.world.settle()
    while storage.held:
        storage.release()
        client.world.settle()
    storage.hold, storage.fail = False, None
    told = [*inbox.take(), *client.request(deliver.encode(), b"").take()]
    assert [json.loads(m.payload)["error"]["err_code"] for m in told if m.payload] == [10062]
    assert names(client) == []
    assert storage.streams() == []


def test_the_room_of_an_account() -> None:
    options = JetStreamOptions(limits=JetStreamLimits(max_memory=10_000))
    client = World().client()
    assert client.world.hub.engine is not None
    client.world.hub.engine.reconfigure(options)
    answer = restore(client, backup(1000), {**CONFIG, "storage": "memory"})
    assert answer["error"]["err_code"] in (10002, 10028)
    nothing_stays(client)


def test_a_client_that_does_not_wait_is_paused() -> None:
    client = World().client()
    deliver = announce(client)["deliver_subject"]
    data = IDENTIFIER + frame(bytes(1 << 20)) * 12
    commands = b"".join(
        b"PUB %b r %d\r\n%b\r\n" % (deliver.encode(), len(chunk), chunk)
        for chunk in (data[at : at + (1 << 20)] for at in range(0, len(data), 1 << 20))
    )
    client.session.receive(commands + b"PING\r\n")
    assert client.session.holds_input
    client.world.settle()
    assert not client.session.holds_input


def consumers(count: int, **config: Any) -> tuple[bytes, ...]:
    """Pull consumers ``C0`` and so on, of a subject each."""
    every = {"ack_policy": "explicit", "deliver_policy": "all", **config}
    return tuple(
        consumer_entry(
            f"C{number}",
            {"filter_subject": f"s.{number}", **every, "durable_name": f"C{number}"},
            ConsumerState(),
            THEN,
        )
        for number in range(count)
    )


@pytest.mark.parametrize(
    ("config", "held", "code"),
    [
        ({"max_consumers": 2}, consumers(3), 10026),
        ({}, consumers(1) * 2, 10062),
        ({"retention": "workqueue"}, consumers(2, filter_subject="s.>"), 10100),
        ({"retention": "workqueue"}, consumers(1, ack_policy="none"), 10084),
    ],
    ids=["too many", "one twice", "two of one message", "without acks"],
)
def test_consumers_that_could_not_be_made_are_not_restored(
    config: dict[str, Any], held: tuple[bytes, ...], code: int
) -> None:
    client = World().client()
    answer = restore(client, backup(consumers=held), {**CONFIG, **config})
    assert answer["error"]["err_code"] == code, answer
    nothing_stays(client)


def test_many_consumers_are_made_in_slices_and_all_of_it_is_shown_at_once(
    on_disk: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = 40
    shown: list[bool] = []
    turn = Finishing.turn

    def seen(finishing: Finishing) -> None:
        turn(finishing)
        shown.append("S" in on_disk.streams)

    monkeypatch.setattr(Finishing, "turn", seen)
    monkeypatch.setattr(restores, "_SLICE_NS", 0)
    client = on_disk.client()
    answer = restore(client, backup(consumers=consumers(many)))
    assert "error" not in answer, answer
    assert shown == [False] * many + [True]
    for life in lives(client, tmp_path):
        assert life.api("CONSUMER.NAMES.S", {})["total"] == many
        assert life.api("STREAM.INFO.S")["state"]["consumer_count"] == many


def test_a_subject_that_was_taken_meanwhile_takes_consumers_back_too(
    on_disk: World, tmp_path: Path
) -> None:
    client = on_disk.client()
    data = backup(consumers=consumers(3))
    answer = announce(client)
    assert not send(client, answer["deliver_subject"], data)
    client.stream("T", subjects=["s.0"])
    assert finish(client, answer["deliver_subject"])["error"]["err_code"] == 10065
    for life in lives(client, tmp_path):
        assert names(life) == ["T"]
        assert not [key for key in life.world.storage.meta.load() if "/S" in key]
