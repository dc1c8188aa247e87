"""Where reading begins and ends: Kafka's options, with stream sequences for its offsets; or the latest of
each subject.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from ...api.times import format_time, parse_time
from ...documents import read_json
from .table import Accepted, Option, RefusedError, flag, name, one_of

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_KAFKA: Final = {-2: EARLIEST, -1: LATEST}
_MOMENT: Final = "milliseconds since the epoch, or a time such as 2013-01-01T05:00:00Z"


class StartPosition(NamedTuple):
    """Where reading begins or ends: ``earliest``, ``latest``, a ``sequence`` or a ``time`` (RFC 3339).

    ``must_exist``: a time after the stream's last message is an error.
    """

    kind: Literal["earliest", "latest", "sequence", "time"]
    sequence: int = 0
    time: str = ""
    must_exist: bool = False


Positions: TypeAlias = StartPosition | dict[str, StartPosition]
"""One position for all streams, or one for each."""


def _position(value: object, words: tuple[str, ...]) -> StartPosition:
    text = str(_KAFKA.get(value, value) if isinstance(value, int) else value).strip().lower()
    if text == EARLIEST and EARLIEST in words:
        return StartPosition("earliest")
    if text == LATEST:
        return StartPosition("latest")
    if re.fullmatch(r"\d+", text):
        return StartPosition("sequence", int(text))
    raise RefusedError(
        f"{', '.join(words)} or a stream sequence such as 1000; or these per stream, as JSON such as "
        f'{{"ORDERS": 1000, "RETURNS": "{words[0]}"}}'
    )


def _moment(value: object) -> StartPosition:
    """Milliseconds since the epoch, as for Kafka, or RFC 3339."""
    text = str(value).strip()
    if re.fullmatch(r"\d+", text):
        return StartPosition("time", time=format_time(int(text) * 1_000_000))
    try:
        return StartPosition("time", time=format_time(parse_time(text)))
    except ValueError:
        raise RefusedError(_MOMENT) from None


def _per_stream(value: str, parse: Callable[[object], StartPosition]) -> dict[str, StartPosition]:
    try:
        document = read_json(value)
    except ValueError:
        document = None
    if not isinstance(document, dict) or not document:
        raise RefusedError('JSON with a position per stream, such as {"ORDERS": 1000}')
    return {stream: parse(position) for stream, position in document.items()}


def _positions(words: tuple[str, ...]) -> Callable[[str], Positions]:
    def parse(value: str) -> Positions:
        def one(position: object) -> StartPosition:
            return _position(position, words)

        return _per_stream(value, one) if value.lstrip().startswith("{") else one(value)

    return parse


def _moments(value: str) -> dict[str, StartPosition]:
    try:
        return _per_stream(value, _moment)
    except RefusedError:
        raise RefusedError(
            f'JSON with a time per stream, such as {{"ORDERS": …}}: {_MOMENT}'
        ) from None


# fmt: off
POSITION_OPTIONS: Final[tuple[Option, ...]] = (
    Option("startingOffsets", EARLIEST,
        "Where a new query begins: earliest, latest or the first stream sequence to read; or JSON with one "
        "per stream, where -2 is earliest and -1 latest. For streaming, latest needs durable, which records "
        "the position.", _positions((EARLIEST, LATEST))),
    Option("startingTimestamp", "",
        "Begin at the first message stored at or after this time (milliseconds since the epoch, or RFC "
        "3339); overrides startingOffsetsByTimestamp and startingOffsets.", _moment),
    Option("startingOffsetsByTimestamp", "",
        "The same as JSON with a time per stream; overrides startingOffsets.", _moments),
    Option("startingOffsetsByTimestampStrategy", LATEST,
        "If no message was stored at or after the time: latest begins with the next one, error fails.",
        one_of("error", LATEST)),
    Option("endingOffsets", LATEST,
        "Where a batch read ends: latest, or the last stream sequence to read; or JSON with one per stream. "
        "Not for streaming.", _positions((LATEST,))),
    Option("endingTimestamp", "",
        "End a batch read before the first message stored at or after this time; overrides "
        "endingOffsetsByTimestamp and endingOffsets. Not for streaming.", _moment),
    Option("endingOffsetsByTimestamp", "",
        "The same as JSON with a time per stream; overrides endingOffsets. Not for streaming.", _moments),
)
# fmt: on


class StreamRange(NamedTuple):
    """One stream of a query, and what is to be read of it."""

    stream: str
    starting: StartPosition = StartPosition("earliest")
    ending: StartPosition = StartPosition("latest")


def ranges_of(
    values: Mapping[str, Any], streams: Sequence[str], accepted: Accepted
) -> tuple[StreamRange, ...]:
    """What collected options say about each stream, by Kafka's precedence.

    Raises:
        ConfigurationError: JSON names other streams than the query, or not all of them.
    """

    def choose(which: str) -> Callable[[str], StartPosition]:
        for option in (f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets"):
            chosen: Positions | Literal[""] = values[option]
            if isinstance(chosen, StartPosition):
                return lambda _: chosen
            if chosen:
                _check_names(option, chosen, streams, accepted)
                return chosen.__getitem__
        raise AssertionError(f"{which}Offsets has a default")

    starting, ending = choose("starting"), choose("ending")
    strict = values["startingOffsetsByTimestampStrategy"] == "error"
    return tuple(
        StreamRange(stream, starting(stream)._replace(must_exist=strict), ending(stream))
        for stream in streams
    )


def _check_names(
    option: str, chosen: Mapping[str, StartPosition], streams: Sequence[str], accepted: Accepted
) -> None:
    unknown = sorted(set(chosen) - set(streams))
    missing = sorted(set(streams) - set(chosen))
    if unknown:
        raise accepted.error(
            f"option {option!r} names stream {unknown[0]!r}, which the query does not read; it reads: "
            + ", ".join(streams)
        )
    if missing:
        raise accepted.error(f"option {option!r} has no position for stream {missing[0]!r}")


STREAM_PREFIX: Final = "KV_"

# fmt: off
SNAPSHOT_OPTIONS: Final[tuple[Option, ...]] = (
    Option("lastPerSubject", "false",
        "Read the latest message of each subject instead of a range, without deleted keys. For batch reads.",
        flag),
    Option("bucket", "",
        "Read this key-value bucket, with a column key: in a batch read as a table, in a stream every "
        "change.", name),
)
# fmt: on


def check_snapshot(values: dict[str, Any], accepted: Accepted, *, streaming: bool | None) -> None:
    """Check these options together with the others; a bucket names its stream.

    Raises:
        ConfigurationError: two options contradict each other.
    """
    bucket = values["bucket"]
    if not (values["lastPerSubject"] or bucket):
        return
    option = "bucket" if bucket else "lastPerSubject"
    if streaming and values["lastPerSubject"]:
        raise accepted.error(
            "'lastPerSubject' is for batch reads; a streaming query reads every change of the stream"
        )
    own = (STREAM_PREFIX + bucket,)
    if bucket and values["stream"] not in ("", own):
        raise accepted.error("give either 'bucket' or 'stream'")
    if bucket:
        values["stream"] = own
    if bucket and streaming is not False:
        return  # … or Spark has not said yet what is read
    bounded = any(
        values[which + kind]
        for which in ("starting", "ending")
        for kind in ("Timestamp", "OffsetsByTimestamp")
    )
    everything = (StartPosition("earliest"), StartPosition("latest"))
    offsets = (values["startingOffsets"], values["endingOffsets"])
    if bounded or offsets != everything or values["splitBy"] != "sequence":
        raise accepted.error(
            f"{option!r} reads each subject once: leave out startingOffsets, endingOffsets, their "
            "timestamps and splitBy"
        )
