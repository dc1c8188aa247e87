"""The options of Spark's Kafka source and sink: which mean the same here, and what to use for the others.

Those with the same name and meaning are in ``SAME``. The others are refused with a sentence that names the
option to use, so that a query that is moved fails at its start, at the right place, and not by its results.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["IN_MS", "MOVED", "MOVED_OF_SINK", "SAME", "Moved"]

SAME: Final = (
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "includeHeaders",
)
IN_MS: Final = {"kafkaConsumer.pollTimeoutMs": "readTimeout"}
"""Accepted: durations in milliseconds, and the option that each is."""


class Moved(NamedTuple):
    """An option that has another name or no meaning here. A name that ends in a dot begins many."""

    name: str
    instead: str


_LOGIN: Final = (
    "give 'user' and 'password', 'token', 'creds' or 'nkeySeed' to log in, 'tls', 'tlsCa', 'tlsCert' and "
    "'tlsKey' for TLS"
)
_CLIENT: Final = (
    Moved("kafka.bootstrap.servers", "use 'servers'"),
    Moved("kafka.security.", _LOGIN),
    Moved("kafka.sasl.", _LOGIN),
    Moved("kafka.ssl.", _LOGIN),
)
_OTHERS: Final = Moved("kafka.", "a NATS client has other options, those of the connection")
MOVED: Final = (
    Moved("subscribe", "use 'stream' for streams, 'subjects' for a part of their subjects"),
    Moved("subscribePattern", "use 'stream' with one stream, and wildcards in 'subjects'"),
    Moved(
        "assign",
        "use 'subjects', or splitBy=partition with 'partitions', or 'group' for the partitions of a group",
    ),
    Moved(
        "fetchOffset.numRetries",
        "use 'reconnectTimeout', how long to go on trying: with pauses from a tenth of a second to five",
    ),
    Moved(
        "fetchOffset.retryIntervalMs",
        "use 'reconnectTimeout', how long to go on trying: the pauses grow by themselves",
    ),
    Moved("maxRecordsPerPartition", "use 'minMessagesPerTask' and 'maxTasks', which size tasks"),
    Moved("groupIdPrefix", "leave it out: reading needs no group; 'durable' shows the progress"),
    Moved(
        "kafka.group.id",
        "use 'durable' to show the progress under a name, or 'group' to read as a member of a group",
    ),
    *_CLIENT,
    _OTHERS,
)
MOVED_OF_SINK: Final = (
    Moved(
        "topic", "use 'stream' and 'subject'; the column subject is what Kafka's column topic was"
    ),
    Moved("includeHeaders", "leave it out: a column headers is written if there is one"),
    Moved("kafka.transactional.id", "use delivery=exactlyOnce with 'sinkId'"),
    Moved("kafka.enable.idempotence", "use 'delivery': dedupe or exactlyOnce"),
    Moved(
        "kafka.acks", "leave it out: a row counts as written when the stream has acknowledged it"
    ),
    *_CLIENT,
    _OTHERS,
)
