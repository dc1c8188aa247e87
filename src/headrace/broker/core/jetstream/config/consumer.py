"""Consumer configurations: defaults, validation, and what an update may change.

Order of the checks, texts and error numbers are the public server's.

Where the specification of priority groups is stricter than the public server, this follows it: one group
per consumer, explicit acks for ``overflow`` and ``pinned_client``, groups and policy fixed for life. The
public server has no error numbers for these, so they carry the general one of a refused consumer.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from .....api.base import DocumentError
from .....api.consumers import ConsumerConfig
from .....api.errors import Errors
from .....api.streams import StreamConfig
from .....documents import read_typed
from .....limits import (
    ACK_WAIT_S_DEFAULT,
    DESCRIPTION_BYTES_MAX,
    EPHEMERAL_INACTIVE_S_DEFAULT,
    MAX_ACK_PENDING_DEFAULT,
    MAX_WAITING_DEFAULT,
    METADATA_BYTES_MAX,
    NAME_CHARS_MAX,
    PINNED_TTL_S_DEFAULT,
    PRIORITY_GROUP_CHARS_MAX,
)
from .....pattern_tree import PatternTree, are_apart, check_branches, check_count
from .....quantities import go_duration_text
from .....subjects import SubjectFilter, is_subset, is_valid_pattern, is_valid_subject
from .options import FORBIDDEN_IN_NAMES, JetStreamOptions, Refused, invalid
from .sizes import check_backoff, check_entries, check_tokens
from .stream import metadata_bytes, without_dynamic_metadata

_GROUP: Final = re.compile(rf"[a-zA-Z0-9/_=-]{{1,{PRIORITY_GROUP_CHARS_MAX}}}")
_LOOKED_AT: Final = 2  # names; more groups than one are refused anyway
_EXPLICIT: Final = ("overflow", "pinned_client")
_HEARTBEAT_S_MIN: Final = 0.1
_FLOW_ACKS_HEARTBEAT_S: Final = 1.0
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}")
_MIN_EXPIRES_S: Final = 0.001
_NOT_NEGATIVE: Final = (
    "max_waiting",
    "max_batch",
    "max_expires",
    "max_bytes",
    "idle_heartbeat",
    "inactive_threshold",
    "priority_timeout",
)
_POLICY_WORDS: Final = {
    "last_per_subject": "last per subject",
    "by_start_sequence": "by start sequence",
    "by_start_time": "by start time",
}
_NOT_UPDATABLE: Final = (
    ("deliver_policy", "deliver policy"),
    ("mem_storage", "storage type"),
    ("direct", "direct"),
    ("sourcing", "sourcing"),
    ("opt_start_seq", "start sequence"),
    ("opt_start_time", "start time"),
    ("ack_policy", "ack policy"),
    ("replay_policy", "replay policy"),
    ("idle_heartbeat", "heart beats"),
    ("flow_control", "flow control"),
)


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
        return config  # ``_check_priority`` refuses it
    return msgspec.structs.replace(config, ack_policy="explicit")


def _check_priority(config: ConsumerConfig) -> None:
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


def _check_priority_update(old: ConsumerConfig, new: ConsumerConfig) -> None:
    """Refuse an update of groups or policy; the timeout alone may change."""
    if old.priority_policy != new.priority_policy:
        raise Refused(Errors.CONSUMER_CREATE, err="priority policy can not be updated")
    if old.priority_groups != new.priority_groups:
        raise Refused(Errors.CONSUMER_CREATE, err="priority groups can not be updated")


def _check_push(config: ConsumerConfig, stream: StreamConfig) -> None:
    """Refuse what a consumer with a deliver subject can not be."""
    tokens = config.deliver_subject.split(".")
    if "*" in tokens or ">" in tokens:
        raise Refused(Errors.CONSUMER_DELIVER_TO_WILDCARDS)
    subject = config.deliver_subject.encode()
    if not is_valid_subject(subject):
        raise Refused(Errors.CONSUMER_INVALID_DELIVER_SUBJECT)
    if any(is_subset(subject, pattern.encode()) for pattern in stream.subjects):
        raise Refused(Errors.CONSUMER_DELIVER_CYCLE)
    if config.max_waiting:
        raise Refused(Errors.CONSUMER_PUSH_MAX_WAITING)
    if config.max_ack_pending > 0 and config.ack_policy == "none":
        raise Refused(Errors.CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED)
    if 0 < config.idle_heartbeat < _HEARTBEAT_S_MIN:
        raise Refused(Errors.CONSUMER_SMALL_HEARTBEAT)


def _check_direct(config: ConsumerConfig) -> None:
    """Refuse a consumer of the kind mirrors use that could not serve one."""
    if not config.deliver_subject:
        raise Refused(Errors.CONSUMER_DIRECT_REQUIRES_PUSH)
    if config.durable_name:
        raise Refused(Errors.CONSUMER_DIRECT_REQUIRES_EPHEMERAL)


def _check_side(old: ConsumerConfig, new: ConsumerConfig) -> None:
    """Refuse an update that makes a pull consumer of a push consumer, or the reverse."""
    if new.deliver_subject and not old.deliver_subject:
        raise Refused(Errors.CONSUMER_CREATE, err="can not update pull consumer to push based")
    if old.deliver_subject and not new.deliver_subject:
        raise Refused(Errors.CONSUMER_CREATE, err="can not update push consumer to pull based")


def check_rate(config: ConsumerConfig) -> None:
    """Refuse a rate below zero, which is no number of bits. Raises DocumentError."""
    if config.rate_limit_bps < 0:
        raise DocumentError(
            f"json: cannot unmarshal number {config.rate_limit_bps} into config.rate_limit_bps"
            " of type uint64"
        )


def with_flow_control(config: ConsumerConfig) -> ConsumerConfig:
    """The policy brings flow control and heartbeats of a second with it."""
    if config.ack_policy != "flow_control":
        return config
    return msgspec.structs.replace(config, flow_control=True, idle_heartbeat=_FLOW_ACKS_HEARTBEAT_S)


def _check_flow_acks(config: ConsumerConfig) -> None:
    """Refuse what does not go with the policy."""
    if config.ack_policy != "flow_control":
        return
    if not config.deliver_subject:
        raise Refused(Errors.CONSUMER_FLOW_ACKS_REQUIRE_PUSH)
    if not config.flow_control:
        raise Refused(Errors.CONSUMER_FLOW_ACKS_REQUIRE_FLOW_CONTROL)
    if config.idle_heartbeat != _FLOW_ACKS_HEARTBEAT_S:
        text = "flow control ack policy heartbeat needs to be 1s"
        raise invalid(text)
    if config.max_ack_pending <= 0:
        raise Refused(Errors.CONSUMER_FLOW_ACKS_REQUIRE_MAX_ACK_PENDING)
    if config.ack_wait or config.backoff:
        raise Refused(Errors.CONSUMER_FLOW_ACKS_WITH_ACK_WAIT)
    if config.max_deliver > 0:
        raise Refused(Errors.CONSUMER_FLOW_ACKS_WITH_MAX_DELIVER)


def check_consumer_name(name: str) -> None:
    """Refuse a name that can not be a token of a subject."""
    if "/" in name or "\\" in name:
        raise Refused(Errors.CONSUMER_NAME_PATH_SEPARATORS)
    if not name or not FORBIDDEN_IN_NAMES.isdisjoint(name):
        raise invalid("consumer name can not contain '.', '*', '>', '\\', '/'")
    if len(name) > NAME_CHARS_MAX:
        raise Refused(Errors.CONSUMER_NAME_TOO_LONG, max=NAME_CHARS_MAX)


def with_consumer_defaults(
    config: ConsumerConfig, stream: StreamConfig, options: JetStreamOptions
) -> ConsumerConfig:
    """The configuration with absent values filled in, all but an ephemeral's inactivity."""
    changes: dict[str, object] = {
        name: type(getattr(config, name))(0) for name in _NOT_NEGATIVE if getattr(config, name) < 0
    }
    if config.max_deliver == 0 or config.max_deliver < -1:
        changes["max_deliver"] = -1
    if config.backoff:
        changes["ack_wait"] = config.backoff[0]
    if config.ack_policy != "none":
        if config.ack_wait == 0 and not config.backoff and config.ack_policy != "flow_control":
            changes["ack_wait"] = ACK_WAIT_S_DEFAULT
        limit = config.max_ack_pending or stream.consumer_limits.max_ack_pending
        if not limit:
            most = (options.assets.max_ack_pending, options.limits.max_ack_pending)
            limit = min([MAX_ACK_PENDING_DEFAULT, *(limit for limit in most if limit > 0)])
        changes["max_ack_pending"] = max(limit, -1)
    elif not config.max_ack_pending and stream.consumer_limits.max_ack_pending > 0:
        changes["max_ack_pending"] = stream.consumer_limits.max_ack_pending
    if not config.deliver_subject and config.max_waiting <= 0:
        changes["max_waiting"] = MAX_WAITING_DEFAULT
    if config.inactive_threshold <= 0 < stream.consumer_limits.inactive_threshold:
        changes["inactive_threshold"] = stream.consumer_limits.inactive_threshold
    if config.priority_policy == "pinned_client" and config.priority_timeout <= 0:
        changes["priority_timeout"] = PINNED_TTL_S_DEFAULT
    if options.assets.max_request_batch > 0 and not (config.max_batch or config.deliver_subject):
        changes["max_batch"] = options.assets.max_request_batch
    changes["metadata"] = without_dynamic_metadata(config.metadata)
    return msgspec.structs.replace(config, **changes)


