"""Validation of priority groups in a consumer configuration."""

from __future__ import annotations

import re
from typing import Final

from ....api.consumers import ConsumerConfig
from ....api.errors import Errors
from .context import Refused

__all__ = ["check_group_name", "check_priority"]

_GROUP: Final = re.compile(r"[a-zA-Z0-9/_=-]{1,16}")


def check_group_name(name: str) -> None:
    """Refuse a name that no group can have."""
    if _GROUP.fullmatch(name) is None:
        raise Refused(Errors.CONSUMER_INVALID_GROUP_NAME)


def check_priority(config: ConsumerConfig) -> None:
    """Refuse priority settings that do not belong together."""
    if config.priority_policy == "none":
        if config.priority_groups:
            raise Refused(Errors.CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE)
        if config.priority_timeout > 0:
            raise Refused(Errors.CONSUMER_PINNED_TTL_WITHOUT_POLICY)
        return
    if config.deliver_subject:
        raise Refused(Errors.CONSUMER_PUSH_WITH_PRIORITY_GROUP)
    if not config.priority_groups:
        raise Refused(Errors.CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP)
    for group in config.priority_groups:
        if not group:
            raise Refused(Errors.CONSUMER_EMPTY_GROUP_NAME)
        check_group_name(group)
