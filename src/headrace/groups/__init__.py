"""Partitioned consumer groups: messages of a stream in strict order per key, by several members.

The room decides which member reads which partition, when an owner may begin and must stop, and what a
handler sees. It is handed a JetStream context (``connection.jetstream()``) of the client, and stands on
the client alone, so it runs on any server. Begin reading at ``records`` (what a group is) and
``assignment`` (who owns what), then ``static`` and ``elastic`` (what users call), then ``member`` (a
member at work). Source: the partitioned consumer groups document.
"""

from __future__ import annotations

from . import elastic, static
from .assignment import MemberMapping
from .change import ChangeProgress
from .change_record import GroupChange
from .errors import (
    GroupChangedError,
    GroupConfigurationError,
    GroupError,
    GroupExistsError,
    GroupNotFoundError,
    GroupRecordError,
    HandlerFailedError,
    MemberNotActiveError,
    NotAMemberError,
    NotConfirmedError,
    NotOwnedError,
)
from .member import DeadLetter, Membership, OnFailure, Retry, Stop
from .message import GroupMessage
from .records import ElasticGroup, Layout, PartitioningFilter, StaticGroup
from .start import AfterConsumer, AfterGroup

__all__ = [
    "AfterConsumer",
    "AfterGroup",
    "ChangeProgress",
    "DeadLetter",
    "ElasticGroup",
    "GroupChange",
    "GroupChangedError",
    "GroupConfigurationError",
    "GroupError",
    "GroupExistsError",
    "GroupMessage",
    "GroupNotFoundError",
    "GroupRecordError",
    "HandlerFailedError",
    "Layout",
    "MemberMapping",
    "MemberNotActiveError",
    "Membership",
    "NotAMemberError",
    "NotConfirmedError",
    "NotOwnedError",
    "OnFailure",
    "PartitioningFilter",
    "Retry",
    "StaticGroup",
    "Stop",
    "elastic",
    "static",
]