def with_ephemeral_default(config: ConsumerConfig) -> ConsumerConfig:
    """An ephemeral without a threshold of its own goes after five seconds without use."""
    if config.durable_name or config.inactive_threshold > 0:
        return config
    return msgspec.structs.replace(config, inactive_threshold=EPHEMERAL_INACTIVE_S_DEFAULT)


def check_pedantic(config: ConsumerConfig, stream: StreamConfig, options: JetStreamOptions) -> None:
    """Refuse what would be silently put right."""

    def insist(wrong: bool, text: str) -> None:
        if wrong:
            raise Refused(Errors.PEDANTIC, err=text)

    insist(config.max_deliver < -1, "max_deliver must be set to -1")
    insist(config.max_waiting < 0, "max_waiting must not be negative")
    insist(config.max_ack_pending < -1, "max_ack_pending must be set to -1")
    for name in _NOT_NEGATIVE[1:]:
        insist(getattr(config, name) < 0, f"{name} must not be negative")
    if config.backoff and config.ack_policy != "none":
        insist(
            config.ack_wait != config.backoff[0], "first backoff value has to equal batch AckWait"
        )
    limits = stream.consumer_limits
    insist(
        limits.max_ack_pending > 0 and not config.max_ack_pending,
        "max_ack_pending must be set if it's configured in stream limits",
    )
    insist(
        limits.inactive_threshold > 0 and not config.inactive_threshold,
        "inactive_threshold must be set if it's configured in stream limits",
    )
    insist(
        options.assets.max_request_batch > 0 and not (config.max_batch or config.deliver_subject),
        "max_request_batch must be set if it's JetStream limits are set",
    )


