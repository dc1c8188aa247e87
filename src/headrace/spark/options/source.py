"""The options of reading."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

from ...documents import read_json
from ...sink_markers import SPACE
from .connection import CONNECTION_ALIASES, CONNECTION_OPTIONS, Connection, connection_of
from .decoding import DECODING_OPTIONS, REGISTRY_ALIASES, DecodingOptions, decoding_of
from .group import (
    GROUP_OPTIONS,
    OVERFLOW_OPTIONS,
    GroupOptions,
    OverflowOptions,
    group_of,
    overflow_of,
)
from .positions import (
    EARLIEST,
    LATEST,
    POSITION_OPTIONS,
    SNAPSHOT_OPTIONS,
    StartPosition,
    StreamRange,
    check_snapshot,
    ranges_of,
)
from .table import (
    IN_MS,
    MOVED,
    Accepted,
    BadRule,
    Option,
    RefusedError,
    at_least,
    bad_rule,
    flag,
    name,
    one_of,
    patterns,
    seconds,
    subject,
    texts,
)


def parse_address(value: str) -> tuple[str, int]:
    """A host and a port. Raises RefusedError: it is none; the text says what is accepted."""
    found = re.fullmatch(r"(?:\[?([^\[\]]+)\]?:)?(\d{1,5})", value.strip())
    if found is None or int(found[2]) > 65535:
        raise RefusedError("a port, or host:port such as 0.0.0.0:9464")
    return found[1] or "127.0.0.1", int(found[2])


# fmt: off
LAG_OPTIONS: Final[tuple[Option, ...]] = (
    Option("lagSubject", "",
        "Publish on this subject, as JSON, how far the query is behind; $KV.<bucket>.<key> keeps the latest "
        "in a bucket. Streaming only.", subject),
    Option("metricsAddress", "",
        "Serve the same as Prometheus metrics at http://<host:port>/metrics, from the query's process on the "
        "driver; a port alone is one of 127.0.0.1. Streaming only.", parse_address),
    Option("lagInterval", "1s",
        "How often, at most, the lag is measured; in any case when the query has caught up.", seconds),
)
# fmt: on


class LagRule(NamedTuple):
    """Where a query publishes its lag; nowhere if both are empty."""

    subject: str = ""
    address: tuple[str, int] | None = None
    interval_s: float = 1.0

    def __bool__(self) -> bool:
        return bool(self.subject or self.address)


def lag_of(values: Mapping[str, Any]) -> LagRule:
    """The rule of collected options."""
    return LagRule(values["lagSubject"], values["metricsAddress"] or None, values["lagInterval"])


class Use(NamedTuple):
    """A source as a part of a pipeline's query.

    Attributes:
        source: its name in the pipeline.
        others: the names of the query's other sources.
        query: pipeline and query.
        run: the same for all sources of one start of the query, and for no other.
        losses: the file in which lost messages are noted.
    """

    source: str = ""
    others: tuple[str, ...] = ()
    query: str = ""
    run: str = ""
    losses: str = ""

    @property
    def text(self) -> str:
        """As the option has it."""
        return json.dumps(self._asdict())


NO_USE: Final = Use()


def _use(value: str) -> Use:
    try:
        raw = read_json(value)
        use = Use(**raw)
        return use._replace(others=tuple(use.others))
    except (ValueError, TypeError):
        raise RefusedError("what headrace pipeline sets; leave it out") from None


# fmt: off
PIPELINE_OPTIONS: Final[tuple[Option, ...]] = (
    Option("pipeline", "",
        "Set by headrace pipeline, for its own sources: which query of which pipeline this is.", _use),
)
# fmt: on


PARTITIONS_MAX: Final = 65_536  # of a group
SplitBy = Literal["sequence", "partition"]
OnStreamReset = Literal["fail", "continue", "earliest", "latest"]
CONTINUE: Final = "continue"


class PartitionRule(NamedTuple):
    """How a message's partition is derived from its subject.

    ``token`` is the number (from 1) of the subject token that *is* the partition. With 0 the partition is
    computed, ``FNV-1a(tokens) mod N``, over the ``hashed`` tokens (none: the whole subject).
    """

    token: int = 1
    hashed: tuple[int, ...] = ()


class Pace(NamedTuple):
    """How much one micro-batch takes, of all streams together. None: as much as there is.

    With fewer than ``min_rows`` there is no batch yet, until ``max_delay_s`` seconds after the last one.
    """

    max_rows: int | None = None
    max_bytes: int | None = None
    min_rows: int | None = None
    max_delay_s: float = 900.0


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Every option, checked. Sequences are inclusive, as JetStream counts them."""

    connection: Connection
    ranges: tuple[StreamRange, ...]
    subjects: tuple[str, ...]
    durable: str
    pace: Pace
    lag: LagRule
    fail_on_data_loss: bool
    on_stream_reset: OnStreamReset
    on_bad_message: BadRule
    split_by: SplitBy
    partitions: int
    partition_rule: PartitionRule
    min_tasks: int
    max_tasks: int
    min_messages_per_task: int
    include_headers: bool
    include_markers: bool
    poll_timeout_s: float
    read_timeout_s: float
    reconnect_timeout_s: float
    rows_per_batch: int
    decoding: DecodingOptions
    last_per_subject: bool = False
    bucket: str = ""
    group: GroupOptions | None = None
    overflow: OverflowOptions | None = None
    use: Use = NO_USE

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams that are read."""
        return tuple(each.stream for each in self.ranges)

    @property
    def stream(self) -> str:
        """The name of the stream, where there is one."""
        return self.ranges[0].stream

    @property
    def starting(self) -> StartPosition:
        """Where a new query begins in it."""
        return self.ranges[0].starting

    @property
    def ending(self) -> StartPosition:
        """Where a batch read ends in it."""
        return self.ranges[0].ending

    def each(self) -> Iterator[SourceOptions]:
        """The options for each stream alone."""
        for one in self.ranges:
            yield replace(self, ranges=(one,))

    def of(self, stream: str) -> SourceOptions:
        """The options for one of the streams."""
        return next(each for each in self.each() if each.stream == stream)

    def of_group(self, stream: str, subjects: tuple[str, ...]) -> SourceOptions:
        """The options for the stream of a group, and the subjects of some of its partitions."""
        return replace(
            self,
            ranges=(StreamRange(stream),),
            subjects=subjects,
            partitions=PARTITIONS_MAX,
            partition_rule=PartitionRule(token=1),
        )


def _rule(value: str) -> PartitionRule:
    text = value.strip().lower()
    found = re.fullmatch(r"token(?:=([1-9]\d*))?", text)
    if found:
        return PartitionRule(token=int(found[1] or 1))
    found = re.fullmatch(r"hash(?:=([1-9]\d*(?:,[1-9]\d*)*))?", text)
    if found:
        return PartitionRule(0, tuple(int(t) for t in found[1].split(",")) if found[1] else ())
    raise RefusedError("token, token=K, hash or hash=K,L (K, L: numbers of subject tokens, from 1)")


def _streams(value: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name(part) for part in texts(value) or ("",)))


# fmt: off
SOURCE_OPTIONS: Final[tuple[Option, ...]] = (
    Option("stream", "", "The stream to read, or several, separated by commas. Required.", _streams),
    Option("subjects", "", "Read only these subjects (wildcards allowed); default: all.", patterns),
    Option("durable", "", "A durable consumer on which this query shows its progress. It delivers nothing.",
        name),
    Option("maxOffsetsPerTrigger", "",
        "At most this many messages per micro-batch, of the subjects that are read; default: all.",
        at_least(1)),
    Option("maxBytesPerTrigger", "",
        "At most about this many bytes per micro-batch, by the mean size of a stream's messages, but one "
        "message at least.", at_least(1)),
    Option("minOffsetsPerTrigger", "",
        "Wait for this many messages before the next micro-batch begins. Ignored under availableNow.",
        at_least(1)),
    Option("maxTriggerDelay", "15m",
        "How long after a micro-batch the next one waits for minOffsetsPerTrigger.", seconds),
    Option("failOnDataLoss", "true",
        "Fail when messages were removed before they were read; false: continue without them.", flag),
    Option("onStreamReset", "",
        "What a streaming query does when its stream is not the same: fail, or read on with continue, "
        "earliest or latest. Default: fail, or continue with failOnDataLoss=false. A batch read always "
        "fails.",
        one_of("fail", CONTINUE, EARLIEST, LATEST)),
    Option("onBadMessage", "fail",
        "What to do with a message that makes no row: fail, skip, or deadletter:<subject>, which publishes "
        "it to that subject of a stream.", bad_rule),
    Option("splitBy", "sequence",
        "Tasks take contiguous sequences, or whole partitions (order per key inside a task).",
        one_of("sequence", "partition")),
    Option("partitions", "", "How many partitions there are; needed for splitBy=partition.", at_least(1)),
    Option("partitionBy", "token",
        "How to find a message's partition: token=K, the K-th subject token is its number; or hash=K,L, the "
        "server's partition() over these tokens; hash alone takes the whole subject.", _rule),
    Option("maxTasks", "",
        "At most this many tasks per batch; default 16, for splitBy=partition one per partition.",
        at_least(1)),
    Option("minPartitions", "",
        "At least this many tasks per batch, however few messages there are; not for splitBy=partition.",
        at_least(1)),
    Option("minMessagesPerTask", "50000", "Each task reads at least this many messages.",
        at_least(1)),
    Option("includeHeaders", "false", "Add the column headers.", flag),
    Option("includeMarkers", "false",
        "Read the markers that exactlyOnce sinks keep in the stream, too, as rows.", flag),
    Option("pollTimeout", "250ms", "How long an idle query waits before it polls again.", seconds),
    Option("readTimeout", "30s", "Fail a task that receives nothing for this long.", seconds),
    Option("reconnectTimeout", "2m",
        "How long a running query and its tasks wait for a server that is away, and where onStreamReset is "
        "not fail for a stream that was deleted.", seconds),
    Option("rowsPerBatch", "10000", "Rows per Arrow batch handed to Spark.", at_least(1)),
)
# fmt: on

ACCEPTED: Final = Accepted(
    "jetstream source",
    (
        SOURCE_OPTIONS,
        POSITION_OPTIONS,
        LAG_OPTIONS,
        SNAPSHOT_OPTIONS,
        DECODING_OPTIONS,
        GROUP_OPTIONS,
        OVERFLOW_OPTIONS,
        PIPELINE_OPTIONS,
        CONNECTION_OPTIONS,
    ),
    {
        **CONNECTION_ALIASES,
        **REGISTRY_ALIASES,
        "path": "stream",
        "streams": "stream",
        "subject": "subjects",
        "maxmessagespertrigger": "maxOffsetsPerTrigger",
        "minmessagespertrigger": "minOffsetsPerTrigger",
    },
    in_ms=IN_MS,
    moved=MOVED,
)
OPTIONS: Final = ACCEPTED.options


def parse_options(raw: Mapping[str, str], *, streaming: bool | None = None) -> SourceOptions:
    """Check and parse the options of a user.

    Args:
        raw: names in any case, values as text. ``url``, ``subject`` and ``path`` (set by ``load("X")``)
            mean servers, subjects and stream.
        streaming: whether a stream is read; None if Spark has not said yet.

    Raises:
        ConfigurationError: an option is unknown, wrong or missing, or two contradict each other.
    """
    values = ACCEPTED.collect(raw)
    check_snapshot(values, ACCEPTED, streaming=streaming)
    if not values["stream"]:
        raise ACCEPTED.error('option \'stream\' is missing; add .option("stream", "NAME")')
    ranges = ranges_of(values, values["stream"], ACCEPTED)
    _check_together(values, ranges, streaming)
    split_by: SplitBy = values["splitBy"]
    partitions: int = values["partitions"] or 0
    return SourceOptions(
        connection=connection_of(values, ACCEPTED),
        ranges=ranges,
        subjects=() if ">" in values["subjects"] else values["subjects"] or (),
        durable=values["durable"],
        pace=Pace(
            values["maxOffsetsPerTrigger"] or None,
            values["maxBytesPerTrigger"] or None,
            values["minOffsetsPerTrigger"] or None,
            values["maxTriggerDelay"],
        ),
        lag=lag_of(values),
        fail_on_data_loss=values["failOnDataLoss"],
        on_stream_reset=_reset_rule(values, streaming),
        on_bad_message=values["onBadMessage"],
        split_by=split_by,
        partitions=partitions,
        partition_rule=values["partitionBy"],
        min_tasks=values["minPartitions"] or 1,
        max_tasks=values["maxTasks"]
        or (partitions if split_by == "partition" else max(16, values["minPartitions"] or 1)),
        min_messages_per_task=values["minMessagesPerTask"],
        include_headers=values["includeHeaders"],
        include_markers=values["includeMarkers"],
        poll_timeout_s=values["pollTimeout"],
        read_timeout_s=values["readTimeout"],
        reconnect_timeout_s=values["reconnectTimeout"],
        rows_per_batch=values["rowsPerBatch"],
        decoding=decoding_of(values, ACCEPTED),
        last_per_subject=values["lastPerSubject"] or (bool(values["bucket"]) and not streaming),
        bucket=values["bucket"],
        group=group_of(values, ACCEPTED, streaming=streaming),
        overflow=overflow_of(values, ACCEPTED, streaming=streaming),
        use=values["pipeline"] or NO_USE,
    )


def _reset_rule(values: Mapping[str, Any], streaming: bool | None) -> OnStreamReset:
    if streaming is False:
        return "fail"
    rule: OnStreamReset | Literal[""] = values["onStreamReset"]
    return rule or ("fail" if values["failOnDataLoss"] else "continue")


def _check_together(
    values: Mapping[str, Any], ranges: Sequence[StreamRange], streaming: bool | None
) -> None:
    if values["splitBy"] == "partition" and not values["partitions"]:
        raise ACCEPTED.error(
            "splitBy=partition needs the option 'partitions', the number of partitions"
        )
    wanted = values["subjects"] or ()
    if wanted and not values["includeMarkers"] and all(each.startswith(SPACE) for each in wanted):
        raise ACCEPTED.error(
            f"'subjects' is {','.join(wanted)}, where sinks keep their markers, which are no rows; set "
            "includeMarkers=true to read them"
        )
    least, most = values["minOffsetsPerTrigger"], values["maxOffsetsPerTrigger"]
    if least and most and least > most:
        raise ACCEPTED.error("'minOffsetsPerTrigger' is more than 'maxOffsetsPerTrigger'")
    if (
        values["minPartitions"]
        and values["maxTasks"]
        and values["minPartitions"] > values["maxTasks"]
    ):
        raise ACCEPTED.error("'minPartitions' is more than 'maxTasks'")
    if streaming is not True:
        return
    if any(each.ending.kind != "latest" for each in ranges):
        raise ACCEPTED.error(
            "'endingOffsets', 'endingTimestamp' and 'endingOffsetsByTimestamp' are for batch reads; a stream "
            "has no end"
        )
    if any(each.starting.kind == "latest" for each in ranges) and not values["durable"]:
        raise ACCEPTED.error(
            "startingOffsets=latest needs the option 'durable': Spark keeps no note of where a stream began "
            "until the first batch is committed, the durable consumer does"
        )
