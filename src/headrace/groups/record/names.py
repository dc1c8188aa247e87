"""Names of what a group is made of: buckets, keys, streams and consumers. Pure.

They are those of the shipped Go implementation, so that members of either share a group.
"""

from __future__ import annotations

import re
from typing import Final

from ...api.roles import ROLE as ROLE
from ..errors import GroupConfigurationError

STATIC_BUCKET: Final = "static-consumer-groups"
ELASTIC_BUCKET: Final = "elastic-consumer-groups"
PRIORITY_GROUP: Final = "PCG"
"""The priority group within which each member's consumer pins one of its instances."""

QUERY_ROLE: Final = "spark-member"
"""A Spark query, which holds the partitions between its runs, too: only it may delete the consumer."""
QUERY_MEMBER: Final = "headrace.member"
QUERY_OWNER: Final = "headrace.owner"

SOURCE: Final = "Nats-Stream-Source"
"""The header that says where a copy comes from."""

RENUMBERED: Final = "headrace.renumbered"
"""Metadata of a work queue whose group was changed: its last sequence then, and the boundary."""

_NAME: Final = re.compile(r"[-_=a-zA-Z0-9]+")
_NAME_BYTES_MAX: Final = 128  # a stream's and a consumer's name hold two of them


def check_group_name(name: str) -> str:
    """``name``, which becomes part of a key, a stream's and a consumer's name."""
    return _check("group", name)


def check_member_name(name: str) -> str:
    """``name``, which becomes part of a consumer's name."""
    return _check("member", name)


def check_stream_name(name: str) -> str:
    """``name``, which becomes part of a key. Not every name that a stream may have can be one."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    raise GroupConfigurationError(
        f"stream name {name!r}: accepted for a stream with groups are A-Z a-z 0-9 - _ ="
    )


def _check(what: str, name: object) -> str:
    if isinstance(name, str) and _NAME.fullmatch(name) and len(name) <= _NAME_BYTES_MAX:
        return name
    raise GroupConfigurationError(
        f"{what} name {name!r}: accepted are 1 to {_NAME_BYTES_MAX} of A-Z a-z 0-9 - _ = "
        "(no dots: the name is part of a subject)"
    )


def key_of(stream: str, group: str) -> str:
    """The key of a group's record in its bucket."""
    return f"{stream}.{group}"


def group_of(stream: str, key: str) -> str | None:
    """The group whose record has this key, if it is one of ``stream``."""
    head, dot, group = key.partition(".")
    return group if dot and head == stream else None


def static_consumer(group: str, member: str) -> str:
    """The durable consumer of a static group's member, on the stream itself."""
    return f"{group}-{member}"


def static_partition_consumer(group: str, partition: int) -> str:
    """The durable consumer of one partition of a static group with the layout ``per_partition``."""
    return f"{group}={partition}"


def elastic_stream(stream: str, group: str) -> str:
    """The work queue stream of an elastic group."""
    return f"{stream}-{group}"


def elastic_consumer(member: str) -> str:
    """The consumer of an elastic group's member, on the group's work queue stream."""
    return member


def partition_consumer(partition: int) -> str:
    """The consumer of one partition of an elastic group with the layout ``per_partition``."""
    return f"partition={partition}"


def split_subject(subject: str) -> tuple[int, str]:
    """The partition and the rest of a subject as the group's consumers deliver it.

    Raises ValueError where the first token is no number: such a message is in no partition.
    """
    head, dot, rest = subject.partition(".")
    if not dot or not head.isdecimal():
        raise ValueError(f"subject {subject!r} does not begin with a partition")
    return int(head), rest
