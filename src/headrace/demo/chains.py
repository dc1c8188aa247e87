"""Follows each aircraft from leg to leg. Pure: flights in, legs out.

All flights of the data leave New York, so an aircraft's next leg begins after it has come back. The part of
a late arrival that remains at the next departure was *carried*:
``min(late arrival before, late departure now)``. The rest of the late departure was *added* on the ground.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from .flights import UNKNOWN_AIRCRAFT

if TYPE_CHECKING:
    import pyarrow as pa

CHAIN_PAUSE_S: Final = 10 * 3600
"""A longer time between two scheduled departures ends a chain: the aircraft rested overnight, and its
delays are no longer correlated.
"""

LEG_COLUMNS: Final = {
    "sequence": "bigint",
    "tailnum": "string",
    "carrier": "string",
    "flight": "int",
    "origin": "string",
    "dest": "string",
    "scheduled": "bigint",
    "hour": "int",
    "dep_delay": "int",
    "arr_delay": "int",
    "leg": "int",
    "previous": "bigint",
    "carried": "int",
    "added": "int",
}


class LastLeg(NamedTuple):
    """The state of an aircraft between two of its legs."""

    sequence: int
    scheduled: int
    leg: int
    arr_delay: int | None


class Leg(NamedTuple):
    """One flight as part of its aircraft's chain.

    ``sequence`` is its place in the stream, ``scheduled`` the departure in seconds since the epoch and
    ``hour`` its local hour; ``leg`` counts from 1 in each chain; ``previous`` is the sequence of the
    leg before. ``carried`` and ``added`` are minutes, missing for the first leg of a chain, and where
    either flight has no delay on record (cancelled, diverted).
    """

    sequence: int
    tailnum: str
    carrier: str
    flight: int
    origin: str
    dest: str
    scheduled: int
    hour: int
    dep_delay: int | None
    arr_delay: int | None
    leg: int
    previous: int | None
    carried: int | None
    added: int | None


class _Flight(msgspec.Struct):
    """The part of a message that chains need; the rest is skipped without decoding."""

    time_hour: str
    minute: int
    hour: int
    carrier: str
    flight: int
    origin: str
    dest: str
    tailnum: str = UNKNOWN_AIRCRAFT
    dep_delay: int | None = None
    arr_delay: int | None = None


_decode = msgspec.json.Decoder(_Flight).decode


def follow(last: dict[str, LastLeg], messages: Iterable[tuple[int, bytes]]) -> Iterator[Leg]:
    """The legs of these messages (sequence, payload); reads and updates each aircraft's last leg."""
    hours: dict[str, int] = {}
    for sequence, payload in messages:
        flight = _decode(payload)
        hour = hours.get(flight.time_hour)
        if hour is None:
            hour = hours[flight.time_hour] = _seconds(flight.time_hour)
        scheduled = hour + 60 * flight.minute
        before = last.get(flight.tailnum)
        number, previous, carried, added = 1, None, None, None
        if before is not None and scheduled - before.scheduled <= CHAIN_PAUSE_S:
            number, previous = before.leg + 1, before.sequence
            if before.arr_delay is not None and flight.dep_delay is not None:
                late = max(0, flight.dep_delay)
                carried = min(max(0, before.arr_delay), late)
                added = late - carried
        if flight.tailnum != UNKNOWN_AIRCRAFT:
            last[flight.tailnum] = LastLeg(sequence, scheduled, number, flight.arr_delay)
        yield Leg(
            sequence,
            flight.tailnum,
            flight.carrier,
            flight.flight,
            flight.origin,
            flight.dest,
            scheduled,
            flight.hour,
            flight.dep_delay,
            flight.arr_delay,
            number,
            previous,
            carried,
            added,
        )


def follow_batches(
    last: dict[str, LastLeg], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """``follow`` over the Arrow batches of one task: columns ``sequence`` and ``data`` in, legs out.

    Requires splitting by partition: a task then sees every message of its aircraft, in order.
    """
    import pyarrow as pa

    kinds: dict[str, Any] = {"bigint": pa.int64(), "int": pa.int32(), "string": pa.string()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in LEG_COLUMNS.items()])
    last = dict(last)
    for batch in batches:
        rows = zip(
            batch.column("sequence").to_pylist(), batch.column("data").to_pylist(), strict=True
        )
        columns = list(zip(*follow(last, rows), strict=True)) or [()] * len(schema)
        arrays = [
            pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())
