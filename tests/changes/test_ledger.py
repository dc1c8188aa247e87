"""The model of the soak of changes finds what it is there for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from changes.ledger import Kept, Lane


def lane(*, keeps_order: bool = True, stored: int = 3) -> Lane:
    made = Lane("l", keeps_order)
    for _ in range(stored):
        made.store("k", made.begin("k"), 0.0)
    return made


def test_what_is_handled_once_and_in_order_is_right() -> None:
    made = lane()
    for number in range(3):
        made.handle("k", number, 1.0)
        made.confirm("k", number)
    made.look(100.0)
    made.end()
    assert made.wrong == []
    assert made.counts["handled"] == 3


def test_what_is_not_handled_is_lost() -> None:
    made = lane()
    made.handle("k", 0, 1.0)
    made.end()
    assert made.wrong == ["l: lost: k [1, 2]"]


def test_what_was_confirmed_must_not_come_again_and_what_was_not_may() -> None:
    made = lane()
    made.handle("k", 0, 1.0)
    made.handle("k", 0, 1.0)
    assert (made.wrong, made.again) == ([], 1)
    made.confirm("k", 0)
    made.handle("k", 0, 1.0)
    assert made.wrong == ["l: doubled: k 0 was confirmed, and comes again"]


def test_what_may_be_stored_twice_may_come_twice_though_it_was_confirmed() -> None:
    made = Lane("l", keeps_order=True)
    made.begin("k")
    made.doubt("k", 0)
    made.store("k", 0, 0.0)
    made.handle("k", 0, 0.0)
    made.confirm("k", 0)
    made.handle("k", 0, 1.0)
    assert (made.wrong, made.again) == ([], 1)


def test_the_order_of_a_key_is_judged_where_it_is_promised() -> None:
    for keeps_order, wrong in ((True, ["l: out of order: k 2 after 0"]), (False, [])):
        made = lane(keeps_order=keeps_order)
        made.handle("k", 0, 1.0)
        made.handle("k", 2, 1.0)
        assert made.wrong == wrong


def test_what_nobody_sent_is_told() -> None:
    made = lane(stored=1)
    made.handle("k", 1, 1.0)
    assert made.wrong == ["l: invented: k 1, and 1 were sent"]


def test_a_key_that_waits_in_silence_is_stuck_and_one_that_is_explained_is_not() -> None:
    silent, explained = lane(), lane()
    explained.say("paused", 5.0)
    for each in (silent, explained):
        each.look(10.0)
        assert each.wrong == []
        each.look(10.5)
    assert silent.wrong[0].startswith("l: stuck: k 0 waits 10 s")
    assert (explained.wrong, explained.explained) == ([], 1)
    explained.look(20.0)
    assert explained.wrong == []
    explained.look(21.0)
    assert len(explained.wrong) == 1


def test_what_was_handed_out_when_the_link_was_lost_may_wait_for_its_time() -> None:
    made = lane()
    made.explain_until(15.0)
    made.look(24.0)
    assert (made.wrong, made.explained) == ([], 1)
    made.look(40.0)
    assert len(made.wrong) == 1


def test_limits_take_the_oldest_or_refuse_the_newest() -> None:
    kept = Kept()
    for sequence in range(1, 11):
        kept.store(sequence, f"s.{sequence % 2}")
    kept.change(4, -1, "new")
    assert len(kept.held) == 10
    assert kept.refuse() == ""
    kept.change(-1, 3, "new")
    assert [sequence for sequence, _ in kept.held] == [5, 6, 7, 8, 9, 10]
    assert kept.refuse() == "refused with 6 of -1, new"
    kept.change(2, -1, "old")
    kept.store(11, "s.1")
    assert [sequence for sequence, _ in kept.held] == [10, 11]


@given(
    st.lists(
        st.tuples(st.sampled_from(["store", "change"]), st.integers(0, 4), st.integers(1, 6)),
        max_size=40,
    )
)
def test_what_is_kept_is_within_the_limits_and_ends_with_the_newest(
    steps: list[tuple[str, int, int]],
) -> None:
    kept, sequence = Kept(), 0
    for what, subject, most in steps:
        if what == "store":
            sequence += 1
            kept.store(sequence, f"s.{subject}")
            assert kept.held[-1][0] == sequence
        else:
            kept.change(most, subject or -1, "old")
        found = [each for each, _ in kept.held]
        assert found == sorted(set(found))
        assert kept.max_msgs < 0 or len(kept.held) <= kept.max_msgs


def test_what_is_on_its_way_is_waited_for() -> None:
    made = lane(stored=0)
    number = made.begin("k")
    assert made.waiting == 1, "it may be stored yet, and has to be handled then"
    made.store("k", number, 1.0)
    assert made.waiting == 1
    made.handle("k", number, 2.0)
    assert made.waiting == 0
    made.begin("k")
    made.handle("k", 1, 3.0)
    assert made.waiting == 0, "it was stored, or nobody could have it"
