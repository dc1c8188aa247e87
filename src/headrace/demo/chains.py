"""Follows each aircraft from leg to leg. Pure: flights in, legs out.

All flights of the data leave New York, so an aircraft's next leg begins after it has come back. The part of
a late arrival that remains at the next departure was *carried*:
``min(late arrival before, late departure now)``. The rest of the late departure was *added* on the ground.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .flights import UNKNOWN_AIRCRAFT

if TYPE_CHECKING:
    import pyarrow as pa

CHAIN_PAUSE_S: Final = 10 * 3600
"""A longer time between two scheduled departures ends a chain: the aircraft rested overnight, and its
delays are no longer correlated.
"""

_FLIGHT_COLUMNS: Final = {
    "sequence": "bigint",
    "tailnum": "string",
    "carrier": "string",
    "flight": "int",
    "origin": "string",
    "dest": "string",
    "hour": "int",
    "dep_delay": "int",
    "arr_delay": "int",
}
_FOUND_COLUMNS: Final = {
    "scheduled": "bigint",
    "leg": "int",
    "previous": "bigint",
    "carried": "int",
    "added": "int",
}
LEG_COLUMNS: Final = _FLIGHT_COLUMNS | _FOUND_COLUMNS
"""A leg: what its flight says, and its place in the chain of its aircraft.

``sequence`` is its place in the stream, ``scheduled`` the departure in seconds since the epoch and
``hour`` its local hour; ``leg`` counts from 1 in each chain; ``previous`` is the sequence of the
leg before. ``carried`` and ``added`` are minutes, missing for the first leg of a chain, and where
either flight has no delay on record (cancelled, diverted).
"""


class LastLeg(NamedTuple):
    """The state of an aircraft between two of its legs."""

    sequence: int
    scheduled: int
    leg: int
    arr_delay: int | None


class Flown(NamedTuple):
    """The part of a flight that chains need; what ``follow_batches`` takes from its columns."""

    sequence: int
    tailnum: str
    time_hour: str
    minute: int
    dep_delay: int | None
    arr_delay: int | None


class FoundChain(NamedTuple):
    """What following finds of a flight: the columns ``_FOUND_COLUMNS``."""

    scheduled: int
    leg: int
    previous: int | None
    carried: int | None
    added: int | None


def follow(last: dict[str, LastLeg], flights: Iterable[tuple[Any, ...]]) -> Iterator[FoundChain]:
    """What is found of these flights (``Flown``); reads and updates each aircraft's last leg."""
    hours: dict[str, int] = {}
    for sequence, tailnum, time_hour, minute, dep_delay, arr_delay in flights:
        hour = hours.get(time_hour)
        if hour is None:
            hour = hours[time_hour] = _seconds(time_hour)
        scheduled = hour + 60 * minute
        before = last.get(tailnum)
        number, previous, carried, added = 1, None, None, None
        if before is not None and scheduled - before.scheduled <= CHAIN_PAUSE_S:
            number, previous = before.leg + 1, before.sequence
            if before.arr_delay is not None and dep_delay is not None:
                late = max(0, dep_delay)
                carried = min(max(0, before.arr_delay), late)
                added = late - carried
        if tailnum != UNKNOWN_AIRCRAFT:
            last[tailnum] = LastLeg(sequence, scheduled, number, arr_delay)
        yield FoundChain(scheduled, number, previous, carried, added)


def follow_batches(
    last: dict[str, LastLeg], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """``follow`` over the Arrow batches of one task: the flights' columns in, legs out.

    Requires that a task sees every message of its aircraft, in order. ``last`` is left as it is.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    found_schema = schema_of(_FOUND_COLUMNS)
    last = dict(last)
    for batch in batches:
        columns = {name: batch.column(name) for name in _FLIGHT_COLUMNS}
        columns["tailnum"] = pc.fill_null(columns["tailnum"], UNKNOWN_AIRCRAFT)
        taken = [columns.get(name, batch.column(name)).to_pylist() for name in Flown._fields]
        lists = list(zip(*follow(last, zip(*taken, strict=True)), strict=True))
        for field, values in zip(found_schema, lists or [()] * len(found_schema), strict=True):
            columns[field.name] = pa.array(values, field.type)
        arrays = [columns[name] for name in LEG_COLUMNS]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema_of(LEG_COLUMNS))


def schema_of(columns: Mapping[str, str]) -> pa.Schema:
    """Columns with Spark's types as Arrow has them."""
    import pyarrow as pa

    kinds: dict[str, Any] = {"bigint": pa.int64(), "int": pa.int32(), "string": pa.string()}
    return pa.schema([(name, kinds[kind]) for name, kind in columns.items()])


def _seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())
