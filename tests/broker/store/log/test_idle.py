"""Segments that nobody asks about: when they are left to their files, and that nobody notices."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from disks import disk_of
from faultfs import FaultFS
from headrace.broker.store import FileStorage
from headrace.broker.store.format.segment import decode_trailer
from headrace.broker.store.index.index import Segment
from headrace.broker.store.log import idle
from headrace.broker.store.log.file_log import FileLog
from headrace.clock import ManualClock
from headrace.errors import StoreReadError
from headrace.message import StoredMessage
from headrace.subjects import SubjectFilter

BIG = 1 << 40
SEGMENT_BYTES = 8192
MESSAGES = 160


class World:
    """A stream of some segments, and a clock that makes them rest."""

    def __init__(self, fs: FaultFS | None = None, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.clock = ManualClock()
        self.fs = fs or FaultFS()
        self.storage = FileStorage(
            "/s",
            clock=self.clock,
            fs=self.fs,
            threaded=False,
            segment_bytes=segment_bytes,
            cache_bytes=0,
            salts=random.Random(1),
        )
        found = (
            self.storage.open_stream("S")
            if "S" in self.storage.streams()
            else self.storage.create_stream("S")
        )
        assert isinstance(found, FileLog)
        self.log = found

    def flush(self) -> Exception | None:
        outcome: list[Exception | None] = []
        self.storage.flush(outcome.append)
        return outcome[0]

    def publish(self, count: int = MESSAGES, subjects: int = 3) -> None:
        for _ in range(count):
            number = self.log.last_seq
            payload = b"%d" % (number % 10) * 100
            self.log.append(b"a.%d" % (number % subjects), b"", payload, 1000 + number)
            if number % 5 == 4:
                assert self.flush() is None
        assert self.flush() is None

    def rest(self) -> None:
        """Let so much time pass that whatever may be left is left."""
        for _ in range(4 * len(self.log.segments) + 8):
            self.clock.advance(idle.REST_NS / 1e9)
            self.storage.complete()

    def everything(self) -> list[StoredMessage]:
        return self.log.read(1, None, BIG, BIG, BIG)

    @property
    def left(self) -> list[Segment]:
        return [segment for segment in self.log.segments if segment.load is not None]


@pytest.fixture(autouse=True)
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "INDEX_BYTES", 0)


@pytest.fixture
def world() -> World:
    made = World()
    made.publish()
    return made


def test_all_but_the_tail_is_left_at_rest_and_read_again_when_it_is_asked_for(world: World) -> None:
    before = world.everything()
    assert not world.left
    world.rest()
    assert len(world.left) == len(world.log.segments) - 1 > 3
    assert not any(len(segment.stamps) for segment in world.left)
    assert world.everything() == before
    assert not world.left


def test_what_is_asked_for_again_and_again_stays(world: World) -> None:
    middle = world.log.segments[2]
    for _ in range(40):
        world.clock.advance(idle.REST_NS / 1e9)
        world.storage.complete()
        assert world.log.get(middle.base) is not None
    assert middle.load is None
    assert len(world.left) == len(world.log.segments) - 2


def test_what_is_read_back_again_and_again_stays_the_longer(world: World) -> None:
    first, looks = world.log.segments[0], list[int]()
    for _ in range(12):
        world.log.get(1)
        assert first.load is None
        rounds = 0
        while first.load is None:
            world.clock.advance(idle.REST_NS / 1e9)
            for _ in world.log.segments:
                world.storage.complete()
            rounds += 1
        looks.append(rounds)
    assert [later - before for before, later in pairwise(looks[:5])] == [1, 2, 4, 8]
    assert max(looks) == looks[-1] == looks[-2] == idle.RESTS_MAX + 2


def test_all_stays_while_there_is_room(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "INDEX_BYTES", idle.MESSAGE_BYTES * MESSAGES)
    world.rest()
    assert not world.left


def test_only_what_is_beyond_the_room_is_left(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = world.log.segments[0]
    sealed = sum(map(len, world.log.segments[:-1])) * idle.MESSAGE_BYTES
    monkeypatch.setattr(idle, "INDEX_BYTES", sealed - 1)
    world.rest()
    assert world.left == [first]


def test_the_numbers_of_a_stream_need_no_reading(world: World) -> None:
    log, filter = world.log, SubjectFilter([b"a.1"])
    before = (log.messages, log.bytes, log.first_seq, log.last_seq, log.count(filter, 1))
    world.rest()
    reads = world.fs.reads
    assert (log.messages, log.bytes, log.first_seq, log.last_seq, log.count(filter, 1)) == before
    assert world.fs.reads == reads


def test_a_count_that_was_begun_in_a_segment_goes_on_after_it_was_left() -> None:
    world, filter = World(), SubjectFilter([b"c"])
    world.publish(100, subjects=2)
    tail = world.log.segments[-1]
    assert world.log.count(filter, 2) == 0  # with what the tail has by now
    later = world.log.append(b"c", b"", b"", 1)
    world.publish(100, subjects=2)
    world.rest()
    assert tail in world.left
    assert world.log.count(filter, 2) == 1
    assert [m.sequence for m in world.log.read(1, filter, BIG, BIG, BIG)] == [later]


@pytest.mark.parametrize(
    "ask",
    [
        lambda log: log.state,
        lambda log: log.subject(b"a.1"),
        lambda log: list(log.subjects(SubjectFilter([b"a.*"]))),
        lambda log: log.sequence_at(1030),
        lambda log: log.rows(7, SubjectFilter([b"a.2"]), 5, BIG, BIG),
        lambda log: log.count(SubjectFilter([b"a.0"]), 20),
        lambda log: log.subjects_between(3, 40),
        lambda log: log.headings(9, 20),
        lambda log: log.lasts(None),
        lambda log: log.present([1, 9, 30, 61]),
        lambda log: log.deleted(),
    ],
)
def test_every_question_has_the_answer_it_had(world: World, ask: Callable[[Any], object]) -> None:
    before = ask(world.log)
    world.rest()
    assert world.left
    assert ask(world.log) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log.remove([2, 3, 30]),
        lambda log: log.remove(list(range(1, 50))),
        lambda log: log.trim(max_messages=7),
        lambda log: log.trim(max_bytes=20_000),
        lambda log: log.trim(before_ns=1033),
        lambda log: log.purge(None, 33, 0),
        lambda log: log.purge(SubjectFilter([b"a.1"]), 0, 2),
        lambda log: log.thin([b"a.0", b"a.1"], 1),
    ],
)
def test_every_change_does_what_it_does_to_loaded_segments(
    change: Callable[[Any], object],
) -> None:
    worlds = World(), World()
    for each in worlds:
        each.publish()
    worlds[0].rest()
    assert worlds[0].left
    done = [change(each.log) for each in worlds]
    assert done[0] == done[1]
    for each in worlds:
        assert each.flush() is None
        each.rest()
    assert worlds[0].everything() == worlds[1].everything()
    assert worlds[0].log.state == worlds[1].log.state
    again = World(worlds[0].fs.kill())
    assert again.storage.report == []
    assert again.everything() == worlds[1].everything()


@pytest.mark.parametrize("below", [3, 20, 61])
def test_a_removal_that_the_disk_refuses_is_taken_back(world: World, below: int) -> None:
    before, state = world.everything(), world.log.state
    world.rest()
    assert world.left
    assert world.log.purge(None, below, 0)
    world.fs.fail(world.fs.operations + 1, "enospc")
    assert world.flush() is not None
    assert world.everything() == before
    assert world.log.state == state
    assert world.flush() is None


def test_a_segment_with_removed_messages_stays(world: World) -> None:
    world.log.remove([3])
    assert world.flush() is None
    world.rest()
    assert world.log.segments[0].load is None
    assert len(world.left) == len(world.log.segments) - 2


def test_a_segment_with_nearly_as_many_subjects_as_messages_stays() -> None:
    world = World()
    world.publish(subjects=1000)
    world.rest()
    assert not world.left


def test_subjects_may_be_numbered_anew_while_a_segment_is_left() -> None:
    world = World(segment_bytes=1 << 20)
    log, many = world.log, 66_000
    for number in range(many):
        log.append(b"once.%d" % number, b"", b"", 1)
    for number in range(20_000):
        log.append(b"a.%d" % (number % 3), b"", bytes(60), 2)
    assert world.flush() is None
    world.rest()
    left = world.left
    assert left
    for below in (40_001, 0):  # those that may still come back are kept
        assert log.purge(SubjectFilter([b"once.*"]), below, 0)
        assert world.flush() is None
    assert len(log.table.names) < many - 30_000
    assert [segment for segment in left if segment.load is not None]
    assert [m.subject for m in world.everything()] == [b"a.%d" % (n % 3) for n in range(20_000)]


def test_a_store_that_was_opened_leaves_what_it_has_read(world: World) -> None:
    before = world.everything()
    world.storage.close()
    again = World(world.fs.kill())
    assert again.everything() == before
    assert not again.left
    again.rest()
    assert len(again.left) == len(again.log.segments) - 1
    assert again.everything() == before


def test_a_segment_stays_whose_footer_the_disk_refused() -> None:
    met = 0
    whole = World()
    whole.publish()
    for operation in range(1, whole.fs.operations):
        world = World()
        world.fs.fail(operation, "enospc")
        try:
            world.publish()
        except AssertionError:
            continue  # the fault met a flush
        bare = [each for each in world.log.segments[:-1] if each.ending is None]
        world.rest()
        assert not any(segment in bare for segment in world.left)
        assert world.everything() == whole.everything()
        met += bool(bare)
    assert met


def damage(world: World, segment: Segment, where: str) -> None:
    """Flip a byte of a part of a segment's footer."""
    data = world.fs.content(segment.path)
    footer = decode_trailer(data[-40:], len(data))
    assert footer is not None
    at = {"arrays": footer.data_end, "summary": footer.summary_at}[where]
    world.fs.flip_bit(segment.path, 8 * at)