def check_consumer(config: ConsumerConfig, stream: StreamConfig, options: JetStreamOptions) -> None:
    """Refuse a configuration (after defaults) that can not be."""
    _check_replicas(config, stream)
    _check_acks(config)
    if len(config.description.encode()) > DESCRIPTION_BYTES_MAX:
        raise Refused(Errors.CONSUMER_DESCRIPTION_TOO_LONG, max=DESCRIPTION_BYTES_MAX)
    if config.deliver_subject:
        _check_push(config, stream)
    else:
        _check_pull(config, stream, options)
    if config.direct:
        _check_direct(config)
    for most in (options.assets.max_ack_pending, options.limits.max_ack_pending):
        if 0 < most < config.max_ack_pending:
            raise Refused(Errors.CONSUMER_MAX_PENDING_ACK_EXCESS, limit=most)
    limits = stream.consumer_limits
    if 0 < limits.max_ack_pending < config.max_ack_pending:
        raise Refused(Errors.CONSUMER_MAX_PENDING_ACK_EXCESS, limit=limits.max_ack_pending)
    if 0 < limits.inactive_threshold < config.inactive_threshold:
        limit = go_duration_text(round(limits.inactive_threshold * 1e9))
        raise Refused(Errors.CONSUMER_INACTIVE_THRESHOLD_EXCESS, limit=limit)
    _check_filters(config)
    _check_start(config)
    _check_sampling(config.sample_freq)
    if config.flow_control and not config.idle_heartbeat:
        raise Refused(Errors.CONSUMER_FC_REQUIRES_HEARTBEAT)
    if config.durable_name and config.name and config.durable_name != config.name:
        raise Refused(Errors.CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH)
    if metadata_bytes(config.metadata) > METADATA_BYTES_MAX:
        raise Refused(Errors.CONSUMER_METADATA_LENGTH, limit=f"{METADATA_BYTES_MAX // 1024}KB")
    check_entries(config.metadata)
    _check_priority(config)


def _check_sampling(text: str) -> None:
    """Refuse what is no percentage: ``50`` or ``50%``."""
    if not text:
        return
    number = text.removesuffix("%")
    if _WHOLE.fullmatch(number) is None:
        words = f'strconv.Atoi: parsing "{number}": invalid syntax'
        raise Refused(Errors.CONSUMER_INVALID_SAMPLING, err=words)
    if int(number) < 0:
        raise Refused(Errors.CONSUMER_INVALID_SAMPLING, err="<nil>")


def _check_replicas(config: ConsumerConfig, stream: StreamConfig) -> None:
    if config.num_replicas < 0:
        raise Refused(Errors.REPLICAS_NEGATIVE)
    if config.num_replicas > 1:
        raise Refused(Errors.STREAM_REPLICAS_NOT_SUPPORTED)
    if config.num_replicas > stream.num_replicas:
        raise Refused(Errors.CONSUMER_REPLICAS_EXCEEDS_STREAM)


