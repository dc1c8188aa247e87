"""The table of subjects: several looked up together, and counted together where all are new."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.store.index.index import SubjectTable

names = st.sampled_from([b"a", b"b.c", b"not one word", *(b"d.%d" % number for number in range(9))])


def seen(table: SubjectTable) -> tuple[Any, ...]:
    columns = [*table.counts], [*table.firsts], [*table.lasts]
    return table.ids, table.names, columns, table.empty, table.mended, len(table)


@given(st.lists(st.lists(names, min_size=1, max_size=12), max_size=6))
def test_subjects_have_the_ids_together_that_they_have_one_by_one(
    groups: list[list[bytes]],
) -> None:
    together, singly = SubjectTable(), SubjectTable()
    for subjects in groups:
        sids = together.intern_each(subjects)
        assert list(sids) == [singly.intern(subject) for subject in subjects]
        assert seen(together) == seen(singly)


def test_new_subjects_are_a_range_which_is_counted_at_once() -> None:
    table, other = SubjectTable(), SubjectTable()
    for each in (table, other):
        each.add(each.intern(b"known"), 1, 4, 4)
    sids = table.intern_each([b"a", b"b", b"c"])
    assert sids == range(1, 4)
    assert isinstance(sids, range)
    table.add_new(sids, 5)
    for sequence, subject in enumerate((b"a", b"b", b"c"), 5):
        other.add(other.intern(subject), sequence, sequence, 1)
    assert seen(table) == seen(other)
    for known in ([b"a", b"d"], [b"e", b"e"]):
        assert not isinstance(table.intern_each(known), range)
