from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.jetstream.publish.duplicate_window import (
    DuplicateWindow,
    KnownId,
    LeftIds,
)
from headrace.broker.store import MemoryStorage


def test_an_id_is_known_within_the_window_only() -> None:
    window = DuplicateWindow(100)
    window.add(b"a", 7, now_ns=1000)
    assert window.find(b"a", 1099) == 7
    assert window.find(b"a", 1100) == 0
    assert len(window) == 0


def test_an_id_used_again_after_its_window_is_remembered_anew() -> None:
    window = DuplicateWindow(100)
    window.add(b"a", 1, 0)
    assert window.find(b"a", 150) == 0
    window.add(b"a", 2, 150)
    assert window.find(b"a", 200) == 2


def test_without_a_window_only_the_last_id_is_known() -> None:
    window = DuplicateWindow(0)
    window.add(b"a", 1, 0)
    assert window.find(b"a", 0) == 0
    assert window.last_id == b"a"


def test_beyond_so_many_ids_the_oldest_are_forgotten() -> None:
    window = DuplicateWindow(100, ids_max=2)
    for sequence, message_id in enumerate([b"a", b"b", b"c"], 1):
        window.add(message_id, sequence, 0)
    assert [window.find(message_id, 1) for message_id in (b"a", b"b", b"c")] == [0, 2, 3]
    assert len(window) == 2


ids = st.integers(0, 20).map(lambda number: b"%d" % number)
work = st.lists(st.lists(ids, min_size=1, max_size=6) | st.integers(1, 120), max_size=20)


@given(work, st.sampled_from([0, 100]), st.integers(1, 12), st.integers(0, 60))
def test_ids_added_together_are_as_ids_added_one_by_one(
    steps: list[list[bytes] | int], window_ns: int, ids_max: int, kept: int
) -> None:
    one, other = DuplicateWindow(window_ns, ids_max), DuplicateWindow(window_ns, ids_max)
    now_ns = sequence = 0
    for step in steps:
        if isinstance(step, int):
            now_ns += step
            continue
        taken = other.are_new(step, now_ns)
        if taken:
            other.add_many(step, sequence + 1, now_ns)
        for name in step:
            if one.find(name, now_ns):
                assert not taken
                continue
            sequence += 1
            one.add(name, sequence, now_ns)
            if not taken:
                other.add(name, sequence, now_ns)
    one.forget_after(kept)
    other.forget_after(kept)
    everything = [b"%d" % number for number in range(21)]
    assert [one.find(name, now_ns) for name in everything] == [
        other.find(name, now_ns) for name in everything
    ]
    assert (one.last_id, one.last_sequence) == (other.last_id, other.last_sequence)


def test_an_id_that_comes_twice_is_not_new_unless_nothing_is_remembered() -> None:
    assert not DuplicateWindow(100).are_new([b"a", b"b", b"a"], 0)
    assert DuplicateWindow(0).are_new([b"a", b"b", b"a"], 0)
    assert DuplicateWindow(100).are_new([b"a", b"b"], 0)


removals = st.lists(
    st.tuples(st.sampled_from(["left", "below", "add", "gap"]), st.integers(1, 8)), max_size=40
)


@given(removals, st.randoms(use_true_random=False), st.integers(3, 60))
def test_what_has_left_is_noted_with_its_id_and_no_other(
    steps: list[tuple[str, int]], random: Random, ids_max: int
) -> None:
    window, journal = DuplicateWindow(100, ids_max), LeftIds(MemoryStorage().meta, "S", 1)
    window.notes_left = True
    there: dict[int, bytes] = {}
    gone: dict[int, bytes] = {}
    sequence = 0
    for now_ns, (step, size) in enumerate(steps):
        if step == "add":
            names = [b"%d%b" % (sequence + n, b"\n" * random.randint(0, 1)) for n in range(size)]
            window.add_many(names, sequence + 1, now_ns)
            there |= dict(enumerate(names, sequence + 1))
            sequence += size
        elif step == "gap":
            sequence += size
        elif step == "left":
            some = random.sample(sorted(there), min(size, len(there)))
            some = sorted(some) if random.randint(0, 1) else some
            window.left(some)
            gone |= {each: there.pop(each) for each in some}
        else:
            below = random.randint(0, sequence + 1)
            window.left_below(below)
            gone |= {each: there.pop(each) for each in sorted(there) if each < below}
        if window.has_left:
            journal.add(window.take_left(), 1000, 0)
    known = sorted({**there, **gone})[-ids_max:]
    found = {(each.sequence, each.message_id) for each in journal.load(0, sequence)}
    assert found >= {(each, gone[each]) for each in known if each in gone}
    assert found <= {*gone.items()}
    journal.forget_after(sequence // 2)
    later = {(each.sequence, each.message_id) for each in journal.load(0, sequence)}
    assert later == {each for each in found if each[0] <= sequence // 2}


def test_what_a_start_finds_comes_before_what_was_added_since() -> None:
    window = DuplicateWindow(100)
    window.add(b"new", 9, 50)
    window.fill([KnownId(7, 20, b"b"), KnownId(3, 10, b"a")])
    assert [window.find(name, 60) for name in (b"a", b"b", b"new")] == [3, 7, 9]
    assert [window.find(name, 115) for name in (b"a", b"b", b"new")] == [0, 7, 9]
    assert (window.last_id, window.last_sequence) == (b"new", 9)


def test_ids_are_noted_whatever_the_order_and_where_a_message_between_them_has_none() -> None:
    window = DuplicateWindow(100)
    window.notes_left = True
    for sequence in (3, 4, 7):
        window.add(b"%d" % sequence, sequence, 0)
    window.left([3, 9, 4])
    noted = {run.first + n: each for run in window.take_left() for n, each in enumerate(run.ids)}
    assert noted == {3: b"3", 4: b"4"}
