from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.jetstream.publish.duplicate_window import DuplicateWindow


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
