"""What is pending is counted exactly, whatever leaves the stream, and without a look at every subject."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from headrace.broker.core.jetstream.consumer.consumer import Consumer
from headrace.broker.store.index.views import Matching
from headrace.broker.store.log.memory_log import MemoryLog
from headrace.message import StoredRow
from jetstream_world import Client, Received, World

PARTITIONS = 4
KEYS = 50


def consumers(client: Client) -> list[Consumer]:
    return list(client.world.streams["S"].consumers.values())


def brute(consumer: Consumer) -> int:
    """Matching messages from its position on, one by one."""
    store = consumer.stream.store
    rows = store.rows(consumer.state.next_seq, None, 1 << 20, 1 << 30, store.last_seq)
    return sum(consumer.wants(row[1]) for row in rows)


def put(client: Client, partition: int, key: int) -> None:
    client.publish(b"s.%d.k%d" % (partition, key))


STREAMS: list[dict[str, Any]] = [
    {"retention": "workqueue"},
    {"retention": "workqueue", "discard": "new", "max_msgs": 9},
    {"retention": "workqueue", "max_msgs": 9},
    {"retention": "interest"},
    {"retention": "limits", "max_msgs": 9},
    {"retention": "limits", "max_msgs_per_subject": 2},
]


@pytest.mark.parametrize("config", STREAMS, ids=str)
def test_what_is_pending_is_exact_after_everything(config: dict[str, Any]) -> None:
    chance = random.Random(f"{config}")
    client = World().client()
    client.stream(**config)
    for number in range(PARTITIONS // 2):
        client.consumer(f"C{number}", filter_subjects=[f"s.{number}.>", f"s.{number + 2}.>"])
    taken: list[Received] = []
    for _ in range(600):
        act = chance.random()
        if act < 0.4:
            put(client, chance.randrange(PARTITIONS), chance.randrange(KEYS))
        elif act < 0.65:
            body = {"batch": chance.choice([1, 1, 3]), "no_wait": True}
            got = client.pull(body, f"C{chance.randrange(PARTITIONS // 2)}").take()
            taken += [message for message in got if message.reply]
        elif act < 0.97 and taken:
            client.ack(taken.pop(chance.randrange(len(taken))), chance.choice([b"", b"", b"-NAK"]))
        elif act > 0.99:
            filter = f"s.{chance.randrange(PARTITIONS)}.>"
            client.api("STREAM.PURGE.S", {"filter": filter, "keep": 1})
        elif act > 0.985:
            first = client.world.streams["S"].store.first_seq
            client.api("STREAM.MSG.DELETE.S", {"seq": first + chance.randrange(4)})
        for consumer in consumers(client):
            assert consumer.num_pending() == brute(consumer)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What the store is asked: positions to look at, counts by subject, counts from a sequence on."""
    asked: list[tuple[str, int]] = []

    def note(owner: type, method: str, size: Callable[..., int]) -> None:
        real = getattr(owner, method)

        def noted(self: Any, *args: Any) -> Any:
            asked.append((method, size(*args)))
            return real(self, *args)

        monkeypatch.setattr(owner, method, noted)

    note(Matching, "positions", lambda segment, start, stop: stop - start)
    note(Matching, "matched", lambda segment, start, stop: stop - start)
    note(Matching, "live_in", lambda segment: 1)
    note(MemoryLog, "count", lambda filter, start: start)
    return asked


def test_new_messages_are_counted_alone_however_many_others_left(
    counted: list[tuple[str, int]],
) -> None:
    """One member holds the head of the queue while the other goes on."""
    client = World().client()
    client.stream(retention="workqueue")
    inboxes = []
    for number in range(2):
        filters = [f"s.{number}.>", f"s.{number + 2}.>"]
        client.consumer(f"C{number}", filter_subjects=filters)
        inboxes.append(client.pull({"batch": 1000, "expires": 600 * 10**9}, f"C{number}"))
    put(client, 1, 0)
    for key in range(340):
        if key == 300:
            counted.clear()
        put(client, 0, key)
        (message,) = inboxes[0].take()
        assert message.tokens[3] == 0
        client.ack(message)
    assert [start for name, start in counted if name == "count"] == [*range(302, 342)]
    assert all(name != "live_in" for name, _ in counted)
    assert sum(size for name, size in counted if name == "matched") <= 80


def test_one_message_is_not_looked_for_among_thousands(counted: list[tuple[str, int]]) -> None:
    client = World().client()
    client.stream()
    client.consumer(filter_subjects=["s.0.>", "s.2.>"], max_ack_pending=1)
    for key in range(2000):
        put(client, key % PARTITIONS, key)
    inbox = client.pull({"batch": 1000, "expires": 600 * 10**9})
    client.ack(inbox.take()[0])
    counted.clear()
    for _ in range(20):
        (message,) = inbox.take()
        client.ack(message)
    assert message.stream_seq == 41
    assert sum(size for name, size in counted if name == "positions") < 20 * 100


def reads_of(client: Client, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """From which sequence the store is read, from here on."""
    begun: list[int] = []
    store = client.world.streams["S"].store
    original = store.rows

    def rows(start_seq: int, *rest: Any) -> Any:
        begun.append(start_seq)
        return original(start_seq, *rest)

    monkeypatch.setattr(store, "rows", rows)
    return begun


def test_one_reads_for_all_that_have_come_as_far(monkeypatch: pytest.MonkeyPatch) -> None:
    client = World().client()
    client.stream()
    inboxes = []
    for name in ("A", "B", "C"):
        client.consumer(name)
        inboxes.append(client.pull(b"100", name))
    client.consumer("D", filter_subject="s.b")
    inboxes.append(client.pull(b"100", "D"))
    begun = reads_of(client, monkeypatch)
    client.session.receive(b"PUB s.a 1\r\n1\r\nPUB s.b 1\r\n2\r\n")
    client.world.tick()
    got = [[message.payload for message in inbox.messages] for inbox in inboxes]
    assert got == [[b"1", b"2"], [b"1", b"2"], [b"1", b"2"], [b"2"]]
    assert begun == [1, 1]


def test_what_was_read_for_all_is_read_anew_once_some_of_it_is_gone() -> None:
    client = World().client()
    client.stream()
    client.consumer()
    client.publish(b"s.a", b"1")
    client.publish(b"s.a", b"2")
    stream = client.world.streams["S"]
    reads = consumers(client)[0].backlog._reads

    def read() -> list[StoredRow]:
        return reads.rows(stream, 1, None, 9, 99)

    with reads:
        assert [row[0] for row in read()] == [1, 2]
        assert read() is read()
        stream.store.remove([1])
        assert [row[0] for row in read()] == [2]
    assert read() is not read()
