"""What every stream store does, file or memory: one suite, run on each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.store import FileStorage, MemoryStorage
from headrace.errors import StoreError
from headrace.message import StoredMessage, StreamState, SubjectState
from headrace.subjects import SubjectFilter

T0 = 1_700_000_000_000_000_000
BIG = 1 << 30


class Bench:
    """A storage with one stream `S`, and helpers that keep the tests short."""

    def __init__(self, storage: Any, *, memory: bool) -> None:
        self.storage = storage
        self.store = storage.create_stream("S", memory=memory)
        self.flush()

    def flush(self) -> None:
        outcome: list[Exception | None] = []
        self.storage.flush(outcome.append)
        assert outcome == [None]

    def add(self, *subjects: str, payload: bytes = b"x", headers: bytes = b"") -> None:
        for subject in subjects:
            self.store.append(subject.encode(), headers, payload, T0 + self.store.last_seq + 1)

    def sequences(self, *patterns: str, start: int = 1, n: int = BIG, last: int = BIG) -> list[int]:
        chosen = SubjectFilter([p.encode() for p in patterns]) if patterns else None
        return [m.sequence for m in self.store.read(start, chosen, n, BIG, last)]


def only(*patterns: str) -> SubjectFilter:
    return SubjectFilter([pattern.encode() for pattern in patterns])


@pytest.fixture(params=["memory", "file", "mixed"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    storage: FileStorage | MemoryStorage
    if request.param == "memory":
        storage = MemoryStorage()
    else:
        storage = FileStorage(tmp_path, threaded=False, segment_bytes=8192)
    yield Bench(storage, memory=request.param != "file")
    storage.close()


def test_a_fresh_stream_is_empty_with_sequences_zero(bench: Bench) -> None:
    assert bench.store.state == StreamState(0, 0, 0, 0, 0, 0, 0, 0)
    assert bench.store.first_seq == bench.store.last_seq == bench.store.durable_seq == 0
    assert bench.store.read(0, None, 10, BIG, BIG) == []
    assert bench.store.get(0) is bench.store.get(1) is None


def test_appended_messages_come_back_as_they_were(bench: Bench) -> None:
    assert bench.store.append(b"a.b", b"NATS/1.0\r\nk: v\r\n\r\n", b"payload", T0) == 1
    assert bench.store.append(b"a.c", b"", b"", T0 + 5) == 2
    expected = [
        StoredMessage(1, b"a.b", b"NATS/1.0\r\nk: v\r\n\r\n", b"payload", T0),
        StoredMessage(2, b"a.c", b"", b"", T0 + 5),
    ]
    for _ in range(2):
        assert bench.store.read(1, None, 10, BIG, BIG) == expected
        assert [bench.store.get(1), bench.store.get(2)] == expected
        bench.flush()


def test_only_a_completed_flush_moves_the_durable_sequence(bench: Bench) -> None:
    bench.add("a", "b")
    assert (bench.store.last_seq, bench.store.durable_seq) == (2, 0)
    bench.flush()
    assert bench.store.durable_seq == 2


def test_reading_stops_at_the_last_sequence_the_count_and_the_bytes(bench: Bench) -> None:
    bench.add("a", "b", "a", "b", "a", payload=b"12345678")
    assert bench.sequences(start=2, last=4) == [2, 3, 4]
    assert bench.sequences(n=2) == [1, 2]
    assert [m.sequence for m in bench.store.read(1, None, 10, 27, BIG)] == [1, 2, 3]
    assert [m.sequence for m in bench.store.read(1, None, 10, 26, BIG)] == [1, 2]
    assert [m.sequence for m in bench.store.read(3, None, 10, 1, BIG)] == [3]
    assert bench.sequences("a", start=2) == [3, 5]


def test_filters_with_wildcards_and_several_patterns_select_in_order(bench: Bench) -> None:
    bench.add("o.1.x", "o.2.x", "p.1", "o.1.y", "o.3.x", "p.2")
    assert bench.sequences("o.*.x") == [1, 2, 5]
    assert bench.sequences("o.1.>", "p.2") == [1, 4, 6]
    assert bench.sequences(">") == [1, 2, 3, 4, 5, 6]
    assert bench.sequences("o.1.x") == [1]
    assert bench.sequences("nothing.*") == []
    bench.add("nothing.1", "o.9.x")
    assert bench.sequences("nothing.*") == [7]
    assert bench.sequences("o.*.x", start=2) == [2, 5, 8]


def test_counts_are_exact_for_any_start(bench: Bench) -> None:
    bench.add(*(f"s.{i % 3}" for i in range(30)))
    bench.store.remove([4, 7, 30])
    live = [(m.sequence, m.subject) for m in bench.store.read(1, None, 100, BIG, BIG)]
    for patterns in (["s.0"], ["s.*"], ["s.1", "s.2"], ["zz"]):
        for start in (*range(33), 3, 17, 18, 2):
            flt = only(*patterns)
            wanted = sum(1 for seq, subject in live if seq >= start and flt.matches(subject))
            assert bench.store.count(flt, start) == wanted
    assert bench.store.count(None, 0) == 27
    assert bench.store.count(None, 5) == 24


def test_removed_messages_are_gone_and_leave_gaps(bench: Bench) -> None:
    bench.add("a", "b", "a", "b", "a")
    assert bench.store.remove([2, 4, 4, 99, 0]) == 2
    assert bench.sequences() == [1, 3, 5]
    assert bench.store.get(2) is None
    assert bench.store.deleted() == [2, 4]
    assert bench.store.state.num_deleted == 2
    assert bench.store.subject(b"b") is None
    assert bench.store.state.num_subjects == 1
    bench.store.remove([1])
    assert (bench.store.first_seq, bench.store.deleted()) == (3, [4])
    bench.store.remove([5])
    assert (bench.store.last_seq, bench.store.deleted()) == (5, [4, 5])
    bench.store.remove([3])
    state = bench.store.state
    assert (state.messages, state.bytes, state.first_seq, state.last_seq) == (0, 0, 6, 5)
    assert (state.first_ns, state.last_ns, state.num_deleted) == (0, 0, 0)


def test_trimming_by_count_bytes_and_age_removes_from_the_head(bench: Bench) -> None:
    bench.add(*["a"] * 10)
    each = bench.store.bytes // 10
    assert bench.store.trim(max_messages=8) == 2
    assert bench.store.trim(max_messages=8, max_bytes=-1) == 0
    assert bench.store.trim(max_bytes=5 * each) == 3
    assert bench.store.trim(before_ns=T0 + 8) == 2
    assert bench.sequences() == [8, 9, 10]
    assert bench.store.trim(max_bytes=1) == 3
    assert bench.store.trim(max_messages=1) == 0
    assert bench.store.first_seq == 11


def test_purging_everything_keeps_the_last_sequence(bench: Bench) -> None:
    bench.add("a", "b", "c")
    assert bench.store.purge(None) == 3
    state = bench.store.state
    assert (state.messages, state.first_seq, state.last_seq, state.num_subjects) == (0, 4, 3, 0)
    bench.add("d")
    assert bench.sequences() == [4]


def test_purging_by_subject_sequence_and_keep(bench: Bench) -> None:
    bench.add("a", "b", "a", "b", "a", "b", "a")
    assert bench.store.purge(only("a"), keep=2) == 2
    assert bench.sequences() == [2, 4, 5, 6, 7]
    assert bench.store.purge(None, below_seq=5) == 2
    assert bench.sequences() == [5, 6, 7]
    assert bench.store.purge(only("a"), below_seq=7) == 1
    assert bench.store.purge(None, keep=1) == 1
    assert bench.sequences() == [7]
    assert bench.store.purge(None, keep=5) == 0
    assert bench.store.purge(only("zz")) == 0


def test_subject_states_follow_appends_and_removals(bench: Bench) -> None:
    bench.add("a", "b", "a", "a", "b", "a")
    assert bench.store.subject(b"a") == SubjectState(1, 6, 4)
    assert bench.store.subject(b"zz") is None
    assert bench.store.last_of_each([b"b", b"zz", b"a", b"b"]) == [5, 0, 6, 5]
    bench.store.remove([1, 6])
    assert bench.store.last_of_each([b"a", b"b"]) == [4, 5]
    assert bench.store.subject(b"a") == SubjectState(3, 4, 2)
    bench.store.remove([3])
    assert bench.store.subject(b"a") == SubjectState(4, 4, 1)
    assert dict(bench.store.subjects(None)) == {
        b"a": SubjectState(4, 4, 1),
        b"b": SubjectState(2, 5, 2),
    }
    assert dict(bench.store.subjects(only("b"))) == {b"b": SubjectState(2, 5, 2)}
    bench.store.remove([4])
    assert dict(bench.store.subjects(only("a", "c"))) == {}


def test_rows_are_found_by_their_sequences_as_far_as_there_are_bytes_for_them(bench: Bench) -> None:
    bench.add("a", "b", "c", "d")
    bench.store.remove([2])
    asked = [4, 9, 2, 1, 0, 4]
    found = bench.store.rows_at(asked, 1 << 20)
    assert [(sequence, row[:2]) for sequence, row in sorted(found.items())] == [
        (1, (1, b"a")),
        (4, (4, b"d")),
    ]
    assert list(bench.store.rows_at(asked, 0)) == [1]
    assert bench.store.rows_at([], 10) == bench.store.rows_at([2, 7], 10) == {}


def test_the_last_matching_sequence_is_found_for_any_filter(bench: Bench) -> None:
    bench.add("a.1", "a.2", "b.1", "a.1")
    assert bench.store.last_matching(only("a.*")) == 4
    assert bench.store.last_matching(only("a.2")) == 2
    assert bench.store.last_matching(only("c")) == 0
    bench.store.remove([4, 2])
    assert bench.store.last_matching(only("a.*")) == 1
    assert bench.store.last_matching(only("a.2")) == 0
    assert bench.store.last_matching(only(">")) == 3


def test_the_subjects_of_a_range_are_named_once(bench: Bench) -> None:
    bench.add("a.1", "a.2", "a.1", "b", "a.3")
    assert sorted(bench.store.subjects_between(1, 3)) == [b"a.1", b"a.2"]
    assert sorted(bench.store.subjects_between(4, 99)) == [b"a.3", b"b"]
    assert list(bench.store.subjects_between(6, 5)) == []
    assert list(bench.store.subjects_between(6, 99)) == []


def test_a_time_leads_to_the_first_live_message_stored_then_or_later(bench: Bench) -> None:
    for offset in (10, 20, 20, 15, 40):
        bench.store.append(b"a", b"", b"", T0 + offset)
    at = bench.store.sequence_at
    assert [at(T0 + t) for t in (0, 10, 11, 20, 21, 40, 41)] == [1, 1, 2, 2, 5, 5, 6]
    bench.store.remove([2])
    assert at(T0 + 11) == 3


def test_an_empty_stream_can_be_given_its_next_sequence(bench: Bench) -> None:
    bench.store.reset_first(100)
    assert (bench.store.first_seq, bench.store.last_seq) == (100, 99)
    bench.add("a", "b")
    assert bench.sequences() == [100, 101]
    with pytest.raises(StoreError, match="holds 2 messages"):
        bench.store.reset_first(200)
    bench.store.purge(None)
    with pytest.raises(StoreError, match="has used sequences up to 101"):
        bench.store.reset_first(101)
    bench.store.reset_first(102)
    bench.add("c")
    assert bench.sequences() == [102]
    assert bench.store.state.num_deleted == 0


def test_a_stream_can_be_deleted_and_made_again(bench: Bench) -> None:
    bench.add("a")
    old = bench.store
    bench.storage.delete_stream("S")
    assert bench.storage.streams() == []
    with pytest.raises(StoreError):
        old.append(b"a", b"", b"", T0)
    with pytest.raises(StoreError, match="no stream 'S'"):
        bench.storage.open_stream("S")
    fresh = bench.storage.create_stream("S")
    assert fresh.last_seq == 0
    assert bench.storage.open_stream("S") is fresh
    with pytest.raises(StoreError, match="exists already"):
        bench.storage.create_stream("S")
    bench.flush()
    assert bench.storage.streams() == ["S"]


def test_metadata_is_values_with_deltas(bench: Bench) -> None:
    meta = bench.storage.meta
    meta.put("k", b"1")
    meta.append("k", b"+2")
    meta.append("k", b"+3")
    meta.append("fresh", b"d")
    meta.put("gone", b"x")
    meta.delete("gone")
    meta.delete("never")
    assert dict(meta.load()) == {"k": (b"1", [b"+2", b"+3"]), "fresh": (b"", [b"d"])}
    meta.put("k", b"4")
    assert meta.load()["k"] == (b"4", [])


def test_flushes_complete_in_order_even_when_nothing_is_staged(bench: Bench) -> None:
    seen: list[int] = []
    for number in range(5):
        if number % 2:
            bench.add("a")

        def done(error: Exception | None, number: int = number) -> None:
            assert error is None
            seen.append(number)

        bench.storage.flush(done)
    bench.flush()
    assert seen == [0, 1, 2, 3, 4]


def test_many_subjects_keep_exact_states_when_each_keeps_its_newest(bench: Bench) -> None:
    store, newest = bench.store, 2
    for number in range(3000):
        subject = b"k.%d" % (number * 7 % 50)
        store.append(subject, b"", b"v", T0 + number)
        state = store.subject(subject)
        while state.count > newest:
            assert store.remove([state.first_seq]) == 1
            state = store.subject(subject)
    model: dict[bytes, list[int]] = {}
    for message in store.read(1, None, BIG, BIG, BIG):
        model.setdefault(message.subject, []).append(message.sequence)
    assert {s: SubjectState(q[0], q[-1], len(q)) for s, q in model.items()} == dict(
        store.subjects(None)
    )


def test_subjects_that_come_and_go_do_not_pile_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.broker.store.log.removals._RENUMBER_MIN", 20)
    for number in range(500):
        bench.add(f"once.{number}", "always")
        bench.store.trim(max_messages=10)
        if number % 5 == 4:  # until then a failing disk could bring them back
            bench.flush()
    assert len(bench.store.table.names) < 60
    assert bench.store.state.num_subjects == 6
    assert bench.store.count(only("once.*"), 1) == 5
    assert bench.sequences("always") == [992, 994, 996, 998, 1000]
