"""Running pipelines, as they tell the server themselves: one read of their bucket, when it has changed.

Pipelines on other machines are seen by nothing else. A bucket is read every ``READ_S`` at most; one that has
more pipelines than one request answers is said, and left alone for ``PATIENCE_S``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ..api.pipelines import BUCKET, SILENT_S, PipelineRecord, QueryRecord, decode
from ..api.streams import StreamInfo
from ..client.jetstream_context import JetStream
from ..errors import HeadraceError

_LOG: Final = logging.getLogger("headrace.console")
_STREAM: Final = f"KV_{BUCKET}"
_PREFIX: Final = f"$KV.{BUCKET}."

READ_S: Final = 5.0
PATIENCE_S: Final = 60.0

Pipelines = Mapping[str, PipelineRecord]
"""Records by the key of the bucket."""


class PipelineReader:
    """Reads what pipelines tell.

    Args:
        clock: seconds, for patience.

    Attributes:
        problem: why they could not be read, or "".
    """

    def __init__(self, js: JetStream, clock: Callable[[], float]) -> None:
        self._js = js
        self._clock = clock
        self._found: Pipelines = {}
        self._read_up_to = 0
        self._wait_until = 0.0
        self.problem = ""

    async def read(self, streams: Mapping[str, StreamInfo]) -> Pipelines:
        """Read what they told last, among the streams of a look."""
        info = streams.get(_STREAM)
        if info is None or not info.state.messages:
            self._found, self._read_up_to, self.problem = {}, 0, ""
            return self._found
        now = self._clock()
        if info.state.last_seq == self._read_up_to or now < self._wait_until:
            return self._still_kept(info)
        try:
            self._found = await self._read()
        except HeadraceError as error:
            self._wait_until = now + PATIENCE_S
            self.problem = f"Pipelines cannot be read: {str(error) or type(error).__name__}"
            _LOG.warning("%s", self.problem)
            return self._found
        self._read_up_to, self._wait_until = info.state.last_seq, now + READ_S
        self.problem = ""
        return self._found

    def _still_kept(self, info: StreamInfo) -> Pipelines:
        """Without those that the server has removed, as nobody renewed them."""
        if info.state.messages < len(self._found):
            self._read_up_to = 0  # the next look reads again
        return self._found

    async def _read(self) -> Pipelines:
        stream = await self._js.stream(_STREAM)
        found = {}
        for message in await stream.get_last_messages(f"{_PREFIX}>"):
            record = decode(message.payload)
            if record is not None:
                found[message.subject.removeprefix(_PREFIX)] = record
        return found


def queries_of(pipelines: Pipelines) -> Iterator[tuple[str, str, PipelineRecord, QueryRecord]]:
    """Each query with its pipeline: key, name, record, its own."""
    for key, record in sorted(pipelines.items()):
        for name, query in record.queries.items():
            yield key, name, record, query


def state_of(record: PipelineRecord, query: QueryRecord, now: float) -> str:
    """The state to show: of a runner that says nothing any more, ``silent``."""
    silent_s = record.silent_s(now)
    return "silent" if silent_s is not None and silent_s > SILENT_S else query.state


def pipeline_row(key: str, record: PipelineRecord, now: float) -> dict[str, Any]:
    """A pipeline as the page has it."""
    return {
        "key": key,
        "name": record.name,
        "host": record.host,
        "process": record.process,
        "since": record.since,
        "written": record.written,
        "ended": record.ended,
        "silent_s": record.silent_s(now),
        "graph": list(record.graph),
        "left_out": record.left_out,
        "queries": [
            {
                "name": name,
                "state": state_of(record, query, now),
                "since": query.since,
                "why": query.why,
                "error": query.error,
                "error_at": query.error_at,
                "failures": query.failures,
                "restarts": query.restarts,
                "behind": query.behind,
                "rows_per_s": query.rows_per_s,
                "batch_s": query.batch_s,
                "last_batch": query.last_batch,
                "batches": query.batches,
                "rows": query.rows,
                "rows_out": query.rows_out,
                "late": query.late,
                "lost": query.lost,
            }
            for name, query in record.queries.items()
        ],
    }
