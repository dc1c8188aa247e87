"""Appending a run at once is appending its messages one by one."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultfs import FaultFS
from headrace.broker.store import FileStorage, MemoryStorage
from headrace.clock import ManualClock
from headrace.errors import StoreError

BIG = 1 << 40

blocks = st.sampled_from([b"NATS/1.0\r\nA: b\r\n\r\n", b"NATS/1.0\r\nA: bcd\r\n\r\n"])
payloads = st.binary(max_size=900)
runs = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b.c"]),
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


def fill(storage: Any, work: Any, *, at_once: bool) -> Any:
    store = storage.create_stream("S")
    for time_ns, (subject, messages, flushes) in enumerate(work):
        heads, payloads = [head for head, _ in messages], [payload for _, payload in messages]
        if at_once:
            store.append_many(subject, payloads, time_ns, heads if any(heads) else ())
        else:
            for head, payload in messages:
                store.append(subject, head, payload, time_ns)
        if flushes:
            storage.flush(_must_work)
    storage.flush(_must_work)
    return store


def seen(store: Any) -> tuple[object, ...]:
    messages = store.read(1, None, BIG, BIG, BIG)
    with_headers = [store.next_with_headers(position) for position in range(1, store.last_seq + 2)]
    counted = sorted(store.subjects(None))
    return store.state, messages, with_headers, counted, store.last_seq, store.durable_seq


@given(runs)
def test_a_run_leaves_the_same_as_its_messages_in_memory(work: Any) -> None:
    one, other = MemoryStorage(), MemoryStorage()
    assert seen(fill(one, work, at_once=True)) == seen(fill(other, work, at_once=False))


@given(runs)
def test_a_run_leaves_the_same_files_and_is_read_back(work: Any) -> None:
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
