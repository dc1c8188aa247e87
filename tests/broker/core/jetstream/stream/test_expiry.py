"""Messages that expire by themselves, what stays of a subject, and that none of it comes back."""

from __future__ import annotations

import json
import random
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disks import disk_of
from faultfs import FaultFS
from headrace.broker.core.jetstream.headers import NEVER, expires_at, is_marker, read_ttl, with_ttl
from headrace.broker.core.jetstream.stream.expiry import Expiry, Reminders
from headrace.broker.core.jetstream.tick.due_times import DueTimes
from headrace.broker.store import FileStorage
from headrace.broker.store.log.memory_log import MemoryLog
from jetstream_world import Client, World

SECOND = 1_000_000_000


def file_storage(fs: FaultFS) -> FileStorage:
    return FileStorage("/s", fs=fs, threaded=False, salts=random.Random(1))


def subjects(client: Client, name: str = "S") -> dict[str, int]:
    info = client.api(f"STREAM.INFO.{name}", {"subjects_filter": ">"})
    found: dict[str, int] = info["state"].get("subjects", {})
    return found


@pytest.fixture
def client() -> Client:
    client = World().client()
    client.stream(allow_msg_ttl=True)
    return client


# -- the header


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"5", 5),
        (b"1m30s", 90),
        (b"1.9s", 1),
        (b"never", NEVER),
        (b"Never", NEVER),
        (b"0", None),
        (b"999ms", None),
        (b"-3", None),
        (b"x", None),
        (b"\xff", None),
    ],
)
def test_a_ttl_is_whole_seconds_a_duration_or_never(value: bytes, seconds: int | None) -> None:
    assert read_ttl(value) == seconds


@given(st.integers(1, 10**9), st.integers(0, 2 * 10**18))
def test_a_ttl_counts_from_when_the_message_was_stored(seconds: int, stamp: int) -> None:
    block = b"NATS/1.0\r\nA: b\r\nNats-TTL: 7\r\n\r\n"
    assert expires_at(with_ttl(block, seconds), stamp) == stamp + seconds * SECOND
    assert expires_at(b"NATS/1.0\r\nA: b\r\n\r\n", stamp) == 0


