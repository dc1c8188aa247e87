"""Rows and their hash, without a stream."""

from __future__ import annotations

import pytest

from headrace.errors import ConfigurationError
from headrace.spark.sink.fenced import Tally
from headrace.spark.sink.markers import (
    FencedError,
    Marker,
    Plan,
    PlanChangedError,
    PlanId,
    decode_marker,
    decode_plan,
    next_plan,
    not_confirmed,
)
from headrace.spark.sink.rows import Rows

A, B = PlanId(1, "a"), PlanId(2, "b")


def rows(first: int, last: int) -> Rows:
    payloads = [b"%d" % number for number in range(first, last + 1)]
    return Rows([b"s"] * len(payloads), [b""] * len(payloads), payloads)


def stored(count: int, *, is_last: bool, digest: str = "") -> Marker:
    one = Tally("it")
    one.add(rows(1, count))
    return Marker(0, A, count, digest or one.chunk(count).digest, is_last)


def test_what_is_stored_is_passed_over_however_the_rows_are_cut() -> None:
    for cut in (1, 3, 7, 20):
        tally = Tally("it")
        tally.expect(stored(7, is_last=False))
        met = []
        for at in range(1, 21, cut):
            tally.add(rows(at, min(at + cut - 1, 20)))
            met.append(tally.compare())
        assert [each.rows for each in met if each] == [7]
        assert tally.stored == 7
        assert len(tally) == 13
        assert tally.chunk(2).rows.payloads == [b"8", b"9"]
        tally.end()


@pytest.mark.parametrize(
    ("marker", "count", "complaint"),
    [
        (stored(7, is_last=False, digest="00"), 9, "first 7 rows are not those"),
        (stored(7, is_last=True), 9, "it had 7 rows, and now has more"),
        (stored(7, is_last=True), 6, "the stream has 7 rows of it, and now it has 6"),
        (stored(7, is_last=False), 6, "the stream has 7 rows of it"),
    ],
)
def test_other_rows_than_before_are_refused(marker: Marker, count: int, complaint: str) -> None:
    tally = Tally("partition 0")
    tally.expect(marker)
    tally.add(rows(1, count))
    with pytest.raises(PlanChangedError, match=complaint):
        tally.compare()
        tally.end()


def test_rows_after_the_last_one_are_refused_when_they_come_later() -> None:
    tally = Tally("it")
    tally.expect(stored(7, is_last=True))
    tally.add(rows(1, 7))
    assert tally.compare() is not None
    tally.add(Rows([], [], []))
    with pytest.raises(PlanChangedError, match="now has more"):
        tally.add(rows(8, 8))


def test_the_hash_tells_subjects_headers_and_payloads_apart() -> None:
    made = set()
    for subject, lines, payload in ((b"a", b"", b"bc"), (b"ab", b"", b"c"), (b"a", b"b", b"c")):
        tally = Tally("it")
        tally.add(Rows([subject], [lines], [payload]))
        made.add(tally.chunk(1).digest)
    assert len(made) == 3


def test_records_travel() -> None:
    plan = Plan(4, A, True, 9)
    assert decode_plan(plan.encode(), 9, "s") == plan
    marker = Marker(4, B, 999, "ab", True, 12)
    assert decode_marker(marker.encode(), 12, "s") == marker
    for stranger in (b"hello", b'{"a":' * 5000):
        with pytest.raises(ConfigurationError, match="'s' is no marker of a sink"):
            decode_marker(stranger, 1, "s")
    with pytest.raises(ConfigurationError, match="has version 2"):
        decode_plan(plan.encode().replace(b'"v":1', b'"v":2'), 1, "s")


def test_who_writes_next() -> None:
    assert next_plan(None, None, 5, A, "s") == Plan(5, A, False, 0)
    assert next_plan(Plan(4, B, True, 7), None, 5, A, "s") == Plan(5, A, False, 7)
    assert next_plan(Plan(5, A, False, 7), None, 5, A, "s") is None
    assert next_plan(Plan(5, A, False, 7), None, 5, B, "s") == Plan(5, B, True, 7)
    # Limits removed the plan: the newest marker knows.
    assert next_plan(None, Marker(5, A, 1, "", False, 3), 5, B, "s") == Plan(5, B, True, 0)
    assert next_plan(None, Marker(4, A, 1, "", False, 3), 5, B, "s") == Plan(5, B, False, 0)


def test_who_does_not() -> None:
    with pytest.raises(FencedError, match="a later run of batch 5"):
        next_plan(Plan(5, B, False, 7), None, 5, A, "s")
    with pytest.raises(FencedError, match="a later run of batch 5"):
        next_plan(None, Marker(5, B, 1, "", False, 3), 5, A, "s")
    with pytest.raises(FencedError, match="is at batch 6, and this is a writer of batch 5"):
        next_plan(Plan(6, A, False, 7), None, 5, B, "s")
    with pytest.raises(FencedError, match="new or restored checkpoint"):
        next_plan(None, Marker(6, A, 1, "", False, 3), 0, B, "s")


def test_only_markers_of_this_batch_and_of_other_runs_wait_for_a_comparison() -> None:
    old, before, mine = (
        Marker(4, A, 1, "", True), Marker(5, A, 1, "", True), Marker(5, B, 1, "", True)
    )  # fmt: skip
    assert not_confirmed([old, before, mine], Plan(5, B, True)) == [before]
