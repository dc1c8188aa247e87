"""What exactlyOnce keeps in the stream beside the rows.

A sink has one **plan** record and one **marker** per partition, each the last message of its subject. The
plan names the batch and the run of it that may write; every atomic batch of rows expects it unchanged, so a
writer of an earlier run is refused. A marker says how many rows of its partition are stored, and their hash;
it is stored by the same atomic batch as the rows, and expects the marker before it unchanged.

When a batch runs again, each partition is compared with its marker before anything is written, and *no*
partition writes until all that have a marker of an earlier run are found equal. So rows that are cut into
partitions in another way are refused before one of them is doubled.
"""

from __future__ import annotations

import base64
from typing import Final, NamedTuple, TypeVar

import msgspec

from ...api import base
from ...api.base import DocumentError, read_typed
from ...api.envelope import decode_pub_ack, decode_response
from ...api.errors import Errors
from ...api.messages import GetMessageRequest, GetMessageResponse
from ...api.names import EXPECTED_LAST_SUBJECT_SEQ
from ...api.streams import StreamInfo
from ...api.times import parse_time
from ...errors import ConfigurationError, HeadraceError, JetStreamApiError
from ...sink_markers import HEADER
from ...wire import encode_headers
from ..links.link import Link

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


R = TypeVar("R", Plan, Marker)

MESSAGE_NOT_FOUND: Final = Errors.NO_MESSAGE_FOUND.err_code
WRONG_LAST: Final = frozenset(
    {
        Errors.STREAM_WRONG_LAST_SEQUENCE.err_code,
        Errors.STREAM_WRONG_LAST_SEQUENCE_CONSTANT.err_code,
    }
)


class FoundMarkers(NamedTuple):
    """What is stored of a sink: its plan, one partition's marker, and the newest marker of any."""

    plan: Plan | None
    marker: Marker | None
    newest: Marker | None


class MarkerStore:
    """Reads and writes the markers of a sink.

    Args:
        space: the subject below which they are.
        epoch: when the stream was created that is written to.
        rolls_up: the stream keeps only the last of each, if it is told to.
    """

    def __init__(self, stream: str, space: str, epoch: str, rolls_up: bool) -> None:
        self._stream = stream
        self._space = space
        self._plan_token = f"{PLAN}{parse_time(epoch)}"
        self._rollup = [("Nats-Rollup", "sub")] if rolls_up else []

    @property
    def plan_subject(self) -> str:
        """Where the plan is."""
        return f"{self._space}.{self._plan_token}"

    def marker_subject(self, partition: int) -> str:
        """Where a partition's marker is."""
        return f"{self._space}.{partition}"

    def created(self, link: Link) -> str:
        """The time of the stream's creation."""
        return decode_response(
            link.request(link.api("STREAM", "INFO", self._stream)).payload, StreamInfo
        ).created

    def read(self, link: Link, partition: int) -> FoundMarkers:
        """All that a task has to know, from the stream's leader, in one round trip."""
        subjects = [self.plan_subject, self.marker_subject(partition), f"{self._space}.*"]
        plan, marker, newest = self._last(link, subjects)
        if newest is not None and newest[0] == self.plan_subject:
            # The plan is newer than any marker, so its batch is what counts.
            newest = None
        return FoundMarkers(
            decode_plan(plan[1], plan[2], plan[0]) if plan else None,
            decode_marker(marker[1], marker[2], marker[0]) if marker else None,
            decode_marker(newest[1], newest[2], newest[0]) if newest else None,
        )

    def all_markers(self, link: Link) -> dict[str, Marker]:
        """Every partition's marker, by its subject."""
        body = b'{"subjects_filter":"%b.*"}' % self._space.encode()
        subject = link.api("STREAM", "INFO", self._stream)
        info = decode_response(link.request(subject, body).payload, StreamInfo)
        subjects = [each for each in info.state.subjects if each.rpartition(".")[2].isdigit()]
        found = self._last(link, subjects)
        return {each[0]: decode_marker(each[1], each[2], each[0]) for each in found if each}

    def put(self, link: Link, subject: str, record: Plan | Marker, expected: int) -> int:
        """Store a record if the last one is still the expected. Returns its sequence.

        Raises:
            JetStreamApiError: another one was stored, with one of the codes ``WRONG_LAST``.
        """
        kind = "plan" if isinstance(record, Plan) else "rows"
        pairs = [(EXPECTED_LAST_SUBJECT_SEQ, str(expected)), (HEADER, kind), *self._rollup]
        (reply,) = link.request_many([(subject, record.encode())], [encode_headers(pairs)])
        return decode_pub_ack(reply.payload).seq

    def marker_lines(self, expected: int) -> bytes:
        """The header lines of a marker that closes an atomic batch."""
        fence = EXPECTED_LAST_SUBJECT_SEQ.encode()
        lines = b"%b: %d\r\n%b: rows\r\n" % (fence, expected, HEADER.encode())
        return lines + (b"Nats-Rollup: sub\r\n" if self._rollup else b"")

    def _last(self, link: Link, subjects: list[str]) -> list[tuple[str, bytes, int] | None]:
        """The last message of each subject or pattern: subject, payload, sequence."""
        if not subjects:
            return []
        bodies = [base.encode(GetMessageRequest(last_by_subj=each)) for each in subjects]
        found: list[tuple[str, bytes, int] | None] = []
        get = link.api("STREAM", "MSG", "GET", self._stream)
        for reply in link.request_many([(get, body) for body in bodies]):
            try:
                message = decode_response(reply.payload, GetMessageResponse).message
            except JetStreamApiError as error:
                if error.err_code != MESSAGE_NOT_FOUND:
                    raise
                found.append(None)
                continue
            found.append((message.subject, base64.b64decode(message.data), message.seq))
        return found
