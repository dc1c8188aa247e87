"""Partitioned consumer groups without ``async``: the same names as ``headrace.groups``, for threads.

::

    from headrace import sync
    from headrace.sync.groups import elastic

    with sync.connect() as connection:
        with elastic.join(connection.jetstream(), "ORDERS", "billing", "a", handle) as membership:
            membership.wait()

Handlers are plain functions, and run on threads of the membership's own.
"""

from __future__ import annotations

from ...groups import (
    AfterConsumer,
    AfterGroup,
    ChangeProgress,
    DeadLetter,
    ElasticGroup,
    GroupChange,
    GroupChangedError,
    GroupConfigurationError,
    GroupError,
    GroupExistsError,
    GroupNotFoundError,
    GroupRecordError,
    HandlerFailedError,
    Layout,
    MemberMapping,
    MemberNotActiveError,
    NotAMemberError,
    NotConfirmedError,
    NotOwnedError,
    OnFailure,
    PartitioningFilter,
    Retry,
    StaticGroup,
    Stop,
)
from ...groups.blocking import GroupMessage, Membership
from . import elastic, static

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
