"""What a consumer is for, and what happens to a stream, where somebody has said so in its metadata. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ROLE: Final = "headrace.role"
"""The key of the metadata."""
SPARK_PROGRESS: Final = "spark-progress"
"""It shows how far a Spark query is, which reads the stream by other ways: nobody is to pull from it."""
TOLD: Final = "headrace.told"
"""When its reader last said how far it is (RFC 3339), within seconds: nothing else of it moves then."""

FEEDS_CHANNEL: Final = "headrace.feeds"
"""In a consumer's metadata: a job service takes the stream's messages by it, into this channel."""

RENAMED_TO: Final = "headrace.rename.to"
"""In a stream's metadata: it is being renamed to that."""
REPARTITIONED_TO: Final = "headrace.repartition.to"
"""In a stream's metadata: that one takes its messages, with other partitions."""


def shows_progress(metadata: Mapping[str, str] | None) -> bool:
    """Whether the consumer only shows a position: that nobody pulls from it says nothing of its reader."""
    return (metadata or {}).get(ROLE) == SPARK_PROGRESS


def feeds_channel(metadata: Mapping[str, str] | None) -> str | None:
    """The channel of a job service that the consumer feeds; None: it is no feed's."""
    return (metadata or {}).get(FEEDS_CHANNEL)
