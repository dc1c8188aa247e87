"""The options of a query that shares work: as a member of a group, or with a pull consumer's workers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from .table import Accepted, Option, RefusedError, at_least, name, one_of


class GroupOptions(NamedTuple):
    """The group, and as which of its members the query takes part ("": as the only one)."""

    name: str
    kind: Literal["elastic", "static"] = "elastic"
    member: str = ""


def _name(value: str) -> str:
    if not re.fullmatch(r"[-_=a-zA-Z0-9]{1,128}", value):
        raise RefusedError("1 to 128 of A-Z a-z 0-9 - _ =")
    return value


# fmt: off
GROUP_OPTIONS: Final[tuple[Option, ...]] = (
    Option("group", "",
        "Read the partitions that this consumer group of the stream gives to the query. For streaming.",
        _name),
    Option("groupKind", "elastic", "What group it is: elastic or static.", one_of("elastic", "static")),
    Option("member", "",
        "As which member the query takes part; default: as the only one, which has all partitions.", _name),
)
# fmt: on

_OTHER_WAYS: Final = (
    "durable",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "partitions",
    "subjects",
    "minOffsetsPerTrigger",
    "lagSubject",
    "metricsAddress",
    "lastPerSubject",
    "bucket",
)
"""What says where a query reads, and how far it is, when nothing else does."""


def group_of(
    values: Mapping[str, Any], accepted: Accepted, *, streaming: bool | None
) -> GroupOptions | None:
    """The group of collected options; None if there is none.

    Raises:
        ConfigurationError: two options contradict each other.
    """
    name = values["group"]
    if not name:
        if values["member"]:
            raise accepted.error("'member' needs 'group'")
        return None
    if streaming is False:
        raise accepted.error(
            "'group' is for streaming queries: a batch read takes no part; leave it out, and read the stream"
        )
    said = "the group says what is read and from where"
    check_only_way("group", said, values, accepted, "minPartitions")
    return GroupOptions(name, values["groupKind"], values["member"])


def check_only_way(
    option: str, said: str, values: Mapping[str, Any], accepted: Accepted, *others: str
) -> None:
    """Refuse what contradicts an option by which somebody else says what is read; ``said`` tells who.

    ``others`` are refused beside those that no such option goes with.
    """
    if len(values["stream"]) != 1:
        raise accepted.error(f"with {option!r} a query reads one stream, the {option}'s")
    given = [other for other in (*_OTHER_WAYS, *others) if values[other]]
    if values["splitBy"] != "sequence":
        given.append("splitBy")
    if given:
        raise accepted.error(f"with {option!r} {said}; leave out {', '.join(given)}")


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
        "Take messages from this pull consumer, which has the priority policy overflow. Streaming only.",
        name),
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
