"""Reads that fail while much is removed in slices: what a slice says it removed is gone, and no more."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from crash.test_read_faults import BIG, KNOWN, ODD, expiry, open_store
from faultfs import FaultFS
from headrace.broker.store import FileStorage
from headrace.broker.store.log.file_log import FileLog
from headrace.errors import StoreReadError

WORK = 900  # units: some dozens of messages


class Sliced(NamedTuple):
    """One removal some at a time: ``slice`` tells how many went in one go, ``done`` whether that is all."""

    slice: Callable[[], int]
    done: Callable[[], bool]


def purging(store: FileLog, *arguments: Any) -> Sliced:
    removal = store.purging(*arguments)
    return Sliced(lambda: removal.run(WORK), lambda: removal.done)


def thinning(store: FileLog, keep: int) -> Sliced:
    pass_over = store.thinning(keep)
    return Sliced(lambda: len(pass_over.run(WORK)), lambda: pass_over.done)


def trimming(store: FileLog, **limits: int) -> Sliced:
    return Sliced(lambda: store.trim(work=WORK, **limits), lambda: store.is_within(**limits))


def removing(store: FileLog) -> Sliced:
    """Not in slices, but of more than a few, all or none."""
    gone = [s for s in range(20, 290, 7) if s not in (160, 161)]
    left = [gone[:19], gone[19:]]

    def one() -> int:
        count = store.remove(left[0])
        assert count == len(left.pop(0))
        return count

    return Sliced(one, lambda: not left)


REMOVALS: dict[str, Callable[[FileLog], Sliced]] = {
    "by subject": lambda store: purging(store, ODD),
    "by subject, all but some": lambda store: purging(store, ODD, 0, 30),
    "below a sequence": lambda store: purging(store, None, 205),
    "all but some": lambda store: purging(store, None, 0, 47),
    "newest of each": lambda store: thinning(store, 12),
    "to a number": lambda store: trimming(store, max_messages=70),
    "to a size": lambda store: trimming(store, max_bytes=7000),
    "by age": lambda store: trimming(store, before_ns=222),
    "many": removing,
}


class Life:
    """One removal of a store that was just opened: nothing of it is in memory."""

    def __init__(self, name: str, fs: FaultFS) -> None:
        self.fs = fs
        self.storage = open_store(fs)
        store = self.storage.open_stream("S", expiry)
        assert isinstance(store, FileLog)
        self.store = store
        self.removal = REMOVALS[name](store)
        self.slices = self.refusals = 0

    def summary(self) -> tuple[int, ...]:
        store = self.store
        return store.messages, store.bytes, store.first_seq, store.last_seq

    def remove(self) -> None:
        """Slice by slice; one that fails is tried again."""
        while not self.asked(self.removal.done):
            before = self.summary()
            count = self.asked(self.removal.slice)
            self.slices += 1
            assert self.store.messages == before[0] - count
            assert self.slices < 1000

    def asked(self, question: Callable[[], Any]) -> Any:
        for _ in range(10):
            before = self.summary()
            try:
                return question()
            except StoreReadError:
                assert self.summary() == before
                self.refusals += 1
        raise AssertionError("it is refused again and again")

    def left(self) -> list[tuple[int, bytes, int]]:
        """What is there, by every way to ask for it."""
        found = self.store.read(1, None, 1000, BIG, self.store.last_seq)
        assert len(found) == self.store.messages
        counts: dict[bytes, int] = {}
        lasts: dict[bytes, int] = {}
        for message in found:
            counts[message.subject] = counts.get(message.subject, 0) + 1
            lasts[message.subject] = message.sequence
        assert dict(self.store.subject_counts(None)) == counts
        assert self.store.lasts(None) == sorted(lasts.values())
        return [(m.sequence, m.subject, len(m.payload)) for m in found]


def lived(name: str, *, number: int = 0, span: int = 1, error: int = errno.EIO) -> Life:
    fs = KNOWN[0].kill()
    KNOWN[0]._off = False
    life = Life(name, fs)
    begun = fs.reads
    for call in range(begun + number, begun + number + span) if number else ():
        fs.fail_read(call, error)
    life.remove()
    life.reads = fs.reads - begun  # type: ignore[attr-defined]
    fs._read_faults.clear()
    return life


@pytest.mark.parametrize("name", REMOVALS)
def test_each_read_may_fail(name: str) -> None:
    quiet = lived(name)
    expected, reads = quiet.left(), quiet.reads  # type: ignore[attr-defined]
    assert expected != [(m.sequence, m.subject, len(m.payload)) for m in KNOWN[1].values()]
    assert quiet.slices > 1
    assert reads > 0 or name in ("below a sequence", "to a size")
    refused = 0
    for number in range(1, reads + 1):
        for span in (1, 6):
            life = lived(name, number=number, span=span, error=(errno.EIO, errno.EMFILE)[span > 1])
            refused += life.refusals
            assert life.left() == expected, (number, span)
        outcomes: list[Exception | None] = []
        life.storage.flush(outcomes.append)
        assert outcomes == [None]
        life.store = again = open_store(life.fs.kill()).open_stream("S", expiry)  # type: ignore[assignment]
        assert again is not None
        assert life.left() == expected, number
    assert refused or not reads


def flush_fails(storage: FileStorage, fs: FaultFS) -> None:
    outcomes: list[Exception | None] = []
    fs.fail(fs.operations + 1, "enospc")
    storage.flush(outcomes.append)
    assert outcomes[0] is not None


@pytest.mark.parametrize("way", ["purge", "trim"])
def test_what_was_removed_unread_comes_back_unread_when_the_flush_fails(way: str) -> None:
    fs = KNOWN[0].kill()
    KNOWN[0]._off = False
    life = Life("all but some", fs)
    before, expected = life.summary(), KNOWN[1]
    for segment in life.store.segments[:-1]:
        fs.bar(segment.path, errno.EIO)
    unread = [segment for segment in life.store.segments if segment.load is not None]
    head = [segment for segment in life.store.segments if segment.base < 100]
    assert len(unread) > 3
    assert unread[0] in head
    if way == "purge":
        life.store.purge(None, head[-1].last_seq + 1)
    else:
        life.store.trim(max_messages=before[0] - sum(segment.live for segment in head))
    assert life.summary() != before
    assert unread[0].load is not None
    flush_fails(life.storage, fs)
    assert life.summary() == before
    for segment in life.store.segments[:-1]:
        fs.bar(segment.path, 0)
    assert life.left() == [(m.sequence, m.subject, len(m.payload)) for m in expected.values()]
    life.store.purge(None)
    life.storage.flush(lambda error: None)
    store = open_store(fs.kill()).open_stream("S", expiry)
    assert store.messages == 0


def test_damage_found_on_the_way_is_not_counted_as_removed() -> None:
    """The index of a segment is damaged, and one record with it: the rest is there to be removed."""
    fs = KNOWN[0].kill()
    KNOWN[0]._off = False
    life = Life("by subject", fs)
    segment = next(s for s in life.store.segments[1:] if s.load is not None)
    footer = segment.load.footer  # type: ignore[union-attr]
    content = bytearray(fs.content(segment.path))
    content[footer.data_end + 3] ^= 1
    content[footer.data_end - 400] ^= 1
    fs.overwrite(segment.path, bytes(content))
    held, removed = life.store.messages, 0
    while not life.removal.done():
        removed += life.removal.slice()
    lost = [
        finding for finding in life.storage.report if "records are damaged, too" in finding.what
    ]
    assert len(lost) == 1
    left = life.left()
    assert not any(ODD.matches(subject) for _, subject, _ in left)
    assert removed + len(left) == held - 1


def test_a_segment_that_went_unread_may_turn_out_to_be_damaged() -> None:
    """What is found in it then concerns nobody any more."""
    fs = KNOWN[0].kill()
    KNOWN[0]._off = False
    life = Life("all but some", fs)
    segment = next(s for s in life.store.segments[1:] if s.load is not None)
    footer = segment.load.footer  # type: ignore[union-attr]
    content = bytearray(fs.content(segment.path))
    content[footer.data_end + 3] ^= 1
    content[footer.data_end - 400] ^= 1
    fs.overwrite(segment.path, bytes(content))
    life.store.purge(None, segment.last_seq + 1)
    before = life.summary()
    assert segment.load is not None
    life.store.subjects_between(segment.base, segment.last_seq)
    assert segment.load is None
    assert len(segment) < len(range(segment.base, segment.last_seq + 1)) or segment.spoilt
    assert life.summary() == before
    assert len(life.left()) == before[0]
    flush_fails(life.storage, fs)
    assert len(life.left()) == life.store.messages > before[0]


def test_the_last_of_a_subject_is_another_once_it_is_found_damaged() -> None:
    fs = KNOWN[0].kill()
    KNOWN[0]._off = False
    life = Life("all but some", fs)
    last = life.store.lasts(ODD)[-1]
    segment = life.store.segment_of(last)
    segment.ensure()
    fs.flip_bit(segment.path, 8 * (segment.offsets[segment.find(last)] + 30))
    assert life.store.get(last) is None
    assert last not in life.store.lasts(ODD)
    life.left()
