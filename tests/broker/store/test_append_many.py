"""Appending a run at once is appending its messages one by one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.store import FileStorage, MemoryStorage
from headrace.clock import ManualClock
from headrace.errors import StoreError
from headrace.testing.faultfs import FaultFS

BIG = 1 << 40

runs = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b.c"]),
        st.lists(st.binary(max_size=900), max_size=12),
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


def fill(storage, work, *, at_once: bool):
    store = storage.create_stream("S")
    for time_ns, (subject, payloads, flushes) in enumerate(work):
        if at_once:
            store.append_many(subject, payloads, time_ns)
        else:
            for payload in payloads:
                store.append(subject, b"", payload, time_ns)
        if flushes:
            storage.flush(_must_work)
    storage.flush(_must_work)
    return store


def seen(store) -> tuple[object, ...]:
    messages = store.read(1, None, BIG, BIG, BIG)
    return store.state, messages, sorted(store.subjects(None)), store.last_seq, store.durable_seq


@given(runs)
def test_a_run_leaves_the_same_as_its_messages_in_memory(work) -> None:
    one, other = MemoryStorage(), MemoryStorage()
    assert seen(fill(one, work, at_once=True)) == seen(fill(other, work, at_once=False))


@given(runs)
def test_a_run_leaves_the_same_files_and_is_read_back(work) -> None:
    one, other = FaultFS(), FaultFS()
    store = fill(open_file(one), work, at_once=True)
    assert seen(store) == seen(fill(open_file(other), work, at_once=False))
    assert {p: one.content(p) for p in one.files()} == {p: other.content(p) for p in other.files()}
    reopened = open_file(one.kill()).open_stream("S")
    assert seen(reopened) == seen(store)


def test_a_run_that_a_failed_store_refuses_leaves_nothing() -> None:
    storage = open_file(FaultFS())
    store = storage.create_stream("S")
    storage.delete_stream("S")
    with pytest.raises(StoreError):
        store.append_many(b"a", [b"1", b"2"], 0)
    assert store.last_seq == 0
