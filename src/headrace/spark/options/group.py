"""The options of a query that is a member of a group."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from .table import Accepted, Option
from .values import RefusedError, one_of


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
