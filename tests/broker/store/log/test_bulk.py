"""Removals in slices against removals in one go, with everything else going on between two slices."""

from __future__ import annotations

import gc
import random
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultfs import FaultFS
from headrace.broker.store import FileStorage, MemoryStorage
from headrace.broker.store.format.record import OVERHEAD
from headrace.broker.store.index.index import Segment
from headrace.broker.store.index.views import All, Matching, Selection, Sole
from headrace.broker.store.log import bulk, memory_log, removals
from headrace.broker.store.log.bulk import SubjectLimits
from headrace.broker.store.log.file_log import FileLog
from headrace.broker.store.log.memory_log import MemoryLog
from headrace.errors import StoreError
from headrace.message import StoredMessage
from headrace.subjects import SubjectFilter
from portions import portion

SUBJECTS = [b"a.0", b"a.1", b"b.0", b"b.0.c", b"c"]
FILTERS = [None, [b"a.*"], [b"a.0", b"b.>"], [b"c"], [b"zz"]]

fills = st.lists(st.tuples(st.sampled_from(SUBJECTS), st.integers(0, 400)), min_size=1, max_size=60)
betweens = st.lists(
    st.one_of(
        st.tuples(st.just("append"), fills),
        st.tuples(st.just("remove"), st.lists(st.integers(1, 80), max_size=20)),
        st.tuples(st.just("trim"), st.integers(1, 60)),
        st.tuples(st.just("flush"), st.none()),
    ),
    max_size=12,
)