@pytest.mark.parametrize("where", ["arrays", "summary"])
def test_the_records_are_read_where_a_footer_was_damaged_meanwhile(
    world: World, where: str
) -> None:
    before = world.everything()
    world.rest()
    damage(world, world.log.segments[1], where)
    assert world.everything() == before
    assert [finding.what for finding in world.storage.report] == [
        "the index in the footer is damaged; the records were read"
    ]
    world.rest()
    assert world.log.segments[1].load is None  # it is read once, and told once
    assert len(world.left) == len(world.log.segments) - 2
    assert world.everything() == before
    assert len(world.storage.report) == 1


def test_a_message_that_rotted_with_the_footer_is_lost_alone_and_told(world: World) -> None:
    before = world.everything()
    segment = world.log.segments[1]
    third = segment.sequence(3)
    at = segment.offsets[3] + 60
    world.rest()
    damage(world, segment, "arrays")
    world.fs.flip_bit(segment.path, 8 * at)
    assert world.everything() == [m for m in before if m.sequence != third]
    assert world.log.messages == len(before) - 1
    assert any("1 records are damaged" in finding.what for finding in world.storage.report)


def test_nothing_changes_while_the_disk_cannot_read(world: World) -> None:
    before = world.everything()
    world.rest()
    world.fs.bar(world.log.segments[0].path)
    with pytest.raises(StoreReadError):
        world.everything()
    with pytest.raises(StoreReadError):
        world.log.remove([2])
    assert world.log.messages == len(before)
    assert world.log.segments[0].reloads == 0
    world.fs.bar(world.log.segments[0].path, 0)
    assert world.everything() == before


def test_a_round_looks_at_many_streams_in_parts(world: World) -> None:
    for number in range(1000):
        world.storage.create_stream(f"T{number}")
    assert world.flush() is None
    for _ in range(40):
        world.clock.advance(idle.REST_NS / 1e9)
        world.storage.complete()
    assert len(world.left) == len(world.log.segments) - 1
    assert disk_of(world.storage) is world.fs


def test_memory_is_given_back_once_there_is_enough_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []
    monkeypatch.setattr(idle, "give_back", lambda: given.append(len(world.left)))
    world.rest()
    assert not given
    world.everything()
    sealed = sum(map(len, world.log.segments[:-1])) * idle.MESSAGE_BYTES
    monkeypatch.setattr(idle, "GIVEN_BACK", 2 * sealed)
    world.rest()
    assert given == [len(world.log.segments) - 1]
