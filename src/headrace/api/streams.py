"""Streams: configuration, state, and the documents of the STREAM API.

Source: the simplification document (streams) and the server's JSON; field names are the wire's.
Times are RFC 3339 text here, see ``times``.
"""

from __future__ import annotations

from typing import Any, Literal

from ..field_docs import described
from .base import Document, fields

Retention = Literal["limits", "interest", "workqueue"]
Discard = Literal["old", "new"]
StorageKind = Literal["file", "memory"]
Compression = Literal["none", "s2"]
PersistMode = Literal["", "default", "async"]


@described
class SubjectTransformConfig(Document, frozen=True, kw_only=True):
    """Rewrites subjects matching ``src`` to ``dest``; an empty ``dest`` only filters."""

    always = ("src", "dest")

    src: str = ""
    """The subjects it is about, with wildcards."""

    dest: str = ""
    """What they become: ``{{wildcard(1)}}``, ``{{partition(4,1)}}`` and the like stand for tokens; ""
    keeps them."""


@described
class Republish(Document, frozen=True, kw_only=True):
    """Publish stored messages again on another subject."""

    always = ("dest",)

    src: str = ""
    """The subjects of stored messages to publish again, with wildcards; "", the default, is all."""

    dest: str = ""
    """Where to, as in a subject transform."""

    headers_only: bool = False
    """Whether to publish them without payload, whose size then stands in ``Nats-Msg-Size``; False by
    default."""


@described
class ConsumerLimits(Document, frozen=True, kw_only=True):
    """Defaults and ceilings for the consumers of a stream; ``inactive_threshold`` in seconds."""

    durations = ("inactive_threshold",)

    inactive_threshold: float = 0.0
    """Seconds: the default of an ephemeral consumer's ``inactive_threshold``, and the most it may be; 0,
    the default: neither."""

    max_ack_pending: int = 0
    """Messages: the default of a consumer's ``max_ack_pending``, and the most it may be; 0, the default:
    neither."""


@described
class Placement(Document, frozen=True, kw_only=True):
    """Where a cluster should put the stream; a single node ignores it."""

    cluster: str = ""
    """The name of the cluster; "", the default, is any."""

    tags: tuple[str, ...] = ()
    """Tags that a server must have; none by default."""

    preferred: str = ""
    """The server that should lead, in a request to step down; "" by default."""


@described
class ExternalStream(Document, frozen=True, kw_only=True):
    """A stream in another account or domain: the prefixes of its API and of its deliveries."""

    always = ("api", "deliver")

    api: str = ""
    """Where the API of that account is imported, as ``$JS.hub.API``."""

    deliver: str = ""
    """Where what it delivers arrives; "" for a subject of the copier's choice."""


@described
class StreamConsumerSource(Document, frozen=True, kw_only=True):
    """A durable push consumer of the origin, with the ack policy ``flow_control``, to copy through."""

    name: str = ""
    """The name of the consumer."""

    deliver_subject: str = ""
    """Where it pushes to."""


@described
class StreamSource(Document, frozen=True, kw_only=True):
    """A stream to copy from (sources, mirror)."""

    always = ("name",)

    name: str = ""
    """The stream that is copied."""

    opt_start_seq: int = 0
    """The sequence to begin with; 0, the default, is the first."""

    opt_start_time: str | None = None
    """When to begin, as RFC 3339 text; None, the default, is from the first message on."""

    filter_subject: str = ""
    """Which subjects to copy, with wildcards; "", the default, is all."""

    subject_transforms: tuple[SubjectTransformConfig, ...] = ()
    """Which subjects to copy, and what they become; instead of ``filter_subject``. None by default."""

    external: ExternalStream | None = None
    """Where it is, if in another account or domain; None, the default, is here."""

    consumer: StreamConsumerSource | None = None
    """The consumer of the origin to copy through; None, the default, lets the server make one."""

    domain: str = ""
    """The JetStream domain it is in, instead of ``external``; "" by default, which is this one."""


