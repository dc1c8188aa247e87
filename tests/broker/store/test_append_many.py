"""Appending a run at once is appending its messages one by one."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultfs import FaultFS
from headrace.broker.store import FileStorage, MemoryStorage
from headrace.broker.store.log.file_log import FileLog
from headrace.clock import ManualClock
from headrace.errors import StoreError

BIG = 1 << 40

blocks = st.sampled_from([b"NATS/1.0\r\nA: b\r\n\r\n", b"NATS/1.0\r\nA: bcd\r\n\r\n"])
payloads = st.binary(max_size=900)
names_of_some = st.sampled_from([b"a", b"b.c", *(b"d.%d" % number for number in range(20))])
runs = st.lists(
    st.tuples(
        st.lists(names_of_some, min_size=1, max_size=12),
        st.one_of(  # without headers, with headers, and mixed
            [
                st.lists(st.tuples(heads, payloads), max_size=12)
                for heads in (st.just(b""), blocks, st.just(b"") | blocks)
            ]
        ),
        st.booleans(),  # whether what was staged is flushed afterwards
    ),
    max_size=12,
)


def open_file(fs: FaultFS) -> FileStorage:
    salts = random.Random(1)
    return FileStorage(
        "/s", clock=ManualClock(), fs=fs, threaded=False, salts=salts, segment_bytes=8192
    )


def _must_work(error: Exception | None) -> None:
    assert error is None


def fill(storage: Any, work: Any, *, at_once: bool, noted: bool = False) -> Any:
    store = storage.create_stream("S")
    store.superseded = [] if noted else None
    for time_ns, (names, messages, flushes) in enumerate(work):
        heads, payloads = [head for head, _ in messages], [payload for _, payload in messages]
        subjects = names[: len(messages)] if 0 < len(messages) <= len(names) else names[:1]
        if at_once:
            store.append_many(subjects, payloads, time_ns, heads if any(heads) else ())
        else:
            each = subjects if len(subjects) > 1 else subjects * len(messages)
            for subject, (head, payload) in zip(each, messages, strict=True):
                store.append(subject, head, payload, time_ns)
        if flushes:
            storage.flush(_must_work)
    storage.flush(_must_work)
    return store


def seen(store: Any) -> tuple[object, ...]:
    messages = store.read(1, None, BIG, BIG, BIG)
    with_headers = [store.next_with_headers(position) for position in range(1, store.last_seq + 2)]
    table = store.table
    counted = sorted(store.subjects(None)), table.names, [*table.counts], table.empty
    noted, heads = store.superseded, [*table.firsts, *table.lasts]
    return store.state, messages, with_headers, counted, noted, heads, store.durable_seq


def kept(store: Any) -> object:
    return store.read(1, None, BIG, BIG, BIG), sorted(store.subjects(None))


@given(runs, st.booleans())
def test_a_run_leaves_the_same_as_its_messages_in_memory(work: Any, noted: bool) -> None:
    one, other = MemoryStorage(), MemoryStorage()
    filled = fill(one, work, at_once=True, noted=noted)
    assert seen(filled) == seen(fill(other, work, at_once=False, noted=noted))


@given(runs, st.booleans())
def test_a_run_leaves_the_same_files_and_is_read_back(work: Any, noted: bool) -> None:
    one, other = FaultFS(), FaultFS()
    store = fill(open_file(one), work, at_once=True, noted=noted)
    assert seen(store) == seen(fill(open_file(other), work, at_once=False, noted=noted))
    assert {p: one.content(p) for p in one.files()} == {p: other.content(p) for p in other.files()}
    reopened = open_file(one.kill()).open_stream("S")
    assert (reopened.state, kept(reopened)) == (store.state, kept(store))


def test_messages_of_many_subjects_are_appended_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileLog, "append", None)  # a single one would need it
    store = open_file(FaultFS()).create_stream("S")
    store.superseded = []
    store.append_many([b"a", b"b", b"a"], [b"1", b"2", b"3"], 5)
    store.append_many([b"b", b"c"], [b"4", b"5"], 6, [b"", b"NATS/1.0\r\nA: b\r\n\r\n"])
    assert (store.last_seq, store.superseded) == (5, [(0, 1), (1, 2)])


def test_a_run_that_a_failed_store_refuses_leaves_nothing() -> None:
    storage = open_file(FaultFS())
    store = storage.create_stream("S")
    storage.delete_stream("S")
    with pytest.raises(StoreError):
        store.append_many([b"a"], [b"1", b"2"], 0)
    assert store.last_seq == 0
