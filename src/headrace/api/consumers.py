"""Consumers: configuration, state, and the documents of the CONSUMER API.

Sources: the pull-subscribe, simplification and priority-group documents; field names are the wire's.
"""

from __future__ import annotations

from typing import Literal

from ..field_docs import described
from .base import Document, fields
from .streams import ClusterInfo

DeliverPolicy = Literal[
    "all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject"
]
AckPolicy = Literal["none", "all", "explicit", "flow_control"]
ReplayPolicy = Literal["instant", "original"]
PriorityPolicy = Literal["none", "overflow", "pinned_client", "prioritized"]


@described
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
    """Its name, if it is to stay without anybody using it; "", the default, makes it ephemeral."""

    name: str = ""
    """Its name; "", the default, is ``durable_name``, or one that the server chooses."""

    description: str = ""
    """For people; up to 4 KiB. "" by default."""

    deliver_policy: DeliverPolicy = "all"
    """Where to begin: ``all``, the default, with the first message; ``last``, ``new``,
    ``last_per_subject``; ``by_start_sequence`` and ``by_start_time`` with ``opt_start_…``."""

    opt_start_seq: int = 0
    """The stream sequence to begin with, for ``by_start_sequence``; 0 by default."""

    opt_start_time: str | None = None
    """When to begin, as RFC 3339 text, for ``by_start_time``; None by default."""

    ack_policy: AckPolicy = "explicit"
    """What is acknowledged: ``explicit``, the default, each message; ``all`` everything up to the one
    acknowledged; ``none`` nothing; ``flow_control`` is for stream sources."""

    ack_wait: float = 0.0
    """Seconds after which a message without an acknowledgement is delivered again; 0, the default, is 30
    seconds."""

    max_deliver: int = 0
    """How often a message is delivered at most; 0, the default, and -1: any number of times."""

    backoff: tuple[float, ...] = ()
    """Seconds to wait for the acknowledgement of the first delivery, the second …; the last one holds from
    then on. It is used instead of ``ack_wait``; empty, the default: none."""

    filter_subject: str = ""
    """Which subjects it delivers, with wildcards; "", the default, is all."""

    filter_subjects: tuple[str, ...] = ()
    """The same with several subjects, which must not overlap; empty by default."""

    replay_policy: ReplayPolicy = "instant"
    """How fast: ``instant``, the default, or ``original``, in the rhythm in which the messages came."""

    rate_limit_bps: int = 0
    """Bits per second that a push consumer sends at most; 0, the default: no limit."""

    sample_freq: str = ""
    """Percent of acknowledgements that are reported as metrics, as text: ``"30"``; "", the default: none.
    Percent of acknowledgements that are reported as metrics, as text: ``"30"``; "", the default: none."""

    max_waiting: int = 0
    """How many pulls may wait at once; 0, the default, is 512."""

    max_ack_pending: int = 0
    """How many messages may be delivered and not acknowledged, before delivery stops; 0, the default, is
    1,000 (-1: any number)."""

    flow_control: bool = False
    """Whether a push consumer waits for its receiver to keep up; needs ``idle_heartbeat``. False by
    default."""

    headers_only: bool = False
    """Whether messages come without payload, whose size then stands in ``Nats-Msg-Size``; False by
    default."""

    max_batch: int = 0
    """How many messages one pull may ask for; 0, the default: any number."""

    max_expires: float = 0.0
    """Seconds one pull may wait at most; 0, the default: any time."""

    max_bytes: int = 0
    """How many bytes one pull may ask for; 0, the default: any number."""

    deliver_subject: str = ""
    """Where a push consumer sends messages; "", the default, makes it one that is pulled from."""

    deliver_group: str = ""
    """The queue group that shares what a push consumer sends; "", the default: none."""

    idle_heartbeat: float = 0.0
    """Seconds after which a push consumer that has nothing to send says so, at least 0.1; 0, the default:
    never."""

    inactive_threshold: float = 0.0
    """Seconds after which it is removed if nobody uses it; 0, the default, is 5 seconds of an ephemeral
    one, and never of a durable one."""

    num_replicas: int = 0
    """How many servers of a cluster keep its state; 0, the default: as many as keep the stream."""

    mem_storage: bool = False
    """Whether its state is kept in memory only; False, the default: as the stream is."""

    direct: bool = False
    """Of mirrors and sources, which make such consumers themselves; False by default."""

    sourcing: bool = False
    """Of mirrors and sources, which make such consumers themselves; False by default."""

    metadata: dict[str, str] = {}
    """Names and values for people and programs; empty by default. Names that begin with ``_nats.`` are the
    server's."""

    pause_until: str | None = None
    """Until when it delivers nothing, as RFC 3339 text; None, the default: it delivers."""

    priority_groups: tuple[str, ...] = ()
    """The names of its priority groups; empty, the default: none. Servers support one."""

    priority_policy: PriorityPolicy = "none"
    """Which pulls of a group come first: ``none``, the default; ``overflow`` when enough waits;
    ``pinned_client`` one client only; ``prioritized`` by the number each pull gives."""

    priority_timeout: float = 0.0
    """Seconds without a pull after which a pinned client loses its pin; 0, the default, is 120 seconds."""


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