def test_markers_are_known_by_their_headers() -> None:
    assert is_marker(b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\n\r\n")
    assert is_marker(b"NATS/1.0\r\nKV-Operation: PURGE\r\n\r\n")
    assert not is_marker(b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n")


# -- due times


@given(st.lists(st.tuples(st.integers(0, 10**10), st.integers(0, 10**10))))
def test_due_times_give_everything_once_in_time_and_nothing_early(steps: list[Any]) -> None:
    times, waiting, now = DueTimes(), {}, 0
    for number, (time_ns, step) in enumerate(steps):
        times.add(time_ns, number)
        waiting[number] = time_ns
        now += step
        due = times.due(now)
        assert all(waiting.pop(sequence) <= now for sequence in due)
        assert all(time_ns > now - SECOND // 4 for time_ns in waiting.values())
        assert not times or now < times.next_ns()
    assert sorted(times.due(10**12)) == sorted(waiting)


class _Expiring:
    """When each message of a store expires."""

    def __init__(self) -> None:
        self.times: dict[int, int] = {}

    def expires_ns(self, sequence: int) -> int:
        return self.times.get(sequence, 0)


@given(
    st.lists(
        st.tuples(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, 3), st.booleans())
    )
)
def test_reminders_give_what_is_there_once_and_to_the_nanosecond(steps: list[Any]) -> None:
    store = _Expiring()
    reminders, waiting, now = Reminders(store), {}, 1  # type: ignore[arg-type]
    for number, (ahead_ns, step, most, is_gone) in enumerate(steps):
        if not is_gone:
            store.times[number] = waiting[number] = now + ahead_ns
        reminders.add(now + ahead_ns, number)
        now += step
        done, calls = False, 0
        while not done:
            found, done = reminders.due(now, most)
            assert all(waiting.pop(sequence) <= now for sequence in found)
            calls += 1
            assert calls <= 2 * number + 3  # each call gets further
        assert not reminders.may_be_due(now)
        assert all(time_ns > now for time_ns in waiting.values())
        assert not waiting or reminders.next_ns() < min(waiting.values()) + SECOND // 4
    assert sorted(reminders.due(now + 10**10, 1000)[0]) == sorted(waiting)


def test_reminders_of_what_is_gone_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.broker.core.jetstream.tick.due_times._ENTRIES", 10)
    made: list[int] = []
    monkeypatch.setattr(Expiry, "rebuild", _counting(Expiry.rebuild, made))
    client = World().client()
    client.stream(allow_msg_ttl=True, allow_msg_schedules=True, max_msgs_per_subject=1)
    for _ in range(100):
        client.put(b"s.a", Nats_TTL="1h")
        client.put(b"s.b", Nats_Schedule="@every 1h", Nats_Schedule_Target="s.c")
    assert 5 < len(made) < 20
    client.world.advance(3700)
    client = client.world.client()
    assert subjects(client) == {"s.b": 1, "s.c": 1}


def _counting(original: Any, made: list[int]) -> Any:
    def rebuild(self: Expiry) -> None:
        made.append(1)
        original(self)

    return rebuild


def test_reading_does_not_go_through_the_head_again_and_again() -> None:
    client = World().client()
    client.stream(subject_delete_marker_ttl=3 * SECOND, max_age=60 * SECOND)
    for number in range(20):
        client.put(b"s.%d" % number)
    client.world.clock.advance(1)
    client.api("STREAM.MSG.GET.S", {"seq": 1})
    read = MemoryLog.read
    calls: list[int] = []

    def counting(self: MemoryLog, *args: Any) -> Any:
        calls.append(1)
        return read(self, *args)

    MemoryLog.read = counting  # type: ignore[method-assign, assignment]
    try:
        for sequence in range(1, 10):
            client.api("STREAM.MSG.GET.S", {"seq": sequence})
    finally:
        MemoryLog.read = read  # type: ignore[method-assign]
    assert not calls


# -- streams


def test_a_message_is_gone_when_its_time_has_come(client: Client) -> None:
    client.put(b"s.a", Nats_TTL="2")
    client.put(b"s.b", Nats_TTL="1h")
    client.put(b"s.c")
    client.world.advance(1.9)
    assert subjects(client) == {"s.a": 1, "s.b": 1, "s.c": 1}
    client.world.advance(0.4)
    assert subjects(client) == {"s.b": 1, "s.c": 1}


def test_age_counts_from_the_first_message_that_ages_whatever_else_is_due() -> None:
    client = World().client()
    client.stream(allow_msg_ttl=True, max_age=5 * SECOND)
    client.put(b"s.never", Nats_TTL="never")
    client.world.advance(6)
    client.put(b"s.long", Nats_TTL="20")
    client.api("STREAM.PURGE.S", {"filter": "s.long"})
    client.world.advance(6)
    client.put(b"s.plain")
    client.world.advance(5.6)
    assert subjects(client) == {"s.never": 1}


def test_reading_shows_nothing_expired_even_before_the_timer_ran(client: Client) -> None:
    client.put(b"s.a", Nats_TTL="2")
    client.world.clock.advance(2.3)
    assert client.api("STREAM.MSG.GET.S", {"seq": 1})["error"]["err_code"] == 10037


@pytest.mark.parametrize("began", [0, 0.001, 0.13, 0.249])
def test_not_a_moment_after_its_time_is_a_message_read(client: Client, began: float) -> None:
    client.world.clock.advance(began)
    client.put(b"s.a", b"old")
    client.put(b"s.a", b"new", Nats_TTL="2")
    ways: list[tuple[bytes, Any]] = [
        (b"$JS.API.STREAM.MSG.GET.S", {"seq": 2}),
        (b"$JS.API.STREAM.MSG.GET.S", {"last_by_subj": "s.a"}),
        (b"$JS.API.DIRECT.GET.S", {"seq": 2}),
        (b"$JS.API.DIRECT.GET.S", {"last_by_subj": "s.a"}),
        (b"$JS.API.DIRECT.GET.S", {"seq": 1, "batch": 5}),
        (b"$JS.API.DIRECT.GET.S", {"multi_last": ["s.>"]}),
    ]
    client.api("STREAM.UPDATE.S", {**client.api("STREAM.INFO.S")["config"], "allow_direct": True})

    def show(subject: bytes, document: Any) -> bytes:
        answers = client.request(subject, json.dumps(document).encode()).take()
        return b"".join(answer.payload + answer.headers for answer in answers)

    new = (b"new", b64encode(b"new"))
    client.world.clock.advance(1.999_999)
    assert all(any(text in show(*way) for text in new) for way in ways)
    client.world.clock.advance(0.000_001)
    assert not any(any(text in show(*way) for text in new) for way in ways)


@pytest.mark.parametrize("began", [0, 0.001, 0.13, 0.249])
def test_not_a_moment_after_its_time_is_a_message_delivered(client: Client, began: float) -> None:
    client.world.clock.advance(began)
    client.put(b"s.a", b"once", Nats_TTL="2")
    client.put(b"s.a", b"twice", Nats_TTL="2")
    client.put(b"s.a", b"stays")
    client.consumer(ack_wait=30 * SECOND)
    given = client.pull({"batch": 1, "no_wait": True}).take()
    assert [message.payload for message in given] == [b"once"]
    client.publish(given[0].reply, b"-NAK")
    client.world.clock.advance(2)
    given = client.pull({"batch": 5, "no_wait": True}).take()
    assert [message.payload for message in given if not message.status] == [b"stays"]
    assert client.info()["num_pending"] == 0
    assert client.info()["num_ack_pending"] == 1


@pytest.mark.parametrize("kept", ["its TTL", "the age of all", "the age of some"])
def test_however_many_expire_together_none_is_delivered_or_read(
    kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = "headrace.broker.core.jetstream.stream"
    monkeypatch.setattr(f"{room}.expiry._SINGLE_MAX", 3)
    monkeypatch.setattr(f"{room}.expiry._READ", 3)
    monkeypatch.setattr(f"{room}.expiry._READS", 1)
    monkeypatch.setattr(f"{room}.removing.SLICE", 3)
    client = World().client()
    client.stream(
        allow_msg_ttl=True, allow_direct=True, max_age=0 if kept == "its TTL" else 2 * SECOND
    )
    client.consumer("A", max_deliver=5)
    client.consumer("B")
    if kept == "the age of some":
        client.put(b"s.other", Nats_TTL="never")
    headers = {"Nats_TTL": "2"} if kept == "its TTL" else {}
    for number in range(40):
        client.put(b"s.a", b"old%d" % number, **headers)
    given = client.pull({"batch": 20, "no_wait": True}, "A").take()
    for message in given:
        client.publish(message.reply, b"-NAK")
    client.world.clock.advance(1.9)
    client.put(b"s.b", b"young")
    client.world.clock.advance(0.1)
    seen = b""
    # All in one turn, before anything that was put off goes on.
    asked = [
        client.request(b"$JS.API.DIRECT.GET.S", json.dumps(body).encode())
        for body in (
            {"seq": 30},
            {"last_by_subj": "s.a"},
            {"seq": 1, "batch": 50},
            {"multi_last": [">"]},
        )
    ]
    asked += [client.request(b"$JS.API.STREAM.MSG.GET.S", b'{"seq":%d}' % n) for n in range(35, 40)]
    asked += [client.pull({"batch": 50, "no_wait": True}, name) for name in "AB"]
    client.world.settle()
    for inbox in asked:
        for message in inbox.take():
            assert b64encode(b"old")[:3] not in message.payload
            assert b"old" not in message.payload
            seen += message.payload
    assert seen.count(b"young") == 4
    for name in "AB":
        info = client.info(name)
        assert info["num_pending"] == 0
        assert info["num_ack_pending"] == 1 + (kept == "the age of some")
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 1 + (kept == "the age of some")


@pytest.mark.parametrize("kept", ["its TTL", "the age of all"])
@pytest.mark.parametrize("at_once", [100, 3])
def test_not_a_moment_after_its_time_is_a_message_copied(
    kept: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its removal waits for its turn, or is behind with the removal of many."""
    room = "headrace.broker.core.jetstream.stream"
    monkeypatch.setattr(f"{room}.expiry._SINGLE_MAX", at_once)
    monkeypatch.setattr(f"{room}.removing.SLICE", at_once)
    client = World().client()
    client.stream(allow_msg_ttl=True, max_age=0 if kept == "its TTL" else 2 * SECOND)
    headers = {"Nats_TTL": "2"} if kept == "its TTL" else {}
    for number in range(40):
        client.put(b"s.a", b"old%d" % number, **headers)
    client.world.clock.advance(1.9)
    client.put(b"s.b", b"young")
    client.world.clock.advance(0.1)
    for name, how in (("T", {"mirror": {"name": "S"}}), ("U", {"sources": [{"name": "S"}]})):
        client.send(
            b"PUB $JS.API.STREAM.CREATE.%b %d\r\n%b\r\n"
            % (name.encode(), len(body := json.dumps({"name": name, **how}).encode()), body)
        )
    client.world.settle()
    for name in "TU":
        state = client.api(f"STREAM.INFO.{name}")["state"]
        assert (state["messages"], state["num_subjects"]) == (1, 1), name
        last = client.api(f"STREAM.MSG.GET.{name}", {"seq": state["last_seq"]})["message"]
        assert last["subject"] == "s.b"


def test_the_marker_is_there_at_the_moment_a_message_expires() -> None:
    client = World().client()
    client.stream(subject_delete_marker_ttl=3 * SECOND, allow_msg_ttl=True)
    client.world.clock.advance(0.1)
    client.put(b"s.a", b"x", Nats_TTL="3")
    client.world.clock.advance(3)
    assert client.api("STREAM.MSG.GET.S", {"last_by_subj": "s.a"})["message"]["seq"] == 2


def test_a_delivery_of_an_expired_message_is_over(client: Client) -> None:
    client.put(b"s.a", Nats_TTL="2")
    client.consumer(ack_wait=SECOND)
    assert client.pull(b"1").take()
    client.world.advance(3)
    assert client.info()["num_ack_pending"] == 0
    assert client.info()["num_pending"] == 0


def test_a_message_that_never_expires_does_not_wake_the_timer_all_the_time() -> None:
    world = World()
    client = world.client()
    client.stream(allow_msg_ttl=True, max_age=2 * SECOND)
    client.put(b"s.a", Nats_TTL="never")
    for _ in range(5):
        client.put(b"s.b")
    world.advance(10)
    assert subjects(client) == {"s.a": 1}
    assert world.hub.next_deadline_ns() is None or (
        (world.hub.next_deadline_ns() or 0) > world.clock.monotonic_ns() + 60 * SECOND
    )
    client.put(b"s.c")
    world.advance(3)
    assert subjects(client) == {"s.a": 1}


def test_the_marker_is_delivered_like_any_message() -> None:
    client = World().client()
    client.stream(subject_delete_marker_ttl=3 * SECOND)
    client.consumer()
    client.put(b"s.a", b"x", Nats_TTL="3")
    client.world.advance(3.3)
    _, marker = client.pull({"batch": 5, "no_wait": True}).take()[-2:]
    assert marker.status.startswith("404") or marker.header["Nats-Marker-Reason"] == "MaxAge"
    stored = client.api("STREAM.MSG.GET.S", {"last_by_subj": "s.a"})["message"]
    assert stored["seq"] == 2
    client.world.advance(3.3)
    assert subjects(client) == {}


def test_an_update_cannot_take_back_that_messages_expire(client: Client) -> None:
    error = client.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"]})["error"]
    assert (error["err_code"], error["description"]) == (
        10052,
        "message TTL status can not be disabled",
    )


# -- restarts and failures


@pytest.mark.parametrize("clean", [True, False])
def test_what_expired_does_not_come_back_and_the_rest_still_expires(clean: bool) -> None:
    world = World(file_storage(FaultFS()))
    client = world.client()
    client.stream(allow_msg_ttl=True, max_age=60 * SECOND)
    client.put(b"s.soon", Nats_TTL="1")
    client.put(b"s.later", Nats_TTL="10")
    client.put(b"s.never", Nats_TTL="never")
    client.put(b"s.meanwhile", Nats_TTL="4")
    world.advance(2)

    def reopen() -> FileStorage:
        old = world.storage
        assert isinstance(old, FileStorage)
        world.clock.advance(4)
        return file_storage(disk_of(old).kill())

    world.restart(reopen) if clean else kill(world, reopen)
    client = world.client()
    assert subjects(client) == {"s.later": 1, "s.never": 1}
    world.advance(5)
    assert subjects(client) == {"s.never": 1}
    world.advance(100)
    assert subjects(client) == {"s.never": 1}


def kill(world: World, reopen: Any) -> None:
    """As ``restart``, but nothing is closed in order."""
    world.storage = reopen()
    world.clients.clear()
    world._start()


def test_what_a_failed_flush_brought_back_expires_again() -> None:
    fs = FaultFS()
    world = World(file_storage(fs))
    client = world.client()
    client.stream(allow_msg_ttl=True)
    client.put(b"s.a", Nats_TTL="1")
    fs.capacity = 1
    world.advance(3)
    assert subjects(client) == {}  # reading removes it, though that can not be written
    fs.capacity = None
    world.advance(3)
    assert subjects(client) == {}
    kill(world, lambda: file_storage(fs.kill()))
    assert subjects(world.client()) == {}
