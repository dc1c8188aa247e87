"""Reads that fail, each one in turn: nothing changes by them, nothing is skipped, and all is well after."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from faultfs import FaultFS
from headrace.broker.store import FileStorage
from headrace.broker.store.log.compaction import Compaction
from headrace.clock import ManualClock
from headrace.errors import StoreError, StoreReadError
from headrace.message import StoredMessage
from headrace.subjects import SubjectFilter
from portions import some

BIG = 1 << 40
ROOT = "/store"
COUNT = 300
ERRORS = [errno.EIO, errno.EMFILE]
ODD = SubjectFilter([b"s.1", b"s.3"])
RARE = SubjectFilter([b"s.4"])
SOLE = SubjectFilter([b"s.2"])


def open_store(fs: FaultFS) -> FileStorage:
    return FileStorage(
        ROOT,
        fs=fs,
        clock=ManualClock(),
        threaded=False,
        segment_bytes=8192,
        cache_bytes=0,
        salts=random.Random(4),
    )


def expiry(headers: bytes, timestamp_ns: int) -> int:
    return 10**18 + timestamp_ns


class NotWritten(Exception):
    """The call that failed was the writer's opening of its file: a flush was refused."""


def flush(storage: FileStorage) -> None:
    outcome: list[Exception | None] = []
    storage.flush(outcome.append)
    if outcome != [None]:
        raise NotWritten from outcome[0]


def made() -> tuple[FaultFS, dict[int, StoredMessage]]:
    """A store of several sealed segments, closed, and what is in it."""
    rng, fs = random.Random(11), FaultFS()
    storage = open_store(fs)
    store = storage.create_stream("S")
    model: dict[int, StoredMessage] = {}
    for number in range(1, COUNT + 1):
        # One subject is in the first segments alone, another one in the last.
        subject = b"s.4" if number in (5, 30, 140) else b"s.%d" % (number % 4)
        headers = b"NATS/1.0\r\n\r\n" if number % 9 == 0 else b""
        message = StoredMessage(number, subject, headers, rng.randbytes(rng.randrange(160)), number)
        if number % 50 == 0:
            store.append_expiring(*message[1:], expiry(b"", number))
        else:
            store.append(*message[1:])
        model[number] = message
        if number % 20 == 0:
            flush(storage)
    gone = [3, 4, 77, 160, 161]
    assert store.remove(gone) == len(gone)
    for sequence in gone:
        del model[sequence]
    storage.close()
    return fs, model


KNOWN = made()


