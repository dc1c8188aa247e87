"""The markers of one sink, in the stream."""

from __future__ import annotations

import base64
from typing import Final, NamedTuple, TypeVar

from ...api import base
from ...api.envelope import decode_pub_ack, decode_response
from ...api.messages import GetMessageRequest, GetMessageResponse
from ...api.names import EXPECTED_LAST_SUBJECT_SEQ
from ...api.streams import StreamInfo
from ...api.times import parse_time
from ...errors import JetStreamApiError
from ...sink_markers import HEADER
from ...wire import encode_headers
from ..links.link import Link
from .markers import PLAN, Marker, Plan, decode_marker, decode_plan

R = TypeVar("R", Plan, Marker)

MESSAGE_NOT_FOUND: Final = 10037
WRONG_LAST: Final = frozenset({10071, 10164})


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
