"""Partitioned consumer groups: messages of a stream in strict order per key, by several members.

The room decides which member reads which partition, when an owner may begin and must stop, and what a
handler sees. It is handed a JetStream context (``connection.jetstream()``) of the client, and stands on
the client alone, so it runs on any server. Begin reading at ``record`` (what a group is, and who owns what),
then ``static`` and ``elastic`` (what users call), then ``member`` (a member at work). ``server`` is what a
group has there, ``changing`` how one is changed, ``progress``, ``reach`` and ``trouble`` whether it gets on,
``scaling`` how many members it should have. Source: the partitioned consumer groups document.
"""

from __future__ import annotations

from . import elastic, static
from .changing import ChangeProgress
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
from .record.assignment import MemberMapping, PartitioningFilter
from .record.records import ElasticGroup, GroupChange, Layout, StaticGroup
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