class Play:
    """The scenario, step by step. A step that fails changes nothing, and is played once more."""

    def __init__(self, fs: FaultFS, model: dict[int, StoredMessage]) -> None:
        self.fs = fs
        self.model = dict(model)
        self.last = COUNT
        self.committed = dict(model), COUNT
        self.refusals: list[StoreError] = []
        self.before_step: Callable[[int], None] = lambda number: None
        self.after_refusal: Callable[[], None] = lambda: None
        self.steps = 0
        self.storage = self.opened()

    def opened(self) -> FileStorage:
        try:
            return self.try_to_open()
        except StoreError as error:
            self.refusals.append(error)
            self.after_refusal()
            return self.try_to_open()

    def try_to_open(self) -> FileStorage:
        storage = open_store(self.fs)
        try:
            self.store = storage.open_stream("S", expiry)
        except StoreError:
            storage.close()
            raise
        return storage

    def step(self, do: Callable[[], Any]) -> Any:
        self.steps += 1
        self.before_step(self.steps)
        before = self.summary()
        try:
            result = do()
        except StoreReadError as error:
            assert error.path.startswith(ROOT)
            assert error.errno in ERRORS
            self.refusals.append(error)
            assert self.summary() == before
            self.after_refusal()
            return do()
        return result

    def summary(self) -> tuple[int, ...]:
        store = self.store
        return store.messages, store.bytes, store.first_seq, store.last_seq, len(self.model)

    def expect(self, do: Callable[[], Any], expected: Any) -> None:
        assert self.step(do) == expected

    def live(self, chosen: SubjectFilter | None = None, start: int = 0) -> list[int]:
        return [
            s
            for s, m in sorted(self.model.items())
            if s >= start and (chosen is None or chosen.matches(m.subject))
        ]

    def consume(self, chosen: SubjectFilter | None, batch: int) -> None:
        """Read on and on, as a consumer does: nothing is skipped, whatever fails in between."""
        store, start, found = self.store, 1, []
        while rows := self.step(partial(store.rows, start, chosen, batch, BIG, BIG)):
            found += [StoredMessage(*row) for row in rows]
            start = rows[-1][0] + 1
        assert found == [self.model[s] for s in self.live(chosen)]

    def ask(self) -> None:
        store, model = self.store, self.model
        for chosen in (None, ODD, RARE, SOLE):
            for start in (1, 90, 250):
                expected = len(self.live(chosen, start))
                self.expect(partial(store.count, chosen, start), expected)
            self.consume(chosen, 1000 if chosen is ODD else 90)
        for sequence in (1, 3, 120, COUNT):
            self.expect(partial(store.get, sequence), model.get(sequence))
        states: dict[bytes, list[int]] = {}
        for sequence, message in sorted(model.items()):
            states.setdefault(message.subject, []).append(sequence)
        shown = {name: (found[0], found[-1], len(found)) for name, found in states.items()}
        self.expect(lambda: dict(store.subjects(None)), shown)
        self.expect(lambda: store.last_matching(RARE), self.live(RARE)[-1])
        self.expect(lambda: store.sequence_at(130), self.live(None, 130)[0])
        gone = sorted(set(range(self.live()[0], self.last + 1)) - set(model))
        self.expect(store.deleted, gone)
        self.expect(lambda: sorted(store.subjects_between(281, 282)), [b"s.1", b"s.2"])
        self.expect(
            lambda: sorted(store.expiries()),
            [(s, expiry(b"", s)) for s in range(50, COUNT + 1, 50) if s in model],
        )

    def remove(self, sequences: list[int]) -> None:
        self.expect(lambda: self.store.remove(sequences), len(sequences))
        self.forget(sequences)
        self.commit()

    def forget(self, sequences: list[int]) -> None:
        for sequence in sequences:
            del self.model[sequence]

    def commit(self) -> None:
        flush(self.storage)
        self.committed = dict(self.model), self.last

    def thin(self, keep: int) -> None:
        """What fails half-way tells what it had done."""
        subjects = [b"s.0", b"s.1"]
        expected = [s for name in subjects for s in self.live(SubjectFilter([name]))[:-keep]]
        removed: list[int] = []
        while True:
            try:
                removed += self.store.thin(subjects, keep)
                break
            except StoreReadError as error:
                self.refusals.append(error)
                removed += error.removed
                self.after_refusal()
        assert sorted(removed) == sorted(expected)
        self.forget(expected)
        self.commit()

    def reopen(self) -> None:
        self.storage.close()
        self.storage = self.opened()

    def play(self) -> bool:
        """Whether every flush worked; one that failed is on the disk or not, as a whole."""
        try:
            self.play_all()
        except NotWritten:
            failed = self.storage.failed
            self.storage.close()
            if failed is None or open_store(self.fs.kill()).open_stream("S").messages != len(
                self.model
            ):
                self.model, self.last = self.committed
            self.fs._off = False
            return False
        return True

    def play_all(self) -> None:
        self.ask()
        self.reopen()
        self.remove([2, 120, 250, 299])
        self.remove([s for s in self.live() if 60 < s < 110 and s % 16])  # a segment gets sparse
        self.reopen()
        self.thin(20)
        self.reopen()
        gone = [s for s in self.live(SOLE) if s < 260]
        self.expect(lambda: self.store.purge(SOLE, below_seq=260), len(gone))
        self.forget(gone)
        self.commit()
        self.reopen()
        gone = [s for s in self.live() if s < 30]
        self.expect(lambda: self.store.purge(None, below_seq=30), len(gone))
        self.forget(gone)
        keep = len(self.live()) - 8
        gone = self.live()[:8]
        self.expect(lambda: self.store.trim(max_messages=keep), 8)
        self.forget(gone)
        self.commit()
        self.last += 1
        message = StoredMessage(self.last, b"s.4", b"", b"new", self.last)
        assert self.store.append(*message[1:]) == self.last
        self.model[self.last] = message
        self.commit()
        self.ask()
        self.storage.close()

    def check_after(self) -> None:
        """Without any fault: what is on the disk is what should be."""
        self.fs.read_error = 0
        self.storage = open_store(self.fs)
        self.store = self.storage.open_stream("S", expiry)
        assert self.storage.report == []
        count, self.refusals = len(self.refusals), []
        self.ask()
        assert not self.refusals, count


def quiet() -> Play:
    play = Play(KNOWN[0].kill(), KNOWN[1])
    play.play()
    return play


def test_without_faults_the_scenario_reads_what_it_is_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    finished: list[bool] = []
    install = Compaction.install

    def counted(self: Compaction, first: int) -> None:
        finished.append(self.refused)
        install(self, first)

    monkeypatch.setattr(Compaction, "install", counted)
    play = quiet()
    play.check_after()
    assert finished, "no segment was compacted"
    assert sum(path.endswith(".seg") for path in play.fs.files()) >= 4
    assert not play.refusals


@pytest.mark.parametrize("error", ERRORS)
def test_each_read_may_fail(error: int) -> None:
    calls = quiet().fs.reads
    assert calls > 100
    refused = unwritten = 0
    places = some(range(1, calls + 1), 13, 6 * ERRORS.index(error))
    for turn, number in enumerate(places):
        fs = KNOWN[0].kill()
        fs.fail_read(number, error)
        play = Play(fs, KNOWN[1])
        whole = play.play()
        assert len(fs.failed_reads) == 1, number
        refused += len(play.refusals)
        unwritten += not whole
        if turn % 4 == 0 or not whole:
            play.check_after()
    assert refused > len(places) // 20
    assert unwritten <= len(places) // 10


@pytest.mark.parametrize("error", ERRORS)
def test_all_reads_may_fail_for_a_while(error: int) -> None:
    steps = quiet().steps
    hit = 0
    places = some(range(1, steps + 1), 5, 2 * ERRORS.index(error))
    for turn, number in enumerate(places):
        play = Play(KNOWN[0].kill(), KNOWN[1])

        def trouble(step: int, play: Play = play, number: int = number) -> None:
            play.fs.read_error = error if step == number else 0

        def over(play: Play = play) -> None:
            play.fs.read_error = 0

        play.before_step, play.after_refusal = trouble, over
        play.play()
        hit += bool(play.fs.failed_reads)
        if turn % 8 == 0:
            play.check_after()
    assert hit > len(places) // 8
