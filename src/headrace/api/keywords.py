"""Streams and consumers by keyword: the types of ``create_stream(…)`` and its like.

Written by ``scripts/make-keywords`` from ``StreamConfig`` and ``ConsumerConfig``: change the fields there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypedDict

from .consumers import AckPolicy, DeliverPolicy, PriorityPolicy, ReplayPolicy
from .streams import (
    Compression,
    ConsumerLimits,
    Discard,
    PersistMode,
    Placement,
    Republish,
    Retention,
    StorageKind,
    StreamSource,
    SubjectTransformConfig,
)


class StreamFields(TypedDict, total=False):
    """The fields of a ``StreamConfig`` as keyword arguments."""

    name: str
    description: str
    subjects: str | Sequence[str]
    retention: Retention
    max_consumers: int
    max_msgs: int
    max_bytes: int
    max_age: float | timedelta
    max_msgs_per_subject: int
    max_msg_size: int
    discard: Discard
    storage: StorageKind
    num_replicas: int
    no_ack: bool
    duplicate_window: float | timedelta
    placement: Placement | None
    mirror: StreamSource | None
    sources: Sequence[StreamSource]
    compression: Compression
    first_seq: int
    subject_transform: SubjectTransformConfig | None
    republish: Republish | None
    allow_direct: bool
    mirror_direct: bool
    discard_new_per_subject: bool
    sealed: bool
    deny_delete: bool
    deny_purge: bool
    allow_rollup_hdrs: bool
    consumer_limits: ConsumerLimits
    allow_msg_ttl: bool
    subject_delete_marker_ttl: float | timedelta
    allow_msg_counter: bool
    allow_atomic: bool
    allow_msg_schedules: bool
    allow_batched: bool
    persist_mode: PersistMode
    metadata: Mapping[str, str]
    template_owner: str
    pedantic: bool


class ConsumerFields(TypedDict, total=False):
    """The fields of a ``ConsumerConfig`` as keyword arguments."""

    durable_name: str
    name: str
    description: str
    deliver_policy: DeliverPolicy
    opt_start_seq: int
    opt_start_time: str | datetime | None
    ack_policy: AckPolicy
    ack_wait: float | timedelta
    max_deliver: int
    backoff: Sequence[float | timedelta]
    filter_subject: str
    filter_subjects: str | Sequence[str]
    replay_policy: ReplayPolicy
    rate_limit_bps: int
    sample_freq: str
    max_waiting: int
    max_ack_pending: int
    flow_control: bool
    headers_only: bool
    max_batch: int
    max_expires: float | timedelta
    max_bytes: int
    deliver_subject: str
    deliver_group: str
    idle_heartbeat: float | timedelta
    inactive_threshold: float | timedelta
    num_replicas: int
    mem_storage: bool
    direct: bool
    sourcing: bool
    metadata: Mapping[str, str]
    pause_until: str | datetime | None
    priority_groups: str | Sequence[str]
    priority_policy: PriorityPolicy
    priority_timeout: float | timedelta


class OrderedConsumerFields(TypedDict, total=False):
    """The fields of a ``ConsumerConfig`` that an ordered consumer leaves to its user."""

    deliver_policy: DeliverPolicy
    opt_start_seq: int
    opt_start_time: str | datetime | None
    filter_subject: str
    filter_subjects: str | Sequence[str]
    replay_policy: ReplayPolicy
    headers_only: bool
    inactive_threshold: float | timedelta
    metadata: Mapping[str, str]
