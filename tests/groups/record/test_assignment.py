"""Which partition belongs to whom: the table of the shipped implementation, and what holds for all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_world import moved, moves_needed
from headrace.groups import GroupConfigurationError, MemberMapping
from headrace.groups.record.assignment import assign, filter_subjects
from headrace.groups.record.names import (
    check_group_name,
    check_member_name,
    check_stream_name,
    group_of,
    key_of,
    split_subject,
)

THREE = ["m1", "m2", "m3"]


@pytest.mark.parametrize(
    ("partitions", "members", "expected"),
    [
        (6, THREE, {"m1": (0, 1), "m2": (2, 3), "m3": (4, 5)}),
        (7, THREE, {"m1": (0, 1, 6), "m2": (2, 3), "m3": (4, 5)}),
        (8, THREE, {"m1": (0, 1, 6), "m2": (2, 3, 7), "m3": (4, 5)}),
        (2, THREE, {"m1": (0,), "m2": (1,), "m3": ()}),
        (3, ["b", "a", "b", "B"], {"B": (0,), "a": (1,), "b": (2,)}),
        (3, [], {}),
    ],
)
def test_the_table(
    partitions: int, members: list[str], expected: dict[str, tuple[int, ...]]
) -> None:
    assert assign(partitions, members) == expected


members = st.lists(st.text("abcXYZ-_=019", min_size=1, max_size=4), max_size=12)
counts = st.integers(1, 40)


@given(counts, members)
def test_every_partition_has_one_owner_and_the_load_is_even(
    partitions: int, names: list[str]
) -> None:
    owned = assign(partitions, names)
    assert list(owned) == sorted(set(names))
    numbers = sorted(number for each in owned.values() for number in each)
    assert numbers == (list(range(partitions)) if names else [])
    sizes = [len(each) for each in owned.values()][:partitions]
    assert max(sizes, default=0) - min(sizes, default=0) <= 1
    assert all(list(each) == sorted(each) for each in owned.values())
    assert assign(partitions, reversed(names)) == owned  # in whatever order they are stored


@given(counts, members, members)
def test_no_change_moves_fewer_than_is_needed(
    partitions: int, before: list[str], after: list[str]
) -> None:
    one, other = assign(partitions, before), assign(partitions, after)
    gone = moved(one, other)
    assert gone == {
        n for name, numbers in one.items() for n in numbers if n not in other.get(name, ())
    }
    if one:
        assert len(gone) >= moves_needed(partitions, len(one), len(other))
    assert not moved(one, one)


def test_the_fewest_that_must_move() -> None:
    assert moves_needed(12, 3, 4) == 3
    assert moves_needed(12, 4, 3) == 3
    assert moves_needed(6, 1, 2) == 3
    assert moves_needed(4, 8, 9) == 0  # who comes is without work
    assert moves_needed(4, 0, 2) == moves_needed(4, 2, 0) == 4
    assert moves_needed(4, 0, 0) == 0


def test_filters_are_in_the_order_that_others_create_them() -> None:
    assert filter_subjects((0, 2), ("foo.*", "bar.>")) == (
        "0.foo.*",
        "2.foo.*",
        "0.bar.>",
        "2.bar.>",
    )
    assert filter_subjects((0, 2)) == ("0.>", "2.>")
    assert filter_subjects((0, 2), ("a", "b"), mapped=True) == ("0.>", "2.>")  # each only once
    assert filter_subjects((), ("a",)) == ()
    assert assign(2, mappings=[MemberMapping("x", (1, 0))]) == {"x": (1, 0)}


names = st.from_regex(r"[-_=a-zA-Z0-9]{1,20}", fullmatch=True)


@given(names, names, names)
def test_a_key_tells_its_stream_and_group(stream: str, group: str, other: str) -> None:
    key = key_of(check_stream_name(stream), check_group_name(group))
    assert group_of(stream, key) == group
    assert (group_of(other, key) is None) == (other != stream)


@given(st.text(max_size=10) | st.sampled_from(["a.b", "a*", ">", "a/b", "a\n", "é", "", "a" * 129]))
def test_a_name_is_accepted_or_refused_for_all(name: str) -> None:
    accepted = 0 < len(name) <= 128 and all(
        c.isascii() and (c.isalnum() or c in "-_=") for c in name
    )
    for check in (check_group_name, check_member_name):
        if accepted:
            assert check(name) == name
        else:
            with pytest.raises(GroupConfigurationError, match="accepted are 1 to 128"):
                check(name)


def test_a_subject_is_split() -> None:
    assert split_subject("12.orders.new") == (12, "orders.new")
    for wrong in ("orders.new", "12", ".x", "-1.x", "x"):
        with pytest.raises(ValueError, match="does not begin with a partition"):
            split_subject(wrong)
