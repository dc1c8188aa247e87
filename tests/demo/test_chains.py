"""Aircraft are followed from leg to leg."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.demo.flights import (
    CHAIN_PAUSE_S,
    LEG_COLUMNS,
    UNKNOWN_AIRCRAFT,
    Flown,
    FoundChain,
    LastLeg,
    follow,
    follow_batches,
    schema_of,
)

COLUMNS = {
    "sequence": "bigint",
    "tailnum": "string",
    "carrier": "string",
    "flight": "int",
    "origin": "string",
    "dest": "string",
    "time_hour": "string",
    "hour": "int",
    "minute": "int",
    "dep_delay": "int",
    "arr_delay": "int",
}
"""As the demo's source has them."""


def flight(
    hour: int, dep: int | None = 0, arr: int | None = 0, tailnum: str = "N1", minute: int = 0
) -> Flown:
    time = f"2013-01-{1 + hour // 24:02d}T{hour % 24:02d}:00:00Z"
    return Flown(0, tailnum, time, minute, dep, arr)


def numbered(flights: list[Flown]) -> list[Flown]:
    return [each._replace(sequence=number) for number, each in enumerate(flights, 1)]


def legs(*flights: Flown) -> list[FoundChain]:
    return list(follow({}, numbered(list(flights))))


def test_the_first_leg_of_an_aircraft_carries_nothing() -> None:
    (leg,) = legs(flight(6, dep=30))
    assert (leg.leg, leg.previous, leg.carried, leg.added) == (1, None, None, None)
    assert leg.scheduled == 1357020000


def test_what_is_late_now_and_was_late_before_is_carried_the_rest_is_added() -> None:
    _, leg = legs(flight(6, arr=20), flight(11, dep=50))
    assert (leg.leg, leg.previous, leg.carried, leg.added) == (2, 1, 20, 30)


def test_a_delay_made_up_in_the_meantime_is_carried_only_as_far_as_it_lasts() -> None:
    _, leg = legs(flight(6, arr=40), flight(11, dep=5))
    assert (leg.carried, leg.added) == (5, 0)


def test_early_is_not_late() -> None:
    _, leg = legs(flight(6, arr=-10), flight(11, dep=-3))
    assert (leg.carried, leg.added) == (0, 0)


def test_a_long_pause_begins_a_new_chain() -> None:
    pause = CHAIN_PAUSE_S // 3600
    assert [leg.leg for leg in legs(flight(0), flight(pause))] == [1, 2]
    assert [leg.leg for leg in legs(flight(0), flight(pause, minute=1))] == [1, 1]


def test_a_cancelled_leg_is_a_link_without_a_number() -> None:
    _, cancelled, after = legs(flight(6, arr=20), flight(9, dep=None, arr=None), flight(12, dep=8))
    assert (cancelled.leg, cancelled.carried, cancelled.added) == (2, None, None)
    assert (after.leg, after.previous, after.carried) == (3, 2, None)


def test_flights_without_an_aircraft_are_no_chain() -> None:
    unknown = UNKNOWN_AIRCRAFT
    _, second = legs(flight(6, arr=9, tailnum=unknown), flight(7, dep=9, tailnum=unknown))
    assert (second.leg, second.previous, second.carried) == (1, None, None)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["N1", "N2", "N3"]),
            st.integers(min_value=0, max_value=6),
            st.none() | st.integers(min_value=-20, max_value=200),
            st.none() | st.integers(min_value=-20, max_value=200),
        ),
        max_size=40,
    ),
    st.integers(min_value=0, max_value=40),
)
def test_it_makes_no_difference_where_the_messages_are_cut_into_batches(
    flown: list[tuple[str, int, int | None, int | None]], cut: int
) -> None:
    hour, flights = 0, []
    for tailnum, step, dep, arr in flown:
        hour += step
        flights.append(flight(hour, dep, arr, tailnum))
    flights = numbered(flights)
    at_once = list(follow({}, flights))
    last: dict[str, LastLeg] = {}
    in_two = [*follow(last, flights[:cut]), *follow(last, flights[cut:])]
    assert at_once == in_two
    for this, leg in zip(flights, at_once, strict=True):
        assert (leg.previous is None) == (leg.leg == 1)
        if leg.carried is not None:
            assert this.dep_delay is not None
            assert leg.added is not None
            assert leg.carried + leg.added == max(0, this.dep_delay)


def test_arrow_batches_in_give_arrow_batches_out_and_leave_the_given_state_alone() -> None:
    flown = [flight(6, arr=3), flight(9, dep=4)]
    rows = [
        {
            **each._asdict(),
            "tailnum": tailnum,
            "carrier": "UA",
            "flight": 1,
            "hour": 6,
            "origin": "EWR",
        }
        for each, tailnum in zip(numbered([*flown, flight(9)]), ("N1", "N1", None), strict=True)
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=schema_of(COLUMNS))
    before: dict[str, LastLeg] = {}
    (out, empty) = follow_batches(before, [batch, batch.slice(0, 0)])
    assert out.schema.names == list(LEG_COLUMNS)
    assert out.column("sequence").to_pylist() == [1, 2, 3]
    assert out.column("tailnum").to_pylist() == ["N1", "N1", UNKNOWN_AIRCRAFT]
    assert out.column("scheduled").to_pylist() == [1357020000, 1357030800, 1357030800]
    assert out.column("previous").to_pylist() == [None, 1, None]
    assert out.column("carried").to_pylist() == [None, 3, None]
    assert empty.num_rows == 0
    assert empty.schema == out.schema
    assert before == {}
