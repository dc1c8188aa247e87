"""Validation of priority groups in a consumer configuration.

Where the specification of priority groups is stricter than the public server, this follows it: one group
per consumer, explicit acks for ``overflow`` and ``pinned_client``, groups and policy fixed for life. The
public server has no error numbers for these, so they carry the general one of a refused consumer.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from .....api.consumers import ConsumerConfig
from .....api.errors import Errors
from .....documents import read_typed
from .....limits import PRIORITY_GROUP_CHARS_MAX
from .refused import Refused

_GROUP: Final = re.compile(rf"[a-zA-Z0-9/_=-]{{1,{PRIORITY_GROUP_CHARS_MAX}}}")
_LOOKED_AT: Final = 2  # names; more groups than one are refused anyway
_EXPLICIT: Final = ("overflow", "pinned_client")


class _Said(msgspec.Struct):
    """What a create request really says, before anything is filled in."""

    config: dict[str, Any] | None = None


def check_group_name(name: str) -> None:
    """Refuse a name that no group can have."""
    if _GROUP.fullmatch(name) is None:
        raise Refused(Errors.CONSUMER_INVALID_GROUP_NAME)


def with_explicit_acks(config: ConsumerConfig, body: bytes, *, pedantic: bool) -> ConsumerConfig:
    """The configuration with explicit acks where its policy needs them and ``body`` says nothing.

    A pedantic request must say it.
    """
    if config.priority_policy not in _EXPLICIT or config.ack_policy == "explicit":
        return config
    if pedantic:
        text = f"ack_policy must be explicit if priority_policy is {config.priority_policy}"
        raise Refused(Errors.PEDANTIC, err=text)
    said = read_typed(body, _Said).config or {}
    if said.get("ack_policy") is not None:
        return config  # ``check_priority`` refuses it
    return msgspec.structs.replace(config, ack_policy="explicit")


def check_priority(config: ConsumerConfig) -> None:
    """Refuse priority settings that do not belong together."""
    policy, groups = config.priority_policy, config.priority_groups
    if policy == "none":
        if groups:
            raise Refused(Errors.CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE)
        if config.priority_timeout > 0:
            raise Refused(Errors.CONSUMER_PINNED_TTL_WITHOUT_POLICY)
        return
    if config.deliver_subject:
        raise Refused(Errors.CONSUMER_PUSH_WITH_PRIORITY_GROUP)
    if not groups:
        raise Refused(Errors.CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP)
    for group in groups[:_LOOKED_AT]:
        if not group:
            raise Refused(Errors.CONSUMER_EMPTY_GROUP_NAME)
        check_group_name(group)
    if len(groups) > 1:
        text = f"priority groups are limited to one per consumer, and {len(groups)} are given"
        raise Refused(Errors.CONSUMER_CREATE, err=text)
    if policy in _EXPLICIT and config.ack_policy != "explicit":
        text = f"priority policy {policy} requires ack policy explicit, and not {config.ack_policy}"
        raise Refused(Errors.CONSUMER_CREATE, err=text)


def check_priority_update(old: ConsumerConfig, new: ConsumerConfig) -> None:
    """Refuse an update of groups or policy; the timeout alone may change."""
    if old.priority_policy != new.priority_policy:
        raise Refused(Errors.CONSUMER_CREATE, err="priority policy can not be updated")
    if old.priority_groups != new.priority_groups:
        raise Refused(Errors.CONSUMER_CREATE, err="priority groups can not be updated")
