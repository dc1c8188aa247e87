from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource as ds

from headrace.spark.options import SourceOptions, parse_options
from headrace.spark.plans import plan_batch
from headrace.spark.pruning import prune
from headrace.subjects import SubjectFilter

from .conftest import Feed

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
SUBJECTS = ("a", "a.b", "a.b.c", "ab.c", "b")


def options(**given: str) -> SourceOptions:
    return parse_options({"stream": "S", **given})


numbers = st.integers(0, 12)
moments = st.integers(-5, 20).map(lambda n: BEGAN + timedelta(minutes=n))
texts = st.sampled_from((*SUBJECTS, "a.", "", "a b", "*"))
COMPARED: dict[type, Callable[[Any, Any], bool]] = {
    ds.EqualTo: lambda a, b: a == b,
    ds.EqualNullSafe: lambda a, b: a == b,
    ds.GreaterThan: lambda a, b: a > b,
    ds.GreaterThanOrEqual: lambda a, b: a >= b,
    ds.LessThan: lambda a, b: a < b,
    ds.LessThanOrEqual: lambda a, b: a <= b,
    ds.In: lambda a, b: a in b,
    ds.StringStartsWith: lambda a, b: a.startswith(b),
    ds.StringEndsWith: lambda a, b: a.endswith(b),
    ds.StringContains: lambda a, b: b in a,
}


@st.composite
def filters(draw: st.DrawFn) -> Any:
    column, values = draw(
        st.sampled_from(
            [("sequence", numbers), ("timestamp", moments), ("SUBJECT", texts), ("stream", texts)]
        )
    )
    kinds = [kind for kind in COMPARED if column == "SUBJECT" or not kind.__name__.startswith("St")]
    kind: Any = draw(st.sampled_from(kinds))
    value = draw(st.lists(values, min_size=1, max_size=3).map(tuple) if kind is ds.In else values)
    made = kind((column,), value)
    return ds.Not(made) if draw(st.booleans()) else made


def passes(row: dict[str, Any], one: Any) -> bool:
    if isinstance(one, ds.Not):
        return not passes(row, one.child)
    return COMPARED[type(one)](row[one.attribute[0].lower()], one.value)


def is_read(by: SourceOptions, subject: str) -> bool:
    patterns = [each.encode() for each in by.subjects]
    return not patterns or SubjectFilter(patterns).matches(subject.encode())


@given(st.lists(filters(), max_size=4), st.sampled_from(["", "a.>", "a,b"]))
def test_no_row_that_passes_the_filters_is_left_out(wanted: list[Any], subjects: str) -> None:
    whole = options(subjects=subjects)
    pruned = prune(whole, wanted)
    bounds = pruned.bounds
    for number in range(1, 12):
        subject = SUBJECTS[number % len(SUBJECTS)]
        moment = BEGAN + timedelta(minutes=number)
        row = {"sequence": number, "timestamp": moment, "subject": subject, "stream": "S"}
        if not (is_read(whole, subject) and all(passes(row, one) for one in wanted)):
            continue
        stored_ns = int(moment.timestamp()) * 1_000_000_000
        assert bounds.first <= number
        assert bounds.last is None or number <= bounds.last
        assert bounds.since_ns <= stored_ns
        assert not bounds.until_ns or stored_ns < bounds.until_ns
        assert is_read(pruned, subject)
        assert pruned.streams == ("S",)


@pytest.mark.parametrize(
    ("wanted", "first", "last"),
    [
        ([ds.GreaterThan(("sequence",), 5), ds.LessThan(("sequence",), 9)], 6, 8),
        ([ds.In(("SEQUENCE",), (9, 4))], 4, 9),
        ([ds.EqualTo(("sequence",), 7)], 7, 7),
        ([ds.Not(ds.EqualTo(("sequence",), 7))], 0, None),
        ([ds.EqualTo(("sequence", "x"), 7)], 0, None),
        ([ds.IsNotNull(("sequence",))], 0, None),
    ],
)
def test_filters_on_sequences_narrow_the_range(
    wanted: list[Any], first: int, last: int | None
) -> None:
    bounds = prune(options(), wanted).bounds
    assert (bounds.first, bounds.last) == (first, last)


def test_filters_on_subjects_become_subjects() -> None:
    def left(one: Any, **given: str) -> tuple[str, ...]:
        return prune(options(**given), [one]).subjects

    assert left(ds.EqualTo(("subject",), "a.b")) == ("a.b",)
    assert left(ds.In(("subject",), ("a", "b", "a"))) == ("a", "b")
    assert left(ds.StringStartsWith(("subject",), "orders.eu.x")) == ("orders.eu.>",)
    assert left(ds.StringStartsWith(("subject",), "ord")) == ()
    assert left(ds.In(("subject",), ("a.b", "b")), subjects="a.>") == ("a.b",)
    nothing = prune(options(subjects="a.>"), [ds.EqualTo(("subject",), "b")])
    assert nothing.bounds.last == 0


def test_a_plan_reads_what_the_filters_leave(feed: Feed) -> None:
    feed.publish_numbers(1, 100)
    given = {"stream": feed.name, "servers": feed.url}

    def planned(*wanted: Any) -> list[tuple[int, int]]:
        pieces = plan_batch(prune(parse_options(given, streaming=False), wanted))
        return [(piece.lo, piece.hi) for piece in pieces]

    now = datetime.now(UTC)
    assert planned() == [(0, 100)]
    by_sequence = [ds.GreaterThan(("sequence",), 40), ds.LessThanOrEqual(("sequence",), 60)]
    assert planned(*by_sequence) == [(40, 60)]
    assert planned(ds.GreaterThan(("timestamp",), now + timedelta(hours=1))) == []
    assert planned(ds.LessThan(("timestamp",), now - timedelta(hours=1))) == []
    assert planned(ds.GreaterThan(("timestamp",), now - timedelta(hours=1))) == [(0, 100)]
    assert planned(ds.EqualTo(("stream",), "OTHER")) == []
    assert planned(ds.EqualTo(("subject",), f"{feed.name}.none")) == []
