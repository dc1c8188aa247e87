"""What exactlyOnce keeps in the stream beside the rows. Pure.

A sink has one **plan** record and one **marker** per partition, each the last message of its subject. The
plan names the batch and the run of it that may write; every atomic batch of rows expects it unchanged, so a
writer of an earlier run is refused. A marker says how many rows of its partition are stored, and their hash;
it is stored by the same atomic batch as the rows, and expects the marker before it unchanged.

When a batch runs again, each partition is compared with its marker before anything is written, and *no*
partition writes until all that have a marker of an earlier run are found equal. So rows that are cut into
partitions in another way are refused before one of them is doubled.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from ...api.base import DocumentError, read_typed
from ...errors import ConfigurationError, HeadraceError

PLAN: Final = "plan-"
"""Begins the last token of the plan's subject, and the time of the stream's creation ends it; of a marker's
subject it is the partition. So the plan of a stream that was deleted is none of the one that is made again
under its name, though both have the same sequence.
"""


class PlanChangedError(HeadraceError):
    """A batch that runs again has other rows than before: writing them would double or lose some."""


class FencedError(HeadraceError):
    """A later run of the batch, or a later batch, writes to this sink now."""


class StreamResetError(HeadraceError):
    """The stream was made again, or lost what it had confirmed, while a task wrote to it."""


class PlanId(NamedTuple):
    """One run of a batch; later ones are greater. ``made_ns`` is the driver's time."""

    made_ns: int
    nonce: str


class Plan(NamedTuple):
    """Who may write: the run ``plan`` of ``batch``. ``again``: an earlier run may have written some of it."""

    batch: int
    plan: PlanId
    again: bool
    sequence: int = 0

    def encode(self) -> bytes:
        """Its payload."""
        return msgspec.json.encode(
            {"v": 1, "batch": self.batch, "plan": list(self.plan), "again": self.again}
        )


class Marker(NamedTuple):
    """A partition's rows that are stored: how many, their hash, and whether these are all."""

    batch: int
    plan: PlanId
    rows: int
    digest: str
    is_last: bool
    sequence: int = 0

    def encode(self) -> bytes:
        """Its payload."""
        return msgspec.json.encode(
            {
                "v": 1,
                "batch": self.batch,
                "plan": list(self.plan),
                "rows": self.rows,
                "hash": self.digest,
                "last": self.is_last,
            }
        )


class _Record(msgspec.Struct):
    v: int
    batch: int
    plan: tuple[int, str]
    again: bool = False
    rows: int = 0
    hash: str = ""
    last: bool = False


def decode_plan(payload: bytes, sequence: int, subject: str) -> Plan:
    """Read a plan. Raises ConfigurationError if it is none."""
    record = _decode(payload, subject)
    return Plan(record.batch, PlanId(*record.plan), record.again, sequence)


def decode_marker(payload: bytes, sequence: int, subject: str) -> Marker:
    """Read a marker. Raises ConfigurationError if it is none."""
    record = _decode(payload, subject)
    plan = PlanId(*record.plan)
    return Marker(record.batch, plan, record.rows, record.hash, record.last, sequence)


def _decode(payload: bytes, subject: str) -> _Record:
    try:
        record = read_typed(payload, _Record)
    except DocumentError as error:
        raise ConfigurationError(
            f"jetstream sink: the last message of {subject!r} is no marker of a sink: {error}"
        ) from None
    if record.v != 1:
        raise ConfigurationError(
            f"jetstream sink: the marker on {subject!r} has version {record.v}; this release reads version 1"
        )
    return record


def next_plan(
    found: Plan | None, newest: Marker | None, batch: int, mine: PlanId, sink: str
) -> Plan | None:
    """The plan to write so that this run may store rows; None if ``found`` says so already.

    Args:
        found: the plan that is stored.
        newest: the marker stored last, of any partition. It counts where limits have removed the plan.

    Raises:
        FencedError: a later batch or a later run of this one has begun.
    """
    latest = max(
        found.batch if found is not None else -1, newest.batch if newest is not None else -1
    )
    if latest > batch:
        raise FencedError(
            f"jetstream sink: sink {sink!r} is at batch {latest}, and this is a writer of batch {batch}: "
            "either a task of long ago, which can be ignored, or the query has a new or restored "
            "checkpoint. Use the checkpoint that wrote these batches, or a new sinkId: rows of batches "
            "that were written before are then written again"
        )
    if found is not None and found.batch == batch:
        if found.plan == mine:
            return None
        if found.plan > mine:
            raise FencedError(
                f"jetstream sink: a later run of batch {batch} writes to sink {sink!r}; this one ends"
            )
        return Plan(batch, mine, True, found.sequence)
    if newest is not None and newest.batch == batch and newest.plan > mine:
        raise FencedError(
            f"jetstream sink: a later run of batch {batch} writes to sink {sink!r}; this one ends"
        )
    sequence = found.sequence if found is not None else 0
    return Plan(batch, mine, newest is not None and newest.batch == batch, sequence)


def not_confirmed(markers: list[Marker], plan: Plan) -> list[Marker]:
    """The markers of this batch that no task of this run has compared yet."""
    return [each for each in markers if each.batch == plan.batch and each.plan != plan.plan]
