"""What a push consumer's configuration may say. Order, texts and error numbers are the public server's."""

from __future__ import annotations

from typing import Final

import msgspec

from .....api.base import DocumentError
from .....api.consumers import ConsumerConfig
from .....api.errors import Errors
from .....api.streams import StreamConfig
from .....subjects import is_subset, is_valid_subject
from .refused import Refused, invalid

_HEARTBEAT_S_MIN: Final = 0.1
_FLOW_ACKS_HEARTBEAT_S: Final = 1.0


def check_push(config: ConsumerConfig, stream: StreamConfig) -> None:
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


def check_direct(config: ConsumerConfig) -> None:
    """Refuse a consumer of the kind mirrors use that could not serve one."""
    if not config.deliver_subject:
        raise Refused(Errors.CONSUMER_DIRECT_REQUIRES_PUSH)
    if config.durable_name:
        raise Refused(Errors.CONSUMER_DIRECT_REQUIRES_EPHEMERAL)


def check_side(old: ConsumerConfig, new: ConsumerConfig) -> None:
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


def check_flow_acks(config: ConsumerConfig) -> None:
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
