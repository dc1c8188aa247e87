"""The options of reading the latest message of each subject."""

from __future__ import annotations

from typing import Any, Final

from .positions import StartPosition
from .table import Accepted, Option
from .values import flag, name

STREAM_PREFIX: Final = "KV_"

# fmt: off
SNAPSHOT_OPTIONS: Final[tuple[Option, ...]] = (
    Option("lastPerSubject", "false",
        "Read the latest message of each subject instead of a range, without deleted keys. For batch reads.",
        flag),
    Option("bucket", "",
        "Read this key-value bucket, with a column key: in a batch read as a table, lastPerSubject of its "
        "stream; in a stream every change, where a deletion has null values.", name),
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
