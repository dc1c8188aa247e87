"""Streams: configuration, state, and the documents of the STREAM API.

Source: the simplification document (streams) and the server's JSON; field names are the wire's.
Times are RFC 3339 text here, see ``times``.
"""

from __future__ import annotations

from typing import Any, Literal

from .base import Document, fields

Retention = Literal["limits", "interest", "workqueue"]
Discard = Literal["old", "new"]
StorageKind = Literal["file", "memory"]
Compression = Literal["none", "s2"]
PersistMode = Literal["", "default", "async"]


class SubjectTransformConfig(Document, frozen=True, kw_only=True):
    """Rewrites subjects matching ``src`` to ``dest``; an empty ``dest`` only filters."""

    always = ("src", "dest")

    src: str = ""
    dest: str = ""


class Republish(Document, frozen=True, kw_only=True):
    """Publish stored messages again on another subject."""

    always = ("dest",)

    src: str = ""
    dest: str = ""
    headers_only: bool = False


class ConsumerLimits(Document, frozen=True, kw_only=True):
    """Defaults and ceilings for the consumers of a stream; ``inactive_threshold`` in seconds."""

    durations = ("inactive_threshold",)

    inactive_threshold: float = 0.0
    max_ack_pending: int = 0


class Placement(Document, frozen=True, kw_only=True):
    """Where a cluster should put the stream; a single node ignores it."""

    cluster: str = ""
    tags: tuple[str, ...] = ()
    preferred: str = ""


class ExternalStream(Document, frozen=True, kw_only=True):
    """A stream in another account or domain: the prefixes of its API and of its deliveries."""

    always = ("api", "deliver")

    api: str = ""
    deliver: str = ""


class StreamConsumerSource(Document, frozen=True, kw_only=True):
    """A durable push consumer of the origin, with the ack policy ``flow_control``, to copy through."""

    name: str = ""
    deliver_subject: str = ""


class StreamSource(Document, frozen=True, kw_only=True):
    """A stream to copy from (sources, mirror)."""

    always = ("name",)

    name: str = ""
    opt_start_seq: int = 0
    opt_start_time: str | None = None
    filter_subject: str = ""
    subject_transforms: tuple[SubjectTransformConfig, ...] = ()
    external: ExternalStream | None = None
    consumer: StreamConsumerSource | None = None
    domain: str = ""


class StreamConfig(Document, frozen=True, kw_only=True):
    """How a stream stores messages.

    Durations (``max_age``, ``duplicate_window``, ``subject_delete_marker_ttl``) are seconds, 0 meaning
    none. Counts and sizes (bytes) are −1 for no limit. ``subjects`` defaults to the stream's own name.
    """

    durations = ("max_age", "duplicate_window", "subject_delete_marker_ttl")
    always = fields(
        "name retention max_consumers max_msgs max_bytes max_age max_msgs_per_subject "
        "max_msg_size discard storage num_replicas compression allow_direct mirror_direct sealed "
        "deny_delete deny_purge allow_rollup_hdrs consumer_limits allow_msg_ttl"
    )

    name: str = ""
    description: str = ""
    subjects: tuple[str, ...] = ()
    retention: Retention = "limits"
    max_consumers: int = -1
    max_msgs: int = -1
    max_bytes: int = -1
    max_age: float = 0.0
    max_msgs_per_subject: int = -1
    max_msg_size: int = -1
    discard: Discard = "old"
    storage: StorageKind = "file"
    num_replicas: int = 1
    no_ack: bool = False
    duplicate_window: float = 0.0
    placement: Placement | None = None
    mirror: StreamSource | None = None
    sources: tuple[StreamSource, ...] = ()
    compression: Compression = "none"
    first_seq: int = 0
    subject_transform: SubjectTransformConfig | None = None
    republish: Republish | None = None
    allow_direct: bool = False
    mirror_direct: bool = False
    discard_new_per_subject: bool = False
    sealed: bool = False
    deny_delete: bool = False
    deny_purge: bool = False
    allow_rollup_hdrs: bool = False
    consumer_limits: ConsumerLimits = ConsumerLimits()
    allow_msg_ttl: bool = False
    subject_delete_marker_ttl: float = 0.0
    allow_msg_counter: bool = False
    allow_atomic: bool = False
    allow_msg_schedules: bool = False
    allow_batched: bool = False
    persist_mode: PersistMode = ""
    metadata: dict[str, str] = {}
    template_owner: str = ""  # obsolete; old clients still send it
    pedantic: bool = False  # a field of the request, never part of a stored configuration


