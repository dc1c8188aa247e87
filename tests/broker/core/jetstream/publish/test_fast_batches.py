"""Fast batches: acknowledged many at a time, and never before they are on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.jetstream.publish import fast_batches
from headrace.broker.store import FileStorage
from headrace.errors import StoreFailedError, StoreFullError
from jetstream_world import Client, HeldStorage, Inbox, World, publication

START, APPEND, COMMIT, END, PING = range(5)

RELAXED = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
"""As clients usually connect; only then chunks are taken as a whole."""


class Publisher:
    """Speaks as the publisher of one batch."""

    def __init__(
        self, client: Client, batch: str = "one", *, flow: int = 10, gap: str = "fail"
    ) -> None:
        self.client = client
        client.send(RELAXED)
        self.inbox: Inbox = client.subscribe(b"I.%b.>" % batch.encode())
        self._reply = f"I.{batch}.{flow}.{gap}"

    def reply(self, place: int, operation: int) -> bytes:
        return f"{self._reply}.{place}.{operation}.$FI".encode()

    def send(
        self, place: int, operation: int = APPEND, payload: bytes = b"x", **headers: str
    ) -> list[dict[str, Any]]:
        self.client.publish(b"s.a", payload, self.reply(place, operation), **headers)
        return self.take()

    def send_together(self, *places: int) -> list[dict[str, Any]]:
        """In one chunk, so in one tick."""
        parts = [publication(b"s.a", b"x", self.reply(place, APPEND)) for place in places]
        self.client.send(b"".join(parts))
        return self.take()

    def begin(self) -> None:
        assert self.send(1, START)[0]["type"] == "ack"

    def take(self) -> list[dict[str, Any]]:
        return [json.loads(answer.payload) for answer in self.inbox.take()]


def ack(seq: int, msgs: int) -> dict[str, Any]:
    return {"type": "ack", "seq": seq, "msgs": msgs}


def total(count: int, seq: int, batch: str = "one") -> dict[str, Any]:
    return {"stream": "S", "seq": seq, "batch": batch, "count": count}


def errors(answers: list[dict[str, Any]]) -> list[int]:
    return [answer["error"]["err_code"] for answer in answers if "error" in answer]


def held() -> tuple[World, HeldStorage, Client]:
    storage = HeldStorage()
    world = World(storage)
    client = world.client()
    client.stream(allow_batched=True)
    return world, storage, client


@pytest.fixture
def client() -> Client:
    client = World().client()
    client.stream(allow_batched=True)
    return client


def test_one_acknowledgement_speaks_for_many_messages(client: Client) -> None:
    publisher = Publisher(client, flow=100)
    assert publisher.send(1, START) == [ack(0, 100)]
    assert publisher.send_together(*range(2, 350)) == [ack(300, 100)]
    assert publisher.send(350, COMMIT) == [total(350, 350)]
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 350


def test_nothing_is_acknowledged_before_it_is_on_disk() -> None:
    world, storage, client = held()
    publisher = Publisher(client, flow=2)
    publisher.begin()
    storage.hold = True
    assert publisher.send_together(2, 3, 4) == []
    assert publisher.send_together(5, 6) == []  # staged while the flush is under way
    assert publisher.send(6, PING) == [ack(0, 2)]
    storage.release()
    world.tick()
    assert publisher.take() == [ack(4, 2)]
    assert publisher.send(7, COMMIT) == []
    for _ in range(2):
        storage.release()
        world.tick()
    assert publisher.take()[-1] == total(7, 7)


def test_a_batch_that_ends_waits_for_the_disk_and_takes_no_more() -> None:
    world, storage, client = held()
    publisher = Publisher(client)
    publisher.begin()
    storage.hold = True
    publisher.send(2)
    assert publisher.send(4) == [{"type": "gap", "last_seq": 3, "seq": 4}]
    assert publisher.send(3) == []
    assert publisher.send(3, PING)[-1] == ack(0, 10)
    storage.release()
    world.tick()
    assert publisher.take() == [total(2, 2)]
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 2


def test_a_failed_flush_ends_the_batch_before_what_was_lost() -> None:
    world, storage, client = held()
    publisher = Publisher(client, flow=2)
    publisher.begin()
    publisher.send(2)
    storage.hold, storage.fail = True, StoreFailedError("the disk broke")
    publisher.send_together(3, 4)
    storage.release()
    world.tick()
    refusal, answer = publisher.take()
    assert (refusal["type"], refusal["seq"]) == ("err", 3)
    assert refusal["error"]["err_code"] == 10077
    assert "the disk broke" in refusal["error"]["description"]
    assert answer == total(2, 2)
    assert errors(publisher.send(5)) == [10208]


def test_an_idle_batch_is_forgotten_and_its_room_free_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_batches, "FAST_BATCHES_PER_STREAM_MAX", 2)
    one, two = Publisher(client), Publisher(client, "two")
    one.begin()
    two.begin()
    assert errors(Publisher(client, "three").send(1, START)) == [10211]
    client.world.advance(8)
    assert one.send(1, PING) == [ack(0, 10)]
    client.world.advance(3)
    assert errors(two.send(2)) == [10208]
    assert one.send(2, COMMIT) == [total(2, 3)]
    Publisher(client, "three").begin()
    Publisher(client, "four").begin()
    client.world.advance(21)
    Publisher(client, "five").begin()


def test_all_streams_together_have_so_many_batches(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_batches, "FAST_BATCHES_MAX", 2)
    client.stream("T", subjects=["t.>"], allow_batched=True)
    publishers = [Publisher(client, name) for name in ("one", "two")]
    for publisher in publishers:
        publisher.begin()
    third = client.subscribe(b"J.>")
    client.publish(b"t.a", b"x", b"J.three.10.fail.1.0.$FI")
    assert json.loads(third.take()[0].payload)["error"]["err_code"] == 10211
    client.api("STREAM.DELETE.S")
    client.publish(b"t.a", b"x", b"J.three.10.fail.1.0.$FI")
    assert json.loads(third.take()[0].payload)["type"] == "ack"


def test_a_slow_disk_is_no_reason_to_forget_a_batch() -> None:
    world, storage, client = held()
    publisher = Publisher(client)
    publisher.begin()
    storage.hold = True
    publisher.send(2)
    world.advance(25)
    assert publisher.send(3, END) == []
    storage.release()
    world.tick()
    assert publisher.take() == [total(2, 2)]


def test_after_a_restart_nobody_knows_a_batch_and_what_was_acknowledged_is_there(
    tmp_path: Path,
) -> None:
    world = World(FileStorage(tmp_path, threaded=False))
    client = world.client()
    client.stream(allow_batched=True, storage="file")
    publisher = Publisher(client, flow=2)
    publisher.begin()
    publisher.send_together(2, 3, 4)
    world.restart(lambda: FileStorage(tmp_path, threaded=False))
    client = world.client()
    publisher = Publisher(client, flow=2)
    assert errors(publisher.send(4, PING)) == [10208]
    assert errors(publisher.send(5)) == [10208]
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 4
    world.storage.close()


def test_who_shares_a_stream_begins_slowly_and_slows_the_others(client: Client) -> None:
    one, two = Publisher(client, flow=500), Publisher(client, "two", flow=500)
    assert one.send(1, START) == [ack(0, 500)]
    assert two.send(1, START) == [ack(0, 1), ack(1, 2)]
    assert one.send_together(*range(2, 501)) == [ack(500, 250)]
    two.send(2, END)
    assert one.send_together(*range(501, 751)) == [ack(750, 500)]


def test_ids_seen_before_count_as_stored(client: Client) -> None:
    client.publish(b"s.a", b"x", Nats_Msg_Id="known")
    publisher = Publisher(client, flow=2)
    assert publisher.send(1, START, Nats_Msg_Id="known") == [ack(0, 2)]
    assert publisher.send(2, Nats_Msg_Id="known") == [ack(2, 2)]
    assert publisher.send(3, Nats_Msg_Id="new") == []
    assert publisher.send(4, END) == [total(3, 2)]


def test_a_message_that_is_not_the_usual_goes_between_the_usual_ones(client: Client) -> None:
    publisher = Publisher(client, flow=4)
    publisher.begin()
    publisher.send(2)
    publisher.send(3, X_Kind="odd")
    assert publisher.send(4) == [ack(4, 4)]
    assert publisher.send(5, COMMIT, X_Kind="last") == [total(5, 5)]


def test_other_messages_between_those_of_a_batch_are_acknowledged_each(client: Client) -> None:
    publisher = Publisher(client, flow=2)
    publisher.begin()
    assert json.loads(client.request(b"s.a", b"y").take()[0].payload) == {"stream": "S", "seq": 2}
    assert publisher.send(2) == [ack(2, 2)]
    assert publisher.send(3, END) == [total(2, 3)]


def test_a_percent_sign_in_a_reply_is_a_letter_like_others(client: Client) -> None:
    publisher = Publisher(client, "%d%s%", flow=2)
    publisher.begin()
    assert publisher.send(2) == [ack(2, 2)]


@given(
    gap_ok=st.booleans(),
    flow=st.integers(1, 4),
    steps=st.lists(
        st.tuples(st.integers(-1, 2), st.sampled_from([APPEND, APPEND, APPEND, PING, END, COMMIT])),
        max_size=12,
    ),
)
def test_what_is_answered_is_what_was_stored(
    gap_ok: bool, flow: int, steps: list[tuple[int, int]]
) -> None:
    client = World().client()
    client.stream(allow_batched=True)
    publisher = Publisher(client, flow=flow, gap="ok" if gap_ok else "fail")
    publisher.begin()
    place, stored, over = 1, [1], False
    for move, operation in steps:
        target = max(place + 1 + move if operation != PING else place + move, 1)
        if target == 1 and operation in (APPEND, END):
            continue
        answers = publisher.send(target, operation, payload=b"%d" % target)
        if over:
            if not (target == 1 and operation == COMMIT):
                assert errors(answers) == [10208]
                continue
            break  # another batch of the same name, of one message
        if operation == PING:
            if target > place:
                assert answers[0] == {"type": "gap", "last_seq": place + 1, "seq": target + 1}
                over = not gap_ok
                place = place if over else target
        else:
            missed = target != place + 1
            if missed:
                assert answers[0] == {"type": "gap", "last_seq": place + 1, "seq": target}
            over = operation in (END, COMMIT) or (missed and (not gap_ok or target <= place))
            if not (missed and (not gap_ok or target <= place)):
                place = target - 1 if operation == END else target
                if operation != END:
                    stored.append(target)
        if over:
            assert answers[-1] == total(place, len(stored))
        for answer in answers:
            if answer.get("type") == "ack":
                assert place - flow < answer["seq"] <= place
    messages = client.api("STREAM.INFO.S")["state"]["messages"]
    assert messages >= len(stored)


@given(
    odd=st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from(["other", "ping", "header", "subject"])),
        max_size=3,
    ),
    cut=st.integers(0, 700),
)
def test_a_chunk_is_taken_as_its_messages_one_by_one(odd: list[tuple[int, str]], cut: int) -> None:
    answers = []
    for together in (True, False):
        client = World().client()
        client.stream(allow_batched=True)
        publisher, ordinary = Publisher(client, flow=4), client.subscribe(b"I.ordinary")
        publisher.begin()
        parts: list[bytes] = []
        for place in range(2, 12):
            reply = publisher.reply(place, APPEND)
            for index, kind in odd:
                if index == place - 2 and kind == "other":
                    parts.append(publication(b"s.a", b"y", b"I.ordinary"))
                elif index == place - 2 and kind == "ping":
                    parts.append(b"PING\r\n")
            kinds = {kind for index, kind in odd if index == place - 2}
            headers = {"X_Kind": "odd"} if "header" in kinds else {}
            subject = b"s.b" if "subject" in kinds else b"s.a"
            parts.append(publication(subject, b"x", reply, **headers))
        if together:
            whole = b"".join(parts)
            parts = [part for part in (whole[:cut], whole[cut:]) if part]
        for part in parts:
            client.send(part)
        found = publisher.take()
        assert found[-1]["type"] == "ack"
        total_answer = publisher.send(12, END)
        answers.append((found[-1]["seq"], total_answer, len(ordinary.take())))
    assert answers[0] == answers[1]


def test_a_gap_within_a_chunk_is_seen(client: Client) -> None:
    publisher = Publisher(client)
    publisher.begin()
    assert publisher.send_together(2, 3, 5, 6) == [
        {"type": "gap", "last_seq": 4, "seq": 5},
        total(3, 3),
    ]
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 3


def test_what_a_full_store_leaves_of_a_chunk_ends_the_batch(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = Publisher(client)
    publisher.begin()
    engine = client.world.hub.accounts.default.engine
    assert engine is not None
    stream = engine.registry.streams["S"]
    append_many = stream.store.append_many

    def fill(
        subjects: list[bytes], payloads: list[bytes], timestamp_ns: int, blocks: object
    ) -> None:
        assert not blocks
        append_many(subjects, payloads[:2], timestamp_ns)
        monkeypatch.setattr(stream.staging, "_append", refuse)
        raise StoreFullError("the disk is full")

    def refuse(*_: object) -> int:
        raise StoreFullError("the disk is full")

    monkeypatch.setattr(stream.store, "append_many", fill)
    refusal, answer = publisher.send_together(2, 3, 4, 5)
    assert (refusal["type"], refusal["seq"]) == ("err", 4)
    assert refusal["error"]["err_code"] == 10023
    assert answer == total(3, 3)
