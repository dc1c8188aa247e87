"""Which value of a key is the later one, and that writers in any order leave it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.sink.markers import FencedError, PlanId
from headrace.spark.sink.versions import (
    RowVersion,
    Verdict,
    Version,
    Writing,
    judge,
    order_id,
    read_version,
)

ROWS_MAX = 6
TASKS = 3


VERSIONS = st.builds(
    Version,
    st.from_regex(r"[A-Za-z0-9_=-]{1,64}", fullmatch=True),
    st.integers(0, 2**63),
    st.builds(PlanId, st.integers(0, 2**63), st.just("a0b1")),
    st.builds(
        RowVersion,
        st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3).map(tuple),
        st.integers(0, 1000),
        st.integers(0, 2**40),
    ),
    st.just("00ff"),
    st.sampled_from(["", order_id(["at"])]),
)


@given(VERSIONS)
def test_a_version_is_read_as_it_was_written(version: Version) -> None:
    block = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 4\r\n%b\r\n" % version.encode()
    assert read_version(block) == version


@pytest.mark.parametrize(
    "line", ["", "a", "a 1 2 n - 0.0", "a b c d e f g", "a 1 2 n - 0 d", "a 1 2 n x 0.0 d"]
)
def test_what_is_no_version_is_nobody_s(line: str) -> None:
    assert read_version(b"NATS/1.0\r\nHeadrace-Version: %b\r\n\r\n" % line.encode()) is None
    assert read_version(b"NATS/1.0\r\nX: Headrace-Version: a\r\n\r\n") is None
    assert read_version(b"") is None


def version(batch: int, run: int, row: int, partition: int, *, ordered: bool) -> Version:
    place = RowVersion((row,) if ordered else (), partition, row)
    return Version("s", batch, PlanId(run, "n"), place, f"{batch}.{row}")


@st.composite
def histories(draw: Any) -> tuple[list[list[Version]], bool, bool]:
    """Writes of one key, in the order in which they come to the server, each batch behind the one before.

    A batch has rows in tasks, contiguous ones as its source reads them. Runs of it that were given up store
    their rows when they like, also after the last run.
    """
    ordered, exactly = draw(st.booleans()), draw(st.booleans())
    run = 0
    late: list[Version] = []
    history: list[list[Version]] = []
    for batch in range(draw(st.integers(1, 3))):
        rows = draw(st.integers(1, ROWS_MAX))
        for attempt in range(draw(st.integers(1, 3))):
            run += 1
            cut = sorted(draw(st.lists(st.integers(0, rows), min_size=TASKS, max_size=TASKS)))
            writes = [
                version(batch, run, row, sum(row >= each for each in cut), ordered=ordered)
                for row in range(rows)
            ]
            writes = draw(st.permutations(writes))
            if not ordered:  # a task stores its own rows in their order
                tasks = {
                    at: [each for each in writes if each.place.partition == at] for at in range(4)
                }
                turns = [each.place.partition for each in writes]
                queues = {
                    at: iter(sorted(each, key=lambda one: one.place)) for at, each in tasks.items()
                }
                writes = [next(queues[at]) for at in turns]
            old = draw(st.lists(st.sampled_from(late), max_size=4)) if late else []
            mixed = draw(st.permutations([*writes, *old]))
            history.append([*mixed])
            late += writes
            if attempt and draw(st.booleans()):
                break
    history.append(draw(st.lists(st.sampled_from(late), max_size=6)))
    return history, ordered, exactly


@given(histories())
def test_the_last_row_of_the_last_batch_is_left_whoever_writes_when(
    given_history: tuple[list[list[Version]], bool, bool],
) -> None:
    history, _, exactly = given_history
    stored: Version | None = None
    last = max(each for writes in history for each in writes)
    for writes in history:
        for each in writes:
            try:
                verdict = judge(stored, each, exactly=exactly)
            except FencedError:
                assert stored is not None
                assert (each.batch, each.plan) < (stored.batch, stored.plan)
                continue
            assert verdict is not Verdict.OUTRUN
            if verdict is Verdict.STORE:
                stored = each
        # While the last run of a batch is not through, what is stored may be another run's.
    assert stored is not None
    final = max(
        (each for writes in history for each in writes if each.batch == last.batch),
        key=lambda each: each.place.row,
    )
    assert stored.digest == final.digest


@given(VERSIONS, VERSIONS, st.booleans(), st.booleans(), st.sampled_from(["", "x", " ", "9"]))
def test_a_task_writes_the_same_lines_and_judges_the_same_in_a_quicker_way(
    mine: Version, other: Version, is_same_sink: bool, exactly: bool, damage: str
) -> None:
    writing = Writing(mine.sink, mine.batch, mine.plan, mine.place.partition, mine.by)
    assert writing.line(mine.place.order, mine.place.row, mine.digest) == mine.encode()
    if is_same_sink:
        other = other._replace(sink=mine.sink)
    line = other.encode().replace(b" ", b" " + damage.encode(), 3)
    block = b"NATS/1.0\r\nX: Headrace-Version: a\r\n%b\r\n" % line
    if writing.is_later(block):
        assert judge(read_version(block), mine, exactly=exactly) is Verdict.STORE
    elif not damage and not mine.by:
        assert not is_same_sink or other.batch >= mine.batch
    assert writing.is_later(b"") and writing.is_later(b"NATS/1.0\r\nX: y\r\n\r\n")


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.booleans()), min_size=1),
    st.booleans(),
)
def test_by_the_columns_of_the_order_a_late_row_never_replaces_a_later_one(
    rows: list[tuple[int, int, bool]], exactly: bool
) -> None:
    """Batches, each with a row of the key, by one sink or the other."""
    by = order_id(["at"])
    stored: Version | None = None
    for batch, (run, at, is_other) in enumerate(rows):
        place = RowVersion((at,), 0, 0)
        mine = Version("ab"[is_other], batch, PlanId(run, "n"), place, f"{batch}", by)
        verdict = judge(stored, mine, exactly=exactly)
        if verdict is Verdict.STORE:
            stored = mine
        elif verdict is Verdict.LATE:
            assert stored is not None and stored.place.order > mine.place.order
    assert stored is not None
    assert stored.place.order == (max(at for _, at, _ in rows),)


def test_an_order_by_other_columns_is_compared_with_nothing() -> None:
    plan, early, late = PlanId(1, "n"), RowVersion((1,), 0, 0), RowVersion((9,), 0, 0)
    stored = Version("s", 1, plan, late, "a", order_id(["at"]))
    for by in ("", order_id(["version"])):
        assert judge(stored, Version("s", 2, plan, early, "b", by), exactly=False) is Verdict.STORE
    same = Version("s", 2, plan, early, "b", order_id(["AT"]))
    assert judge(stored, same, exactly=False) is Verdict.LATE
    assert judge(stored._replace(by=""), same, exactly=False) is Verdict.STORE
