"""Random lives of a stream, on disk and in memory, against a dictionary."""

from __future__ import annotations

import random
from typing import Any
from unittest import mock

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from faultfs import FaultFS
from headrace.broker.store import FileStorage, MemoryStorage
from headrace.broker.store.index.index import Segment
from headrace.broker.store.log import idle
from headrace.broker.store.log.file_log import FileLog
from headrace.clock import ManualClock
from headrace.message import StoredMessage, SubjectState
from headrace.subjects import SubjectFilter

BIG = 1 << 40
FILTERS = [None, [b"a.*"], [b"a.0", b"b.>"], [b"a.1"], [b"zz"]]
subjects = st.sampled_from([b"a.0", b"a.1", b"b.0", b"b.0.c"])
many_subjects = st.one_of(subjects, st.integers(0, 60).map(b"b.%d".__mod__))


class StreamLife(RuleBasedStateMachine):
    """The file store and the memory store live the same life as the model."""

    sequences = Bundle("sequences")

    @initialize(cache=st.sampled_from([0, 3000, 1 << 20]))
    def begin(self, cache: Any) -> None:
        self.cache = cache
        self.clock = ManualClock()
        self.model: dict[int, StoredMessage] = {}
        self.last = 0
        self.memory = MemoryStorage()
        self.twin = self.memory.create_stream("S")
        self.fs = FaultFS()
        self.reopen_store()
        self.file = self.storage.create_stream("S")
        self.flush()

    def reopen_store(self) -> None:
        self.storage = FileStorage(
            "/s",
            fs=self.fs,
            threaded=False,
            segment_bytes=8192,
            cache_bytes=self.cache,
            salts=random.Random(3),
            clock=self.clock,
        )

    @property
    def stores(self) -> tuple[Any, Any]:
        return (self.file, self.twin)

    @rule(
        target=sequences,
        subject=subjects,
        headers=st.sampled_from([b"", b"NATS/1.0\r\n\r\n"]),
        size=st.integers(0, 900),
        count=st.integers(1, 9),
        ago=st.integers(-3, 3),
    )
    def append(self, subject: Any, headers: Any, size: Any, count: Any, ago: Any) -> int:
        for _ in range(count):
            self.last += 1
            payload = b"%d," % self.last * (size // 3)
            stamp = 1000 + self.last + ago
            for store in self.stores:
                assert store.append(subject, headers, payload, stamp) == self.last
            self.model[self.last] = StoredMessage(self.last, subject, headers, payload, stamp)
        return self.last

    @rule(
        target=sequences,
        names=st.lists(many_subjects, min_size=1, max_size=24),
        headed=st.booleans(),
        size=st.integers(0, 90),
    )
    def append_many(self, names: Any, headed: bool, size: int) -> int:
        first, blocks = self.last + 1, [b"NATS/1.0\r\n\r\n" * headed] * len(names)
        self.last += len(names)
        payloads = [b"%d," % number * (size // 3) for number in range(len(names))]
        for store in self.stores:
            store.append_many(names, payloads, 1000 + self.last, blocks if headed else ())
        stamps = [1000 + self.last] * len(names)
        numbers = range(first, self.last + 1)
        for each in zip(numbers, names, blocks, payloads, stamps, strict=True):
            self.model[each[0]] = StoredMessage(*each)
        return self.last

    @rule(chosen=st.lists(sequences, max_size=4), near=st.integers(-2, 2))
    def remove(self, chosen: Any, near: Any) -> None:
        chosen = [sequence + near for sequence in chosen]
        removed = sum(self.model.pop(sequence, None) is not None for sequence in chosen)
        for store in self.stores:
            assert store.remove(chosen) == removed

    @rule(keep=st.integers(1, 40))
    def trim_by_count(self, keep: int) -> None:
        self.drop(sorted(self.model)[:-keep], lambda store: store.trim(max_messages=keep))

    @rule(share=st.floats(0.1, 1.2))
    def trim_by_bytes(self, share: Any) -> None:
        room = max(1, int(self.file.bytes * share))
        sizes = {s: self.size(m) for s, m in self.model.items()}
        total, gone = sum(sizes.values()), []
        for sequence in sorted(self.model):
            if total <= room:
                break
            total -= sizes[sequence]
            gone.append(sequence)
        removed = self.file.trim(max_bytes=room)
        assert removed == len(gone)
        for sequence in gone:
            del self.model[sequence]
        assert self.twin.trim(max_messages=len(self.model)) == (len(gone) if self.model else 0)
        if not self.model:
            self.twin.purge(None)

    @rule(back=st.integers(0, 60))
    def trim_by_age(self, back: Any) -> None:
        before = 1000 + self.last - back
        gone = []
        for sequence in sorted(self.model):
            if self.model[sequence].timestamp_ns >= before:
                break
            gone.append(sequence)
        self.drop(gone, lambda store: store.trim(before_ns=before))

    @rule(patterns=st.sampled_from(FILTERS), keep=st.integers(0, 3), back=st.integers(-1, 30))
    def purge(self, patterns: Any, keep: int, back: Any) -> None:
        chosen = SubjectFilter(patterns) if patterns else None
        below = max(0, self.last - back) if back >= 0 else 0
        gone = [
            sequence
            for sequence, message in sorted(self.model.items())
            if (chosen is None or chosen.matches(message.subject))
            and (not below or sequence < below)
        ]
        gone = gone[: len(gone) - keep] if keep < len(gone) else [] if keep else gone
        self.drop(gone, lambda store: store.purge(chosen, below, keep))

    @rule(
        chosen=st.lists(st.one_of(subjects, st.just(b"never")), max_size=5), keep=st.integers(1, 4)
    )
    def thin(self, chosen: Any, keep: int) -> None:
        gone = []
        for subject in dict.fromkeys(chosen):
            found = [s for s, message in sorted(self.model.items()) if message.subject == subject]
            gone += found[:-keep]
        for store in self.stores:
            assert store.thin(chosen, keep) == gone
        for sequence in gone:
            del self.model[sequence]

    @rule()
    def note_superseded(self) -> None:
        self.keep_newest(lambda store: store.thin([m.subject for m in self.model.values()], 1))
        for store in self.stores:
            store.superseded = []

    @precondition(lambda self: self.twin.superseded is not None)
    @rule()
    def thin_superseded(self) -> None:
        self.keep_newest(lambda store: store.thin_superseded())

    def keep_newest(self, act: Any) -> None:
        newest = {message.subject: sequence for sequence, message in sorted(self.model.items())}
        gone = sorted(self.model.keys() - set(newest.values()))
        for store in self.stores:
            assert sorted(act(store)) == gone
        for sequence in gone:
            del self.model[sequence]

    @rule(ahead=st.integers(1, 1000))
    def reset(self, ahead: Any) -> None:
        if not self.model:
            self.last += ahead
            for store in self.stores:
                if ahead > 0:
                    store.reset_first(self.last + 1)

    @rule()
    def flush(self) -> None:
        outcome: list[Exception | None] = []
        self.storage.flush(outcome.append)
        self.memory.flush(outcome.append)
        assert outcome == [None, None]
        assert all(store.durable_seq == self.last for store in self.stores)

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        self.flush()
        if clean:
            self.storage.close()
        self.fs = self.fs.kill()
        self.reopen_store()
        self.file = self.storage.open_stream("S")
        assert self.storage.report == []
        if self.twin.superseded is not None:
            self.note_superseded()

    @invariant()
    def shows_what_the_model_has(self) -> None:
        expected = [self.model[sequence] for sequence in sorted(self.model)]
        for store in self.stores:
            assert store.read(1, None, BIG, BIG, BIG) == expected
            state = store.state
            assert (state.messages, state.last_seq) == (len(expected), self.last)
            first = expected[0].sequence if expected else self.last + 1 if self.last else 0
            assert state.first_seq == store.first_seq == first
            assert state.num_deleted == len(store.deleted())
            assert state.num_subjects == len({message.subject for message in expected})
        assert self.file.bytes == sum(map(self.size, expected))
        assert self.file.deleted() == self.twin.deleted()

    @rule(patterns=st.sampled_from(FILTERS[1:]), start=st.integers(0, 80), n=st.integers(1, 7))
    def ask_by_subject(self, patterns: Any, start: Any, n: Any) -> None:
        chosen = SubjectFilter(patterns)
        matching = [s for s, m in sorted(self.model.items()) if chosen.matches(m.subject)]
        start = max(0, self.last - start)
        behind = [sequence for sequence in matching if sequence >= start]
        states: dict[bytes, list[int]] = {}
        for sequence in matching:
            states.setdefault(self.model[sequence].subject, []).append(sequence)
        for store in self.stores:
            read = store.read(start, chosen, n, BIG, BIG)
            assert [message.sequence for message in read] == behind[:n]
            assert store.count(chosen, start) == len(behind)
            assert store.last_matching(chosen) == (matching[-1] if matching else 0)
            assert dict(store.subjects(chosen)) == {
                subject: SubjectState(found[0], found[-1], len(found))
                for subject, found in states.items()
            }

    @rule(back=st.integers(-5, 60), limit=st.integers(0, 4000))
    def ask_by_time_and_place(self, back: Any, limit: int) -> None:
        stamp = 1000 + self.last - back
        later = [s for s, m in sorted(self.model.items()) if m.timestamp_ns >= stamp]
        for store in self.stores:
            assert store.sequence_at(stamp) == (later[0] if later else self.last + 1)
            assert store.get(self.last - back) == self.model.get(self.last - back)
            some = list(range(max(0, self.last - 9 * back), self.last + 2, 1 + back % 3))
            there = [tuple(self.model[s]) for s in some if s in self.model]
            assert store.rows_at(some, BIG) == {row[0]: row for row in there}
            read = store.read(self.last - back, None, BIG, limit, BIG)
            total = sum(len(m.subject) + len(m.headers) + len(m.payload) for m in read)
            assert total <= limit or len(read) == 1
            assert store.count(None, self.last - back) == sum(
                sequence >= self.last - back for sequence in self.model
            )

    def drop(self, gone: Any, act: Any) -> None:
        for store in self.stores:
            assert act(store) == len(gone)
        for sequence in gone:
            del self.model[sequence]

    @staticmethod
    def size(message: StoredMessage) -> int:
        headers = 4 + len(message.headers) if message.headers else 0
        return 22 + len(message.subject) + headers + len(message.payload) + 8


class RestingLife(StreamLife):
    """The same, and whatever may be left to its file is left before each step."""

    def __init__(self) -> None:
        super().__init__()
        self.rooms = [
            mock.patch.object(idle, "INDEX_BYTES", -1),
            mock.patch.object(idle, "SUBJECT_MESSAGES_MIN", 0),
            mock.patch.object(idle, "RESTS_MAX", 1),
        ]
        for room in self.rooms:
            room.start()

    @initialize(cache=st.sampled_from([0, 3000]), size=st.integers(200, 900))
    def begin(self, cache: Any, size: Any) -> None:
        super().begin(cache)
        for count in range(1, 9):
            self.append(b"a.0", b"", size, count, 0)

    def teardown(self) -> None:
        for room in self.rooms:
            room.stop()

    @invariant()
    def shows_what_the_model_has(self) -> None:
        super().shows_what_the_model_has()
        if self.last % 3:
            self.flush()
        log, segments = self.file, self.file.segments
        assert isinstance(log, FileLog)
        for _ in range(2 * len(segments) + 4):
            self.clock.advance(idle.REST_NS / 1e9)
            self.storage.complete()
        assert not any(idle.may_leave(log, segment) for segment in loaded(segments[:-1]))


def loaded(segments: list[Segment]) -> list[Segment]:
    return [segment for segment in segments if segment.load is None]


TestStreamLife = StreamLife.TestCase
TestRestingLife = RestingLife.TestCase
