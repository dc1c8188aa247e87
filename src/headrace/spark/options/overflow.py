"""The options of a query that takes the surplus of a pull consumer's workers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from .group import check_only_way
from .table import Accepted, Option
from .values import RefusedError, at_least, name


class OverflowOptions(NamedTuple):
    """The workers' consumer, its priority group, and the marks from which the query takes part (0: none)."""

    consumer: str
    group: str
    min_pending: int = 0
    min_ack_pending: int = 0


def _group(value: str) -> str:
    if not re.fullmatch(r"[-/_=a-zA-Z0-9]{1,16}", value):
        raise RefusedError("1 to 16 of A-Z a-z 0-9 - _ = /")
    return value


# fmt: off
OVERFLOW_OPTIONS: Final[tuple[Option, ...]] = (
    Option("consumer", "",
        "Take messages from this pull consumer, which has the priority policy overflow, and acknowledge them "
        "when their batch is committed. Streaming only.", name),
    Option("priorityGroup", "",
        "The priority group of that consumer. Default: its only one.", _group),
    Option("minPending", "",
        "Take messages while at least so many wait for the consumer.", at_least(1)),
    Option("minAckPending", "",
        "Take messages while at least so many are delivered and not acknowledged.", at_least(1)),
)
# fmt: on


def overflow_of(
    values: Mapping[str, Any], accepted: Accepted, *, streaming: bool | None
) -> OverflowOptions | None:
    """The surplus of collected options; None if the query reads the stream itself.

    Raises:
        ConfigurationError: two options contradict each other, or one is missing.
    """
    consumer = values["consumer"]
    if not consumer:
        alone = [key for key in ("priorityGroup", "minPending", "minAckPending") if values[key]]
        if alone:
            raise accepted.error(f"{alone[0]!r} needs 'consumer', whose messages are taken")
        return None
    if streaming is False:
        raise accepted.error(
            "'consumer' is for streaming queries: a batch read acknowledges nothing; leave it out, and read "
            "the stream"
        )
    if not (values["minPending"] or values["minAckPending"]):
        raise accepted.error(
            "'consumer' needs a mark, 'minPending' or 'minAckPending': without one the query would take "
            "messages like any worker"
        )
    said = "the server says which messages are read"
    check_only_way("consumer", said, values, accepted, "maxBytesPerTrigger", "group")
    return OverflowOptions(
        consumer,
        values["priorityGroup"],
        values["minPending"] or 0,
        values["minAckPending"] or 0,
    )