@described
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
    """Its name: text without spaces, dots, wildcards and slashes, of up to 255 bytes."""

    description: str = ""
    """For people; up to 4 KiB. "" by default."""

    subjects: tuple[str, ...] = ()
    """The subjects it takes in, with wildcards; empty, the default, is its own name (of a mirror: none)."""

    retention: Retention = "limits"
    """When messages are removed: ``limits``, the default, only by limits; ``interest`` once every consumer
    has acknowledged them; ``workqueue`` once one has."""

    max_consumers: int = -1
    """How many consumers it may have; -1, the default: any number."""

    max_msgs: int = -1
    """How many messages it keeps; -1, the default: any number."""

    max_bytes: int = -1
    """How many bytes of messages it keeps; -1, the default: any number."""

    max_age: float = 0.0
    """Seconds after which a message is removed, at least 0.1; 0, the default: never."""

    max_msgs_per_subject: int = -1
    """How many messages it keeps of each subject; -1, the default: any number."""

    max_msg_size: int = -1
    """The most bytes one message with its headers may have; -1, the default: what the server allows."""

    discard: Discard = "old"
    """What a full stream does: ``old``, the default, removes the oldest messages; ``new`` refuses new
    ones."""

    storage: StorageKind = "file"
    """Where messages are kept: in a ``file``, the default, or in ``memory``, where a restart loses them."""

    num_replicas: int = 1
    """How many servers of a cluster keep it, 1 (the default) to 5; a single server keeps 1."""

    no_ack: bool = False
    """Whether publishers get no acknowledgement; False by default."""

    duplicate_window: float = 0.0
    """Seconds for which message ids are remembered, at least 0.1; 0, the default, is 120 seconds, or
    ``max_age`` if that is less."""

    placement: Placement | None = None
    """Where a cluster should put it; None, the default, is anywhere."""

    mirror: StreamSource | None = None
    """The stream it is a copy of, with its sequences; None, the default, is none."""

    sources: tuple[StreamSource, ...] = ()
    """Streams to copy messages from, which get sequences of its own; none by default."""

    compression: Compression = "none"
    """Whether files are compressed: ``none``, the default, or ``s2``."""

    first_seq: int = 0
    """The sequence of the first message; 0, the default, is 1."""

    subject_transform: SubjectTransformConfig | None = None
    """What the subjects of new messages become before they are stored; None, the default, keeps them."""

    republish: Republish | None = None
    """Publish what is stored again; None, the default, does not."""

    allow_direct: bool = False
    """Whether every server that has it may answer reads, not only its leader, and whether many messages
    may be read at once; False by default."""

    mirror_direct: bool = False
    """Whether a mirror answers reads of its origin; False by default."""

    discard_new_per_subject: bool = False
    """With ``discard`` as ``new``: refuse messages of a subject that has ``max_msgs_per_subject``, instead
    of removing its oldest; False by default."""

    sealed: bool = False
    """Whether nothing can be changed any more, for good; False by default, and only to be set by an
    update."""

    deny_delete: bool = False
    """Whether single messages cannot be deleted by request; False by default, and not to be taken back."""

    deny_purge: bool = False
    """Whether messages cannot be purged by request; False by default, and not to be taken back."""

    allow_rollup_hdrs: bool = False
    """Whether a message may replace all before it (``Nats-Rollup``); False by default."""

    consumer_limits: ConsumerLimits = ConsumerLimits()
    """Defaults and ceilings for its consumers; none by default."""

    allow_msg_ttl: bool = False
    """Whether single messages may have a time to live; False by default, and not to be taken back."""

    subject_delete_marker_ttl: float = 0.0
    """Seconds for which a mark is kept of the last message of a subject that age removed, at least 1; 0,
    the default: no marks."""

    allow_msg_counter: bool = False
    """Whether each subject is a counter (nats-server 2.12); False by default, and not to be changed."""

    allow_atomic: bool = False
    """Whether batches may be stored together or not at all (nats-server 2.12); False by default."""

    allow_msg_schedules: bool = False
    """Whether messages may be scheduled (nats-server 2.12); False by default, and not to be taken back."""

    allow_batched: bool = False
    """Whether fast batches may be published (nats-server 2.14); False by default."""

    persist_mode: PersistMode = ""
    """When an acknowledgement is sent: "" and ``default`` once the message is stored; ``async`` lets nats-
    server answer before it is written (our broker never does)."""

    metadata: dict[str, str] = {}
    """Names and values for people and programs; empty by default. Names that begin with ``_nats.`` are the
    server's."""

    template_owner: str = ""
    """Obsolete: old clients still send it; "" by default."""

    pedantic: bool = False
    """Of the request, not of the stream: refuse what the server would otherwise correct; False by default.
    Of the request, not of the stream: refuse what the server would otherwise correct; False by default."""


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