class LostMessages(Document, frozen=True, kw_only=True):
    """Messages that the store found damaged: their sequences and bytes."""

    msgs: tuple[int, ...] = ()
    bytes: int = 0


class StreamStateInfo(Document, frozen=True, kw_only=True):
    """What a stream holds; ``bytes`` as counted by the server, times as RFC 3339."""

    always = ("messages", "bytes", "first_seq", "first_ts", "last_seq", "last_ts", "consumer_count")

    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    first_ts: str = "0001-01-01T00:00:00Z"
    last_seq: int = 0
    last_ts: str = "0001-01-01T00:00:00Z"
    num_subjects: int = 0
    subjects: dict[str, int] = {}
    num_deleted: int = 0
    deleted: tuple[int, ...] = ()
    lost: LostMessages | None = None
    consumer_count: int = 0


class PeerInfo(Document, frozen=True, kw_only=True):
    """A follower in a cluster: active ``active`` seconds ago, ``lag`` operations behind."""

    durations = ("active",)

    name: str = ""
    current: bool = False
    offline: bool = False
    active: float = 0.0
    lag: int = 0


class ClusterInfo(Document, frozen=True, kw_only=True):
    """The leader and the followers; a single node names itself."""

    name: str = ""
    leader: str = ""
    replicas: tuple[PeerInfo, ...] = ()


class StreamAlternate(Document, frozen=True, kw_only=True):
    """A mirror of the stream, or the stream itself, that answers Direct Get; the nearest comes first."""

    name: str = ""
    domain: str = ""
    cluster: str = ""


class StreamSourceInfo(Document, frozen=True, kw_only=True):
    """The progress of a source or mirror: ``lag`` messages behind, ``active`` seconds ago (< 0: never)."""

    durations = ("active",)
    always = ("name", "lag", "active")

    name: str = ""
    lag: int = 0
    active: float = -1e-9
    filter_subject: str = ""
    subject_transforms: tuple[SubjectTransformConfig, ...] = ()
    external: ExternalStream | None = None
    error: dict[str, Any] | None = None
    seq: int = 0


class StreamInfo(Document, frozen=True, kw_only=True):
    """A stream: its configuration and state."""

    always = ("config", "created", "state", "ts")

    config: StreamConfig = StreamConfig()
    created: str = "0001-01-01T00:00:00Z"
    state: StreamStateInfo = StreamStateInfo()
    cluster: ClusterInfo | None = None
    mirror: StreamSourceInfo | None = None
    sources: tuple[StreamSourceInfo, ...] = ()
    domain: str = ""
    alternates: tuple[StreamAlternate, ...] = ()
    ts: str = ""
    did_create: bool = False


class StreamInfoRequest(Document, frozen=True, kw_only=True):
    """Body of STREAM.INFO; ``subjects_filter`` asks for per-subject counts, from ``offset``."""

    deleted_details: bool = False
    subjects_filter: str = ""
    offset: int = 0


class StreamNamesRequest(Document, frozen=True, kw_only=True):
    """Body of STREAM.NAMES and STREAM.LIST."""

    offset: int = 0
    subject: str = ""


class StreamNamesResponse(Document, frozen=True, kw_only=True):
    """A page of stream names."""

    always = ("total", "offset", "limit", "streams")

    total: int = 0
    offset: int = 0
    limit: int = 0
    streams: tuple[str, ...] = ()


class StreamListResponse(Document, frozen=True, kw_only=True):
    """A page of stream infos."""

    always = ("total", "offset", "limit", "streams")

    total: int = 0
    offset: int = 0
    limit: int = 0
    streams: tuple[StreamInfo, ...] = ()


class PurgeRequest(Document, frozen=True, kw_only=True):
    """Body of STREAM.PURGE: everything, or matching ``filter``, below ``seq``, or all but ``keep``."""

    filter: str = ""
    seq: int = 0
    keep: int = 0


class PurgeResponse(Document, frozen=True, kw_only=True):
    """How many messages were removed."""

    always = ("success", "purged")

    success: bool = False
    purged: int = 0