def _check_acks(config: ConsumerConfig) -> None:
    check_backoff(config)
    if any(pause < 0 for pause in config.backoff):
        raise Refused(Errors.CONSUMER_BACKOFF_NEGATIVE)
    if config.ack_wait < 0:
        raise Refused(Errors.CONSUMER_ACK_WAIT_NEGATIVE)
    _check_flow_acks(config)
    if config.backoff and config.max_deliver != -1 and len(config.backoff) > config.max_deliver:
        raise Refused(Errors.CONSUMER_MAX_DELIVER_BACKOFF)


def _check_pull(config: ConsumerConfig, stream: StreamConfig, options: JetStreamOptions) -> None:
    if stream.retention == "workqueue" and config.ack_policy == "none":
        raise Refused(Errors.CONSUMER_PULL_REQUIRES_ACK)
    if config.rate_limit_bps > 0:
        raise Refused(Errors.CONSUMER_PULL_WITH_RATE_LIMIT)
    if config.idle_heartbeat > 0:
        raise Refused(Errors.CONSUMER_HEARTBEAT_REQUIRES_PUSH)
    if config.flow_control:
        raise Refused(Errors.CONSUMER_FLOW_CONTROL_REQUIRES_PUSH)
    if 0 < config.max_expires < _MIN_EXPIRES_S:
        raise Refused(Errors.CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL)
    if 0 < options.assets.max_request_batch < config.max_batch:
        limit = options.assets.max_request_batch
        raise Refused(Errors.CONSUMER_MAX_REQUEST_BATCH_EXCEEDED, limit=limit)


def _check_filters(config: ConsumerConfig) -> None:
    if config.filter_subject and config.filter_subjects:
        raise Refused(Errors.CONSUMER_DUPLICATE_FILTERS)
    if any(not pattern for pattern in config.filter_subjects):
        raise Refused(Errors.CONSUMER_EMPTY_FILTER)
    check_count(len(config.filter_subjects))
    check_tokens(config.filter_subjects)
    patterns = [pattern.encode() for pattern in filters_of(config)]
    for pattern in patterns:
        if not is_valid_pattern(pattern):
            raise invalid("invalid subject")
    if len(patterns) > 1 and _any_subset(patterns):
        raise Refused(Errors.CONSUMER_OVERLAPPING_FILTERS)


def _any_subset(patterns: list[bytes]) -> bool:
    """Whether one pattern is part of another."""
    if are_apart(patterns):
        return False
    if len(set(patterns)) != len(patterns):
        return True
    check_branches(patterns)
    tree = PatternTree(patterns)
    return any(tree.containing(pattern) is not None for pattern in patterns)


def _check_start(config: ConsumerConfig) -> None:
    policy = config.deliver_policy
    words = _POLICY_WORDS.get(policy, policy)
    sequence, time = config.opt_start_seq != 0, config.opt_start_time is not None
    complaint = ""
    if policy == "by_start_sequence":
        complaint = "start sequence is not set" if not sequence else ""
        complaint = complaint or ("start time is also set" if time else "")
    elif policy == "by_start_time":
        complaint = "start time is not set" if not time else ""
        # The public server says "start" twice.
        complaint = complaint or ("start start sequence is also set" if sequence else "")
    elif sequence or time:
        complaint = f"start {'sequence' if sequence else 'time'} is also set"
    text = (
        f"consumer delivery policy is deliver {words}, but optional {complaint}"
        if complaint
        else ""
    )
    if policy == "last_per_subject" and not text and not filters_of(config):
        text = "consumer delivery policy is deliver last per subject, but optional filter subject is not set"
    if text:
        raise Refused(Errors.CONSUMER_INVALID_POLICY, err=text)


def check_consumer_update(old: ConsumerConfig, new: ConsumerConfig) -> None:
    """Refuse an update that changes what can not change."""
    for field, words in _NOT_UPDATABLE:
        if getattr(old, field) != getattr(new, field):
            raise Refused(Errors.CONSUMER_CREATE, err=f"{words} can not be updated")
    _check_side(old, new)
    if old.max_waiting != new.max_waiting:
        raise Refused(Errors.CONSUMER_CREATE, err="max waiting can not be updated")
    _check_priority_update(old, new)
    if new.backoff and new.max_deliver != -1 and len(new.backoff) > new.max_deliver:
        raise Refused(Errors.CONSUMER_MAX_DELIVER_BACKOFF)


def filters_of(config: ConsumerConfig) -> tuple[str, ...]:
    """The filter subjects of a configuration, in either field."""
    if config.filter_subjects:
        return config.filter_subjects
    return (config.filter_subject,) if config.filter_subject else ()


def filter_of(config: ConsumerConfig) -> SubjectFilter | None:
    """The compiled filter; None when every subject matches."""
    patterns = [pattern.encode() for pattern in filters_of(config)]
    if not patterns or b">" in patterns:
        return None
    return SubjectFilter(patterns)
