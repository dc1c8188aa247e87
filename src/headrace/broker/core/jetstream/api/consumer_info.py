"""What clients are told about a consumer."""

from __future__ import annotations

from typing import Final

import msgspec

from .....api.consumers import ConsumerConfig, ConsumerInfo, PriorityGroupState, SequenceInfo
from .....api.times import ZERO_TIME, format_time
from ..consumer.consumer import Consumer
from ..consumer.pull.policy import PinnedClient
from .dispatcher import dynamic_metadata

_NS: Final = 1_000_000_000


def consumer_info(consumer: Consumer, *, listed: bool = False) -> ConsumerInfo:
    """The answer to CONSUMER.INFO, and part of others; ``listed`` among others, a little less."""
    context = consumer.context
    state = consumer.state
    consumer.pulls.drop_abandoned()
    now_ns = context.clock.now_ns()
    paused = consumer.is_paused(now_ns)
    return ConsumerInfo(
        stream_name=consumer.stream.name,
        name=consumer.name,
        created=format_time(consumer.created_ns),
        config=_shown_config(consumer, listed=listed),
        delivered=SequenceInfo(
            consumer_seq=state.delivered_consumer,
            stream_seq=state.delivered_stream,
            last_active=_time(consumer.last_delivered_ns),
        ),
        ack_floor=SequenceInfo(
            consumer_seq=state.floor_consumer,
            stream_seq=state.floor_stream,
            last_active=_time(consumer.acks.last_ns),
        ),
        num_ack_pending=len(state.pending),
        num_redelivered=len(state.deliveries),
        num_waiting=consumer.queue.waiting,
        num_pending=consumer.num_pending(),
        push_bound=consumer.push is not None and consumer.push.active,
        paused=paused,
        pause_remaining=(consumer.pause.until_ns - now_ns) / _NS if paused else 0.0,
        ts=format_time(now_ns),
        priority_groups=_groups(consumer),
    )


def _time(at_ns: int) -> str | None:
    return format_time(at_ns) if at_ns else None


def _shown_config(consumer: Consumer, *, listed: bool) -> ConsumerConfig:
    config = consumer.config
    needs_level = config.pause_until is not None or config.priority_policy != "none"
    level = "4" if config.ack_policy == "flow_control" else "1" if needs_level else "0"
    dynamic = dynamic_metadata(consumer.context.options, level, listed=listed)
    return msgspec.structs.replace(config, metadata={**config.metadata, **dynamic})


def _groups(consumer: Consumer) -> tuple[PriorityGroupState, ...]:
    if consumer.config.priority_policy == "none":
        return ()
    group = consumer.config.priority_groups[0]
    policy = consumer.policy
    if isinstance(policy, PinnedClient) and policy.pin_id:
        pinned = format_time(policy.pinned_ns)
        return (PriorityGroupState(group=group, pinned_client_id=policy.pin_id, pinned_ts=pinned),)
    return (PriorityGroupState(group=group, pinned_ts=ZERO_TIME),)
