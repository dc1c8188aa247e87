"""What running pipelines tell a server about themselves: a key of a bucket each. Pure.

The runner writes, the console reads. A value is small whatever the pipeline is, and the server removes it
when nobody has renewed it for ``KEPT_S``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from ..documents import DocumentError, read_typed

BUCKET: Final = "headrace-pipelines"
KEPT_S: Final = 86_400.0
EVERY_S: Final = 10.0
"""A runner speaks at least so often."""
SILENT_S: Final = 35.0
"""One that has not spoken for so long has been killed, or cannot reach the server."""
BUCKET_BYTES: Final = 16 * 1024 * 1024
QUERIES_MAX: Final = 100
NAME_MAX: Final = 255
TEXT_MAX: Final = 1_000
LINES_MAX: Final = 200
"""Of the graph."""
RECORD_BYTES_MAX: Final = 512 * 1024

STATES: Final = (
    "starting",
    "waiting",
    "running",
    "restarting",
    "done",
    "failed",
    "not run",
    "stopped",
)
"""Of a query, as its runner knows it."""

_LAST_S: Final = 253_402_300_799.0  # 9999-12-31: no later time can be shown
_NO_TOKEN: Final = re.compile(r"[^A-Za-z0-9_-]")


class QueryRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One query. Times are seconds since the epoch; what is not known is None.

    ``rows``, ``late`` and ``batches`` are sums of its generation, ``lost`` and ``restarts`` those of the run.
    """

    state: str = ""
    since: float = 0.0
    why: str = ""
    error: str = ""
    error_at: float = 0.0
    failures: int = 0
    restarts: int = 0
    behind: int | None = None
    rows_per_s: float = 0.0
    batch_s: float = 0.0
    last_batch: float = 0.0
    batches: int = 0
    rows: int = 0
    rows_out: int | None = None
    late: int | None = None
    lost: int = 0


class PipelineRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pipeline's runner.

    Attributes:
        ended: when it said its last word, 0 while it runs.
        graph: the lines of a tree.
        left_out: how many queries there are beyond those told.
    """

    name: str
    host: str
    process: int
    since: float
    written: float
    ended: float = 0.0
    token: int = 0
    graph: tuple[str, ...] = ()
    queries: Mapping[str, QueryRecord] = {}
    left_out: int = 0

    def silent_s(self, now: float) -> float | None:
        """For how long it has said nothing; None where it has ended, and has nothing more to say."""
        return None if self.ended else max(0.0, now - self.written)


def key_of(name: str, host: str, *, leased: bool) -> str:
    """The key of a pipeline: with a lease one runs at a time, else each machine may have one of that name."""
    return token_of(name) if leased else f"{token_of(name)}.{token_of(host)}"


def token_of(text: str) -> str:
    """A text as a part of a key."""
    return _NO_TOKEN.sub("_", text)[:100] or "_"


def shortened(record: PipelineRecord) -> PipelineRecord:
    """Shorten it to what the limits allow."""
    queries = {
        name[:NAME_MAX]: msgspec.structs.replace(
            each,
            state=each.state[:NAME_MAX],
            why=each.why[:TEXT_MAX],
            error=each.error[:TEXT_MAX],
        )
        for name, each in list(record.queries.items())[:QUERIES_MAX]
    }
    return msgspec.structs.replace(
        record,
        name=record.name[:NAME_MAX],
        host=record.host[:NAME_MAX],
        graph=tuple(line[:TEXT_MAX] for line in record.graph[:LINES_MAX]),
        queries=queries,
        left_out=record.left_out + len(record.queries) - len(queries),
    )


def encode(record: PipelineRecord) -> bytes:
    """As it is stored."""
    return msgspec.json.encode(shortened(record))


def decode(value: bytes) -> PipelineRecord | None:
    """Of what is stored; None for what no runner wrote: whoever may publish there may store anything."""
    if len(value) > RECORD_BYTES_MAX:
        return None
    try:
        record = read_typed(value, PipelineRecord)
    except DocumentError:
        return None
    times = [record.since, record.written, record.ended]
    for query in record.queries.values():
        times += [query.since, query.error_at, query.last_batch]
    return shortened(record) if all(0 <= each <= _LAST_S for each in times) else None
