"""Consumers: configuration, state, and the documents of the CONSUMER API.

Sources: the pull-subscribe, simplification and priority-group documents; field names are the wire's.
"""

from __future__ import annotations

from typing import Literal

from .base import Document, fields
from .streams import ClusterInfo

DeliverPolicy = Literal[
    "all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject"
]
AckPolicy = Literal["none", "all", "explicit", "flow_control"]
ReplayPolicy = Literal["instant", "original"]
PriorityPolicy = Literal["none", "overflow", "pinned_client", "prioritized"]


class ConsumerConfig(Document, frozen=True, kw_only=True):
    """How a consumer delivers.

    Durations (``ack_wait``, ``backoff``, ``inactive_threshold``, ``max_expires``, ``idle_heartbeat``,
    ``priority_timeout``) are seconds. Zero means the server's default. ``ack_policy`` defaults to
    ``explicit`` in this library. In a raw request its absence means ``none``; the broker handles that.
    """

    durations = fields(
        "ack_wait backoff max_expires idle_heartbeat inactive_threshold priority_timeout"
    )
    always = ("deliver_policy", "ack_policy", "replay_policy", "num_replicas")

    durable_name: str = ""
    name: str = ""
    description: str = ""
    deliver_policy: DeliverPolicy = "all"
    opt_start_seq: int = 0
    opt_start_time: str | None = None
    ack_policy: AckPolicy = "explicit"
    ack_wait: float = 0.0
    max_deliver: int = 0
    backoff: tuple[float, ...] = ()
    filter_subject: str = ""
    filter_subjects: tuple[str, ...] = ()
    replay_policy: ReplayPolicy = "instant"
    rate_limit_bps: int = 0
    sample_freq: str = ""
    max_waiting: int = 0
    max_ack_pending: int = 0
    flow_control: bool = False
    headers_only: bool = False
    max_batch: int = 0
    max_expires: float = 0.0
    max_bytes: int = 0
    deliver_subject: str = ""
    deliver_group: str = ""
    idle_heartbeat: float = 0.0
    inactive_threshold: float = 0.0
    num_replicas: int = 0
    mem_storage: bool = False
    direct: bool = False
    sourcing: bool = False
    metadata: dict[str, str] = {}
    pause_until: str | None = None
    priority_groups: tuple[str, ...] = ()
    priority_policy: PriorityPolicy = "none"
    priority_timeout: float = 0.0


class SequenceInfo(Document, frozen=True, kw_only=True):
    """A position: the consumer's own count and the stream sequence."""

    always = ("consumer_seq", "stream_seq")

    consumer_seq: int = 0
    stream_seq: int = 0
    last_active: str | None = None


class PriorityGroupState(Document, frozen=True, kw_only=True):
    """Who is pinned in a priority group. ``pinned_ts`` is the zero time when no client is."""

    always = ("group", "pinned_ts")

    group: str = ""
    pinned_client_id: str = ""
    pinned_ts: str = "0001-01-01T00:00:00Z"


class ConsumerInfo(Document, frozen=True, kw_only=True):
    """A consumer: its configuration and its position. ``pause_remaining`` in seconds."""

    durations = ("pause_remaining",)
    always = fields(
        "stream_name name created config delivered ack_floor num_ack_pending num_redelivered "
        "num_waiting num_pending ts"
    )

    stream_name: str = ""
    name: str = ""
    created: str = "0001-01-01T00:00:00Z"
    config: ConsumerConfig = ConsumerConfig()
    delivered: SequenceInfo = SequenceInfo()
    ack_floor: SequenceInfo = SequenceInfo()
    num_ack_pending: int = 0
    num_redelivered: int = 0
    num_waiting: int = 0
    num_pending: int = 0
    cluster: ClusterInfo | None = None  # absent on a single node
    push_bound: bool = False
    paused: bool = False
    pause_remaining: float = 0.0
    ts: str = ""
    priority_groups: tuple[PriorityGroupState, ...] = ()
    reset_seq: int = 0  # only in the answer to CONSUMER.RESET


class CreateConsumerRequest(Document, frozen=True, kw_only=True):
    """Body of CONSUMER.CREATE. ``action`` is "", "create" or "update"."""

    always = ("stream_name", "config")

    stream_name: str = ""
    config: ConsumerConfig = ConsumerConfig()
    action: str = ""
    pedantic: bool = False


class OffsetRequest(Document, frozen=True, kw_only=True):
    """Body of CONSUMER.NAMES and CONSUMER.LIST."""

    offset: int = 0


class ConsumerNamesResponse(Document, frozen=True, kw_only=True):
    """A page of consumer names."""

    always = ("total", "offset", "limit", "consumers")

    total: int = 0
    offset: int = 0
    limit: int = 0
    consumers: tuple[str, ...] = ()


class ConsumerListResponse(Document, frozen=True, kw_only=True):
    """A page of consumer infos."""

    always = ("total", "offset", "limit", "consumers")

    total: int = 0
    offset: int = 0
    limit: int = 0
    consumers: tuple[ConsumerInfo, ...] = ()


class PauseRequest(Document, frozen=True, kw_only=True):
    """Body of CONSUMER.PAUSE; without ``pause_until`` the consumer resumes."""

    pause_until: str | None = None


class PauseResponse(Document, frozen=True, kw_only=True):
    """Whether the consumer is paused now; ``pause_remaining`` in seconds."""

    durations = ("pause_remaining",)
    always = ("paused", "pause_until")

    paused: bool = False
    pause_until: str = "0001-01-01T00:00:00Z"
    pause_remaining: float = 0.0


class ResetRequest(Document, frozen=True, kw_only=True):
    """Body of CONSUMER.RESET; 0 means back to the ack floor."""

    seq: int = 0


class UnpinRequest(Document, frozen=True, kw_only=True):
    """Body of CONSUMER.UNPIN."""

    always = ("group",)

    group: str = ""


class PullRequest(Document, frozen=True, kw_only=True):
    """Body of CONSUMER.MSG.NEXT. ``expires`` and ``idle_heartbeat`` in seconds; 0 means none.

    ``batch`` 0 delivers one message. A negative ``expires`` has already expired.
    """

    durations = ("expires", "idle_heartbeat")

    expires: float = 0.0
    batch: int = 0
    max_bytes: int = 0
    no_wait: bool = False
    idle_heartbeat: float = 0.0
    group: str = ""
    min_pending: int = 0
    min_ack_pending: int = 0
    id: str = ""
    priority: int = 0
