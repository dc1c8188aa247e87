"""Messages that expire by themselves, and messages of which a restart finds all or none."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disks import disk_of
from faultfs import FaultFS, PowerCut
from headrace.broker.store import FileStorage, MemoryStorage
from headrace.broker.store.format.record import FLAG_OPEN
from headrace.broker.store.index.views import list_occurrences
from headrace.broker.store.log.file_log import FileLog
from headrace.clock import ManualClock
from headrace.errors import StoreError

BIG = 1 << 40
HEADERS = b"NATS/1.0\r\nNats-TTL: 5\r\n\r\n"


def open_store(fs: FaultFS, **options: Any) -> FileStorage:
    options = {"segment_bytes": 8192, **options}
    return FileStorage("/store", fs=fs, threaded=False, salts=random.Random(1), **options)


def reopen(storage: FileStorage) -> tuple[FileStorage, Any]:
    found = open_store(disk_of(storage).kill())
    return found, found.open_stream("S", lambda headers, stamp: stamp + len(headers))


def flush(storage: Any) -> None:
    outcome: list[Exception | None] = []
    storage.flush(outcome.append)
    assert outcome == [None]


def payloads(store: Any) -> list[bytes]:
    return [message.payload for message in store.read(1, None, BIG, BIG, BIG)]


def together(*bodies: bytes) -> list[tuple[bytes, bytes, bytes, int, int]]:
    return [(b"s", b"", body, 1, 0) for body in bodies]


def _watermark(storage: Any) -> tuple[str, bytes]:
    path = next(path for path in disk_of(storage).files() if path.endswith("S/watermark"))
    return path, disk_of(storage).content(path)


# -- expiring


@pytest.fixture(params=["memory", "file"])
def storage(request: pytest.FixtureRequest) -> FileStorage | MemoryStorage:
    return MemoryStorage() if request.param == "memory" else open_store(FaultFS())


def test_only_messages_that_expire_have_a_time(storage: Any) -> None:
    store = storage.create_stream("S")
    store.append(b"a", b"", b"", 1)
    assert store.append_expiring(b"a", HEADERS, b"x", 2, 77) == 2
    store.append(b"a", HEADERS, b"", 3)
    flush(storage)
    assert list(store.expiries()) == [(2, 77)]
    assert [store.expires_ns(sequence) for sequence in range(5)] == [0, 0, 77, 0, 0]
    assert store.get(2).headers == HEADERS
    store.remove([2])
    assert list(store.expiries()) == []
    assert store.expires_ns(2) == 0


def test_times_are_the_same_after_a_restart_from_records_and_from_footers() -> None:
    storage = open_store(FaultFS())
    store = storage.create_stream("S")
    for number in range(1, 401):
        if number % 10 == 0:
            store.append_expiring(b"a", HEADERS, b"x" * 30, number, number + len(HEADERS))
        else:
            store.append(b"a", HEADERS if number % 2 else b"", b"x" * 30, number)
        if number % 50 == 0:
            flush(storage)
    store.remove([20, 400])
    flush(storage)
    expected = list(store.expiries())
    assert expected == [(n, n + len(HEADERS)) for n in range(10, 400, 10) if n != 20]
    assert len(store.segments) > 2
    for clean in (False, True, False):
        if clean:
            storage.close()
        storage, store = reopen(storage)
        assert list(store.expiries()) == expected
        assert storage.report == []


def test_times_outlive_a_compaction() -> None:
    storage = open_store(FaultFS(), segment_bytes=32_768)
    store = storage.create_stream("S")
    for number in range(1, 1001):
        if number % 40 == 0:
            store.append_expiring(b"a", HEADERS, b"x" * 30, number, number + len(HEADERS))
        else:
            store.append(b"a", b"", b"x" * 30, number)
    flush(storage)
    store.remove([number for number in range(1, 901) if number % 40])
    for _ in range(60):
        flush(storage)
    expected = [(n, n + len(HEADERS)) for n in range(40, 1001, 40)]
    assert any(segment.generation for segment in store.segments)
    assert list(store.expiries()) == expected
    storage, store = reopen(storage)
    assert list(store.expiries()) == expected


def test_times_of_messages_taken_back_are_gone_with_them() -> None:
    fs = FaultFS(capacity=60_000)
    storage = open_store(fs)
    store = storage.create_stream("S")
    store.append_expiring(b"a", HEADERS, b"x", 1, 5)
    flush(storage)
    store.append_expiring(b"a", HEADERS, b"x" * 70_000, 1, 5)
    storage.flush(lambda error: None)
    assert store.last_seq == 1
    store.append(b"a", b"", b"", 1)
    assert list(store.expiries()) == [(1, 5)]
    assert store.expires_ns(2) == 0


# -- together


def test_messages_appended_together_are_ordinary_messages(storage: Any) -> None:
    store = storage.create_stream("S")
    store.append(b"s", b"", b"0", 1)
    messages = [*together(b"1", b"2"), (b"t", HEADERS, b"3", 1, 9)]
    assert store.append_together(messages) == 2
    flush(storage)
    assert payloads(store) == [b"0", b"1", b"2", b"3"]
    assert list(store.expiries()) == [(4, 9)]


def test_messages_together_larger_than_a_segment_stay_in_one() -> None:
    storage = open_store(FaultFS())
    store = storage.create_stream("S")
    store.append(b"s", b"", b"0" * 5000, 1)
    store.append_together(together(*[b"%d" % n * 4000 for n in range(5)]))
    store.append(b"s", b"", b"end", 1)
    flush(storage)
    assert [len(segment) for segment in store.segments] == [1, 6]
    _, again = reopen(storage)
    assert payloads(again) == payloads(store)


def one_by_one(log: FileLog, messages: list[tuple[bytes, bytes, bytes, int, int]]) -> None:
    """``append_open`` by the ways of single messages."""
    for message in messages:
        log.append(*message[:4])
        if message is not messages[-1]:
            log.flag_last(FLAG_OPEN)


BATCHES = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from([b"a", b"a.b", b"c" * 30]),
            st.sampled_from([b"", b"", HEADERS]),
            st.integers(0, 3000).map(lambda size: b"x" * size),
            st.integers(1, 9),
            st.sampled_from([0, 0, 0, 0, 99]),
        ),
        min_size=1,
        max_size=12,
    ),
    min_size=1,
    max_size=5,
)


@given(BATCHES, st.booleans(), st.booleans())
@settings(deadline=None)
def test_a_batch_appended_at_once_is_byte_for_byte_one_of_single_messages(
    batches: list[list[tuple[bytes, bytes, bytes, int, int]]], noted: bool, searched: bool
) -> None:
    found = []
    for plain in (False, True):
        storage = open_store(FaultFS(), clock=ManualClock())
        store = storage.create_stream("S")
        assert isinstance(store, FileLog)
        store.append(b"a", b"", b"0", 1)
        store.superseded = [] if noted else None
        if searched:
            store.search.occurrences = list_occurrences(store.segments, store.table, store.first)
        with pytest.MonkeyPatch.context() as patch:
            if plain:
                patch.setattr(FileLog, "append_open", one_by_one)
            for batch in batches:
                store.append_together(
                    [(m[0], HEADERS if m[4] else m[1], m[2], m[3], m[4]) for m in batch]
                )
        flush(storage)
        disk, tail = disk_of(storage), store.segments[-1]
        table = store.table
        found.append(
            [
                [disk.content(path) for path in sorted(disk.files()) if path.endswith(".seg")],
                (store.state, store.superseded, tail.bare, list(store.expiries())),
                (list(table.counts), list(table.firsts), list(table.lasts), table.empty),
                [list(column) for column in (tail.offsets, tail.sizes, tail.sids, tail.stamps)],
                [store.subject(name) for name in table.names],
            ]
        )
    assert found[0] == found[1]


def test_a_batch_is_appended_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, plain = [], FileLog.append_open

    def counted(log: FileLog, messages: list[tuple[bytes, bytes, bytes, int, int]]) -> None:
        taken.append(len(messages))
        plain(log, messages)

    monkeypatch.setattr(FileLog, "append_open", counted)
    store = open_store(FaultFS()).create_stream("S")
    store.append_together(together(b"1", b"22", b"333"))
    store.append_together(together(b"alone"))
    store.append_together([*together(b"1"), (b"t", HEADERS, b"expires", 1, 9)])
    assert taken == [3]


def test_too_much_together_is_refused_and_nothing_staged(
    storage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.broker.store.log.appends.TOGETHER_BYTES_MAX", 1000)
    store = storage.create_stream("S")
    with pytest.raises(StoreError, match="may take 1000 bytes"):
        store.append_together(together(b"x" * 500, b"y" * 500))
    with pytest.raises(StoreError, match="a subject may have"):
        monkeypatch.undo()
        store.append_together([(b"s" * 70_000, b"", b"", 1, 0)])
    assert store.last_seq == 0


def test_wherever_the_file_ends_a_restart_finds_all_or_none() -> None:
    storage = open_store(FaultFS())
    store = storage.create_stream("S")
    store.append(b"s", b"", b"0", 1)
    flush(storage)
    mark = _watermark(storage)
    assert isinstance(store, FileLog)
    begin = store._end
    store.append_together(together(b"1", b"22", b"333"))
    end = store._end
    flush(storage)
    path = next(path for path in disk_of(storage).files() if path.endswith(".seg"))
    whole = disk_of(storage).content(path)
    for cut in range(begin, end + 1):
        fs = disk_of(storage).kill()
        fs.overwrite(path, whole[:cut] + bytes(64))
        fs.overwrite(*mark)
        expected = [b"0", b"1", b"22", b"333"] if cut == end else [b"0"]
        found, there = reopen(open_store(fs))
        assert payloads(there) == expected, cut
        # What comes then takes the sequences of those that were never acknowledged, and stays.
        assert there.append(b"s", b"", b"more", 2) == len(expected) + 1
        for _ in range(2):
            flush(found)
            found, there = reopen(found)
            assert payloads(there) == [*expected, b"more"], cut


@pytest.mark.parametrize("seed", range(6))
def test_a_power_cut_never_leaves_a_part(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(25):
        fs = FaultFS()
        storage = open_store(fs)
        store = storage.create_stream("S")
        flush(storage)
        acknowledged = 0
        fs.fail(fs.operations + rng.randrange(1, 120), rng.choice(["crash", "crash after"]))
        sizes: list[int] = []
        try:
            for _ in range(30):
                sizes.append(rng.choice([1, 2, 3, 40]))
                bodies = [b"%d/%d" % (len(sizes), n) + b"." * 90 for n in range(sizes[-1])]
                store.append_together(together(*bodies))
                if rng.random() < 0.5:
                    flush(storage)
                    acknowledged = len(sizes)
        except PowerCut:
            pass
        found = open_store(fs.power_cut(rng) if rng.random() < 0.7 else fs.kill())
        left = payloads(found.open_stream("S"))
        batches = [int(body.partition(b"/")[0]) for body in left]
        whole = [number for number, size in enumerate(sizes, 1) for _ in range(size)]
        assert batches == whole[: len(batches)]
        last = batches[-1] if batches else 0
        assert last >= acknowledged
        assert batches.count(last) == (sizes[last - 1] if last else 0)


# -- headers


def test_segments_without_headers_are_skipped_by_who_looks_for_some() -> None:
    storage = open_store(FaultFS())
    store = storage.create_stream("S")
    headed = {400, 401, 990}
    for number in range(1, 1001):
        store.append(b"a", HEADERS if number in headed else b"", b"x" * 30, number)
    flush(storage)
    for clean in (False, True, False, True):
        at, seen, read = 0, set(), 0
        while (at := store.next_with_headers(at + 1)) <= store.last_seq:
            message = store.get(at)
            read += 1
            if message is not None and message.headers:
                seen.add(at)
        assert seen == headed
        assert read < 500
        if clean:
            storage.close()
        storage, store = reopen(storage)
    assert store.next_with_headers(991) in (991, 1001)


def test_a_stream_without_headers_has_nothing_to_look_for() -> None:
    storage = open_store(FaultFS())
    store = storage.create_stream("S")
    assert store.next_with_headers(1) == 1
    for number in range(1, 1001):
        store.append(b"a", b"", b"x" * 30, number)
    flush(storage)
    assert store.next_with_headers(1) == 1001
    storage, store = reopen(storage)
    assert store.next_with_headers(7) == 1001
    store.append(b"a", HEADERS, b"", 1)
    assert store.next_with_headers(7) == store.segments[-1].base > 900
