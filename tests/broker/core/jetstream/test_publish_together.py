"""Messages taken together leave what they would leave one by one, message ids included."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.jetstream.stream.stream import Stream
from headrace.errors import StoreFullError, StoreReadError
from headrace.limits import HEADER_BYTES_MAX
from headrace.wire.frames import PUB, Frame
from jetstream_world import Client, HeldStorage, Received, World

WINDOW_S = 2.0


def block(*lines: bytes) -> bytes:
    return b"NATS/1.0\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def named(message_id: bytes) -> bytes:
    return block(b"Nats-Msg-Id: " + message_id)


ids = st.integers(0, 30).map(lambda number: named(b"id.%d" % number))
odd = st.sampled_from(
    [
        b"",
        block(),
        block(b"Nats-Msg-Id: "),
        block(b"Nats-Msg-Id: id.1 "),
        block(b"Nats-Msg-Id:id.1"),
        block(b"Nats-Msg-Id: id 1"),
        block(b"nats-msg-id: id.1"),
        block(b"Nats-Msg-Id: id.1", b"Nats-Msg-Id: id.2"),
        block(b"A: b", b"Nats-Msg-Id: id.3"),
        block(b"Nats-Msg-Id: id.4", b"A: b"),
        block(b"Nats-Msg-Id: id.5", b"Nats-Expected-Last-Sequence: 3"),
        block(b"Nats-Msg-Id: id.6", b"Nats-TTL: 1s"),
        block(b"Nats-Msg-Id: id.7", b"Nats-Rollup: sub"),
        block(b"Nats-Expected-Last-Msg-Id: id.7"),
        block(b"Nats-Batch-Id: x", b"Nats-Batch-Sequence: 1"),
        named(b"id.8") + b"\0" + named(b"id.9"),
        named(b"x" * HEADER_BYTES_MAX),
    ]
)
expecting = st.sampled_from([0, 0, 1, 2, 3]).map(
    lambda last: block(b"Nats-Expected-Last-Subject-Sequence: %d" % last, b"A: b")
)
replies = st.sampled_from([b"_R.a", b"_R.a", b"_R.b", b"_R.1.x.2.gap.1.0.$FI"])
chunks = st.one_of(
    [
        st.lists(st.tuples(st.just(b"s.a"), replies, blocks), min_size=1, max_size=8)
        for blocks in (ids, st.just(b""), ids | odd)
    ]
) | st.lists(
    st.tuples(st.sampled_from([b"s.a", b"s.b"]), replies | st.just(b""), ids),
    min_size=1,
    max_size=8,
)
subjects = st.sampled_from([b"s.%d" % number for number in range(6)] + [b"s.*", b"s.\x01"])
expectations = st.lists(st.tuples(subjects, replies, expecting), min_size=1, max_size=8)
steps = st.lists(chunks | expectations | st.sampled_from([0.5, 1.0, WINDOW_S]), max_size=12)


class Twin:
    """A stream, and somebody who hears every acknowledgement."""

    def __init__(self, storage: HeldStorage | None = None, **config: Any) -> None:
        self.storage = storage or HeldStorage()
        self.world = World(self.storage)
        self.client: Client = self.world.client()
        self.client.stream(storage="memory", duplicate_window=round(WINDOW_S * 1e9), **config)
        self.inbox = self.client.subscribe(b"_R.>")

    @property
    def stream(self) -> Stream:
        engine = self.world.hub.accounts.default.engine
        assert engine is not None
        return engine.registry.streams["S"]

    def take(self, frames: list[Frame], *, together: bool) -> None:
        for _, subject, reply, headers, payload in (
            self.stream.publishes.ingest_many(frames, None) if together else frames
        ):
            self.stream.publishes.ingest(subject, reply, headers, payload, None)
        self.world.tick()

    def left(self) -> list[object]:
        """Everything that can be told afterwards."""
        store, window = self.stream.store, self.stream.window
        heard: list[Received] = self.inbox.take()
        rows = store.rows(1, None, 1 << 20, 1 << 30, store.last_seq)
        now_ns = self.world.clock.now_ns()
        known = [window.find(b"id.%d" % number, now_ns) for number in range(31)]
        return [heard, list(rows), known, window.last_id, window.last_sequence, store.state]

    def answers(self) -> list[dict[str, Any]]:
        return [json.loads(answer.payload) for answer in self.inbox.take()]


def frames_of(messages: list[tuple[bytes, bytes, bytes]]) -> list[Frame]:
    return [
        (PUB, subject, reply, headers, b"%d" % number)
        for number, (subject, reply, headers) in enumerate(messages)
    ]


@given(steps, st.sampled_from([{}, {"allow_rollup_hdrs": True}, {"max_msgs": 5}, {"no_ack": True}]))
def test_a_chunk_leaves_what_its_messages_leave_one_by_one(
    work: list[list[tuple[bytes, bytes, bytes]] | float], config: dict[str, Any]
) -> None:
    one, other = Twin(**config), Twin(**config)
    for step in work:
        if isinstance(step, float):
            one.world.advance(step)
            other.world.advance(step)
            continue
        one.take(frames_of(step), together=False)
        other.take(frames_of(step), together=True)
        assert one.left() == other.left()


def test_ids_that_are_new_are_taken_in_one_go() -> None:
    twin = Twin()
    frames = frames_of([(b"s.a", b"_R.a", named(b"id.%d" % number)) for number in range(8)])
    assert list(twin.stream.publishes.ingest_many(frames, None)) == []
    twin.world.tick()
    assert [answer["seq"] for answer in twin.answers()] == [*range(1, 9)]
    assert list(twin.stream.publishes.ingest_many(frames[7:], None)) == frames[7:]


def expects(last: int) -> bytes:
    return block(b"A: b", b"Nats-Expected-Last-Subject-Sequence: %d" % last, b"B: c")


def test_messages_that_follow_the_last_of_their_subjects_are_taken_in_one_go() -> None:
    twin = Twin(max_msgs_per_subject=1, discard="new")
    for last in (0, 8):
        frames = frames_of(
            [(b"s.%d" % number, b"_R.a", expects(last and number + 1)) for number in range(8)]
        )
        assert list(twin.stream.publishes.ingest_many(frames, None)) == []
        twin.world.tick()
        if last:
            break
        assert [answer["seq"] for answer in twin.answers()] == [*range(1, 9)]
    assert [answer["seq"] for answer in twin.answers()] == [*range(9, 17)]


@pytest.mark.parametrize(
    ("subjects", "lasts", "taken"),
    [
        ([b"s.1", b"s.2", b"s.3"], [0, 1, 0], 1),  # the second is wrong
        ([b"s.1", b"s.2", b"s.1"], [0, 0, 1], 2),  # of a subject that was there before it
        ([b"s.1", b"s.1", b"s.1"], [0, 0, 0], 1),
        ([b"s.1", b"s.2", b"s.*"], [0, 0, 0], 0),
        ([b"s.1", b"s.2", b"s.3"], [7, 0, 0], 0),
    ],
)
def test_what_does_not_follow_is_looked_at_alone(
    subjects: list[bytes], lasts: list[int], taken: int
) -> None:
    twin = Twin()
    frames = frames_of(
        [(subject, b"_R.a", expects(last)) for subject, last in zip(subjects, lasts, strict=True)]
    )
    assert list(twin.stream.publishes.ingest_many(frames, None)) == frames[taken:]
    twin.world.tick()
    assert [answer["seq"] for answer in twin.answers()] == [*range(1, taken + 1)]


def test_a_last_message_that_cannot_be_read_now_is_asked_for_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    twin = Twin()

    def unreadable(subjects: object) -> list[int]:
        raise StoreReadError("the disk does not answer", path="/s")

    monkeypatch.setattr(twin.stream.store, "last_of_each", unreadable)
    frames = frames_of([(b"s.%d" % number, b"_R.a", expects(0)) for number in range(8)])
    assert list(twin.stream.publishes.ingest_many(frames, None)) == frames
    assert twin.stream.store.last_seq == 0


def test_nothing_is_acknowledged_before_it_is_on_disk() -> None:
    twin = Twin()
    twin.storage.hold = True
    frames = frames_of([(b"s.a", b"_R.a", named(b"id.1")), (b"s.a", b"_R.a", named(b"id.2"))])
    twin.take(frames, together=True)
    twin.take(frames, together=True)  # known, but not durable either
    assert twin.answers() == []
    twin.storage.hold = False
    while twin.storage.held:
        twin.storage.release()
    twin.world.tick()
    first = [{"stream": "S", "seq": sequence} for sequence in (1, 2)]
    assert twin.answers() == first + [{**answer, "duplicate": True} for answer in first]


def test_ids_of_what_a_full_store_leaves_are_not_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    twin = Twin()
    stream, append_many = twin.stream, twin.stream.store.append_many

    def fill(
        subjects: list[bytes], payloads: list[bytes], timestamp_ns: int, blocks: list[bytes]
    ) -> None:
        append_many(subjects, payloads[:2], timestamp_ns, blocks[:2])
        raise StoreFullError("the disk is full")

    monkeypatch.setattr(stream.store, "append_many", fill)
    frames = frames_of([(b"s.a", b"_R.a", named(b"id.%d" % number)) for number in range(4)])
    assert list(stream.publishes.ingest_many(frames, None)) == frames[2:]
    now_ns = twin.world.clock.monotonic_ns()
    assert [stream.window.find(b"id.%d" % number, now_ns) for number in range(4)] == [1, 2, 0, 0]
    assert stream.window.last_id == b"id.1"