class Life:
    """A stream, in a file or in memory, beside a dictionary."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.fs = FaultFS()
        self.storage: FileStorage | MemoryStorage = MemoryStorage()
        if kind == "file":
            self.open()
        self.store: FileLog | MemoryLog = self.storage.create_stream("S")
        self.model: dict[int, StoredMessage] = {}
        self.last = 0

    def open(self) -> None:
        self.storage = FileStorage(
            "/s", fs=self.fs, threaded=False, segment_bytes=8192, salts=random.Random(3)
        )

    def reopen(self) -> None:
        self.flush()
        if self.kind == "file":
            self.storage.close()
            self.open()
            self.store = self.storage.open_stream("S")
            self.check()

    def flush(self) -> None:
        self.storage.flush(lambda error: None)

    def append(self, messages: list[tuple[bytes, int]]) -> None:
        for subject, size in messages:
            self.last += 1
            message = StoredMessage(self.last, subject, b"", b"x" * size, 1000 + self.last)
            assert self.store.append(*message[1:]) == self.last
            self.model[self.last] = message

    def between(self, what: str, value: Any) -> None:
        """Something else happens."""
        if what == "append":
            self.append(value)
        elif what == "remove":
            gone = set(value) & set(self.model)
            assert self.store.remove(value) == len(gone)
            self.lose(gone)
        elif what == "trim":
            gone = set(sorted(self.model)[:-value])
            assert self.store.trim(max_messages=value) == len(gone)
            self.lose(gone)
        else:
            self.flush()

    def lose(self, gone: set[int]) -> None:
        for sequence in gone:
            del self.model[sequence]

    def live(self) -> set[int]:
        return set(self.store.present(range(1, self.last + 1)))

    def check(self) -> None:
        """The store tells of exactly what is in the model."""
        model, counts = self.model, Counter(m.subject for m in self.model.values())
        lasts = {m.subject: sequence for sequence, m in sorted(model.items())}
        store = self.store
        assert store.read(1, None, 10_000, 1 << 40, store.last_seq) == [
            model[sequence] for sequence in sorted(model)
        ]
        assert store.messages == len(model)
        assert store.first_seq == min(model, default=self.last + 1)
        assert store.state.num_subjects == len(counts)
        gaps = [s for s in range(store.first_seq, self.last + 1) if s not in model]
        assert store.deleted() == gaps
        assert store.state.num_deleted == len(gaps)
        assert dict(store.subject_counts(None)) == counts
        subjects = [*lasts, b"never.there"]
        assert store.last_of_each(subjects) == [lasts.get(subject, 0) for subject in subjects]
        assert store.lasts(None) == sorted(lasts.values())
        rows = store.rows_at([0, *range(self.last + 2, 0, -1), *model], 1 << 40)
        assert {sequence: StoredMessage(*row) for sequence, row in rows.items()} == model
        assert store.present(range(1, self.last + 3)) == sorted(model)
        assert store.headings(1, 10_000) == [(s, model[s].subject) for s in sorted(model)]
        for patterns in FILTERS[1:]:
            assert patterns is not None
            scope = SubjectFilter(patterns)
            chosen = [s for s, m in model.items() if scope.matches(m.subject)]
            assert store.count(scope, 0) == len(chosen)
            middle = self.last // 2
            assert store.count(scope, middle) == sum(s >= middle for s in chosen)
            assert store.last_matching(scope) == max(chosen, default=0)
        frame = 16 if self.kind == "memory" else OVERHEAD
        sizes = [len(m.subject) + len(m.payload) + frame for m in model.values()]
        assert store.bytes == sum(sizes)


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(memory_log, "_SEGMENT_MESSAGES", 16)
    monkeypatch.setattr(bulk, "_WINDOW", 7)
    yield


kinds = st.sampled_from(["file", "memory"])


@settings(max_examples=portion(150, 50), deadline=None)
@given(
    kind=kinds,
    fill=fills,
    patterns=st.sampled_from(FILTERS),
    keep=st.integers(0, 12),
    back=st.integers(-1, 30),
    work=st.integers(1, 900),
    between=betweens,
)
def test_a_purge_in_slices_removes_what_one_go_would(
    kind: str, fill: Any, patterns: Any, keep: int, back: Any, work: Any, between: Any
) -> None:
    life = Life(kind)
    life.append(fill * 3)
    life.flush()
    scope = SubjectFilter(patterns) if patterns else None
    below = max(1, life.last - back) if back >= 0 else 0
    chosen = [
        sequence
        for sequence, message in life.model.items()
        if (scope is None or scope.matches(message.subject)) and (not below or sequence < below)
    ]
    doomed = set(chosen[: max(0, len(chosen) - keep)])
    if keep:  # what goes while they are counted is not among those kept: see the next test
        between = [(what, value) for what, value in between if what != "remove"]
    purge, pace = life.store.purging(scope, below, keep), iter(between)
    removed = 0
    while not purge.done:
        count = purge.run(work)
        gone = set(life.model) - life.live()
        assert gone <= doomed
        assert len(gone) == count
        life.lose(gone)
        removed += count
        life.between(*next(pace, ("flush", None)))
    assert purge.removed == removed
    assert not doomed & set(life.model)
    life.check()
    life.reopen()


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_a_purge_keeps_as_many_as_are_left_when_it_has_counted_them(kind: str) -> None:
    life = Life(kind)
    life.append([(b"a.0", 0)] * 40)
    purge = life.store.purging(None, 0, 10)
    assert purge.run(1) == 0  # it has counted some of them
    life.between("remove", [39, 31, 5])
    while not purge.done:
        purge.run(1)
    assert life.live() == {30, *range(32, 39), 40}  # 39 was counted, 31 was not


@settings(max_examples=portion(150, 50), deadline=None)
@given(kind=kinds, fill=fills, keep=st.integers(1, 6), work=st.integers(1, 900), between=betweens)
def test_a_thinning_in_slices_leaves_the_newest_of_each_subject(
    kind: str, fill: Any, keep: int, work: Any, between: Any
) -> None:
    life = Life(kind)
    life.append(fill * 3)
    life.flush()
    thinning, pace = life.store.thinning(keep), iter(between)
    while not thinning.done:
        for sequence in thinning.run(work):
            subject = life.model[sequence].subject
            newer = [s for s, m in life.model.items() if s > sequence and m.subject == subject]
            assert len(newer) >= keep
            del life.model[sequence]
        what, value = next(pace, ("flush", None))
        life.between(what, value)
        if what == "append":  # a stream sees to it at the end of a tick
            assert value is not None
            life.lose(set(life.store.thin([subject for subject, _ in value], keep)))
        assert life.live() == set(life.model)
    counts = Counter(message.subject for message in life.model.values())
    assert max(counts.values(), default=0) <= keep
    life.check()
    life.reopen()


@settings(max_examples=40, deadline=None)
@given(
    kind=kinds,
    fill=fills,
    work=st.integers(1, 600),
    keep=st.integers(1, 99),
    share=st.floats(0.05, 1),
)
def test_a_trim_in_slices_ends_where_one_go_would(
    kind: str, fill: Any, work: Any, keep: int, share: Any
) -> None:
    life, whole = Life(kind), Life(kind)
    for each in (life, whole):
        each.append(fill * 3)
        each.flush()
    for limits in (
        {"before_ns": 1010},
        {"max_messages": keep},
        {"max_bytes": int(life.store.bytes * share) + 1},
    ):
        whole.store.trim(**limits)
        while not life.store.is_within(**limits):
            assert life.store.trim(**limits, work=work) > 0
            life.flush()
        assert life.store.state == whole.store.state
    assert life.live() == whole.live()


@settings(max_examples=40, deadline=None)
@given(
    kind=kinds,
    fill=fills,
    patterns=st.sampled_from(FILTERS),
    work=st.integers(1, 900),
    runs=st.integers(1, 4),
)
def test_slices_that_do_not_become_durable_are_taken_back(
    kind: str, fill: Any, patterns: Any, work: Any, runs: Any
) -> None:
    life = Life(kind)
    life.append(fill * 2)
    life.flush()
    scope = SubjectFilter(patterns) if patterns else None
    purge = life.store.purging(scope)
    for _ in range(runs):
        purge.run(work)
    life.store.thinning(1).run(work)
    life.store.remove([3, 1, 5, 4, 8, 9, 20, 2, 6, 3])
    life.store.fail()
    life.check()
    chosen = {s for s, m in life.model.items() if scope is None or scope.matches(m.subject)}
    assert life.store.purge(scope) == len(chosen)
    life.lose(chosen)
    life.check()


@pytest.mark.parametrize("kind", ["memory", "file"])
@given(st.lists(st.tuples(fills, st.lists(st.integers(1, 200), max_size=8)), max_size=6))
@settings(deadline=None)
def test_what_was_superseded_goes_at_once_as_it_would_one_by_one(kind: str, work: Any) -> None:
    found = []
    for at_once in (True, False):
        life = Life(kind)
        life.store.superseded = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bulk, "_TOGETHER_MIN", 4)
            if not at_once:
                patch.setattr(SubjectLimits, "_removed_together", lambda *_: False)
            removed = []
            for messages, sequences in work:
                for subject, size in messages:
                    life.store.append(subject, b"", b"x" * size, 1)
                life.store.remove(sequences)  # of which some are superseded, or the newest
                removed.append(sorted(life.store.thin_superseded()))
                life.flush()
        store, table = life.store, life.store.table
        states = [store.subject(subject) for subject in SUBJECTS]
        tail = store.segments[-1]
        counted = [dict(segment.live_counts()) for segment in store.segments]
        files = [(path, len(life.fs.content(path))) for path in sorted(life.fs.files())]
        found.append(
            (removed, states, [*table.counts], table.empty, store.state, counted, tail.dead, files)
        )
        assert all(state is None or state.count == 1 for state in states)
    assert found[0] == found[1]


def test_what_was_superseded_goes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SubjectLimits, "_enforce_one", None)  # a single one would need it
    monkeypatch.setattr(FileLog, "locate", None)
    store = Life("file").store
    store.superseded = []
    for number in range(128):
        store.append(b"a.%d" % (number % 64), b"", b"x", 1)
    assert store.thin_superseded() == [*range(1, 65)]


@pytest.mark.parametrize("kind", ["file", "memory"])
@pytest.mark.parametrize("how", ["purge", "remove", "trim"])
def test_messages_taken_back_keep_subjects_that_had_been_emptied(
    kind: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removals, "_RENUMBER_MIN", 4)
    life = Life(kind)
    life.append([(b"gone.%d" % number, 10) for number in range(20)])
    life.flush()
    names = life.store.table.names
    if how == "purge":
        life.store.purge(None)
    elif how == "remove":
        life.store.remove(range(2, 20))
    else:
        life.store.trim(max_messages=1)
    assert life.store.table.names is not names, "the subjects were not renumbered"
    life.store.fail()
    life.check()


def counting(look: Any, looks: list[int]) -> Any:
    """The same look, which notes how many positions it was at."""

    def counted(selection: Selection, segment: Segment, start: int, stop: int) -> Any:
        looks.append(stop - start)
        return look(selection, segment, start, stop)

    return counted


class TestWork:
    """How much a slice does, counted in messages looked at and removed."""

    @pytest.fixture
    def log(self, monkeypatch: pytest.MonkeyPatch) -> MemoryLog:
        monkeypatch.setattr(bulk, "_WINDOW", 8192)
        monkeypatch.setattr(memory_log, "_SEGMENT_MESSAGES", 100_000)
        log = MemoryStorage().create_stream("S")
        for number in range(60_000):
            log.append(b"s.%d" % (number & 1), b"", b"", number)
        return log

    @pytest.fixture
    def looked(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """How many positions were looked at, by every look."""
        looks: list[int] = []
        for kind in (All, Sole, Matching):
            for name in ("positions", "matched"):
                monkeypatch.setattr(kind, name, counting(getattr(kind, name), looks))
        return looks

    @pytest.mark.parametrize(
        ("patterns", "keep"), [(None, 0), (None, 100), ([b"s.1"], 0), ([b"s.1"], 20_000)]
    )
    def test_of_a_purge_is_bounded(self, log: Any, looked: Any, patterns: Any, keep: int) -> None:
        scope = SubjectFilter(patterns) if patterns else None
        purge, work, slices = log.purging(scope, 0, keep), 20_000, 0
        log.segments[0].live_counts()  # in smaller segments, made while appending
        while not purge.done:
            looked.clear()
            removed = purge.run(work)
            slices += 1
            assert sum(looked) <= work + 8192
            assert removed <= (work / 20 if scope else work / 2) + 1
        assert slices >= (3 if scope is None else 10)
        assert purge.removed == (60_000 if scope is None else 30_000) - keep

    def test_of_a_thinning_is_bounded(self, log: Any) -> None:
        thinning, sizes = log.thinning(10), []
        while not thinning.done:
            sizes.append(len(thinning.run(20_000)))
        assert max(sizes) <= 1_001
        assert sum(sizes) == 60_000 - 20

    def test_of_a_trim_is_bounded(self, log: Any) -> None:
        sizes = []
        while not log.is_within(max_messages=10):
            sizes.append(log.trim(max_messages=10, work=20_000))
        assert max(sizes) <= 20_000 / 3 + 1
        assert sum(sizes) == 60_000 - 10

    def test_of_letting_go_of_a_deleted_stream_is_bounded(self) -> None:
        storage = MemoryStorage()
        log = storage.create_stream("S")
        for number in range(5_000):
            log.append(b"s.%d" % number, b"", b"", number)
        storage.delete_stream("S")
        runs = 1
        while not log.dispose(500):
            runs += 1
        assert runs > 5_000 * 7 / 1_000
        assert len(log.segments) == 1


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_a_deleted_stream_keeps_nothing_of_its_messages(kind: str) -> None:
    """Not even what is in a cycle with itself: the broker's collector comes by once in a while."""
    storage: Any = (
        MemoryStorage() if kind == "memory" else FileStorage("/s", fs=FaultFS(), threaded=False)
    )
    log = storage.create_stream("S")
    for number in range(100):
        log.append(b"s.%d" % number, b"", b"payload", number)
    storage.flush(lambda error: None)
    tail, table = log.segments[-1], log.table
    held = [tail.stamps, tail.sids, tail.bodies, tail.chunks, table.names, table.ids]
    held += [chunk.parts for chunk in tail.chunks]
    gc.disable()
    try:
        storage.delete_stream("S")
        storage.flush(lambda error: None)
        while not log.dispose(500):
            pass
        del tail, table
        alone = [
            object()
        ]  # only this list has it: how much more the loop and the call count differs by Python
        counted = {sys.getrefcount(each) for each in alone}
        assert {sys.getrefcount(each) for each in held} == counted
    finally:
        gc.enable()
    assert [len(segment) for segment in log.segments] == [0]
    with pytest.raises(StoreError):
        log.append(b"s", b"", b"", 1)
    storage.close()


def test_a_segment_that_goes_as_a_whole_is_not_read_for_it() -> None:
    life = Life("file")
    life.append([(b"a.0", 300)] * 100)
    life.flush()
    life.storage.close()
    life.open()
    store = life.store = life.storage.open_stream("S")
    unread = [segment for segment in store.segments if segment.load is not None]
    assert len(unread) > 2
    store.purge(None)
    assert all(segment.load is not None for segment in unread)
    life.model.clear()
    life.check()
    life.reopen()
