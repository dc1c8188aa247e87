"""Streams and consumers by keyword: the types of ``create_stream(…)`` and its like.

Written by ``scripts/make-keywords`` from ``StreamConfig`` and ``ConsumerConfig``: change the fields there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypedDict

from ..field_docs import described
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


@described
class StreamFields(TypedDict, total=False):
    """The fields of a ``StreamConfig`` as keyword arguments."""

    name: str
    """Its name: text without spaces, dots, wildcards and slashes, of up to 255 bytes."""

    description: str
    """For people; up to 4 KiB. "" by default."""

    subjects: str | Sequence[str]
    """The subjects it takes in, with wildcards; empty, the default, is its own name (of a mirror: none)."""

    retention: Retention
    """When messages are removed: ``limits``, the default, only by limits; ``interest`` once every consumer
    has acknowledged them; ``workqueue`` once one has."""

    max_consumers: int
    """How many consumers it may have; -1, the default: any number."""

    max_msgs: int
    """How many messages it keeps; -1, the default: any number."""

    max_bytes: int
    """How many bytes of messages it keeps; -1, the default: any number."""

    max_age: float | timedelta
    """Seconds after which a message is removed, at least 0.1; 0, the default: never."""

    max_msgs_per_subject: int
    """How many messages it keeps of each subject; -1, the default: any number."""

    max_msg_size: int
    """The most bytes one message with its headers may have; -1, the default: what the server allows."""

    discard: Discard
    """What a full stream does: ``old``, the default, removes the oldest messages; ``new`` refuses new
    ones."""

    storage: StorageKind
    """Where messages are kept: in a ``file``, the default, or in ``memory``, where a restart loses them."""

    num_replicas: int
    """How many servers of a cluster keep it, 1 (the default) to 5; a single server keeps 1."""

    no_ack: bool
    """Whether publishers get no acknowledgement; False by default."""

    duplicate_window: float | timedelta
    """Seconds for which message ids are remembered, at least 0.1; 0, the default, is 120 seconds, or
    ``max_age`` if that is less."""

    placement: Placement | None
    """Where a cluster should put it; None, the default, is anywhere."""

    mirror: StreamSource | None
    """The stream it is a copy of, with its sequences; None, the default, is none."""

    sources: Sequence[StreamSource]
    """Streams to copy messages from, which get sequences of its own; none by default."""

    compression: Compression
    """Whether files are compressed: ``none``, the default, or ``s2``."""

    first_seq: int
    """The sequence of the first message; 0, the default, is 1."""

    subject_transform: SubjectTransformConfig | None
    """What the subjects of new messages become before they are stored; None, the default, keeps them."""

    republish: Republish | None
    """Publish what is stored again; None, the default, does not."""

    allow_direct: bool
    """Whether every server that has it may answer reads, not only its leader, and whether many messages
    may be read at once; False by default."""

    mirror_direct: bool
    """Whether a mirror answers reads of its origin; False by default."""

    discard_new_per_subject: bool
    """With ``discard`` as ``new``: refuse messages of a subject that has ``max_msgs_per_subject``, instead
    of removing its oldest; False by default."""

    sealed: bool
    """Whether nothing can be changed any more, for good; False by default, and only to be set by an
    update."""

    deny_delete: bool
    """Whether single messages cannot be deleted by request; False by default, and not to be taken back."""

    deny_purge: bool
    """Whether messages cannot be purged by request; False by default, and not to be taken back."""

    allow_rollup_hdrs: bool
    """Whether a message may replace all before it (``Nats-Rollup``); False by default."""

    consumer_limits: ConsumerLimits
    """Defaults and ceilings for its consumers; none by default."""

    allow_msg_ttl: bool
    """Whether single messages may have a time to live; False by default, and not to be taken back."""

    subject_delete_marker_ttl: float | timedelta
    """Seconds for which a mark is kept of the last message of a subject that age removed, at least 1; 0,
    the default: no marks."""

    allow_msg_counter: bool
    """Whether each subject is a counter (nats-server 2.12); False by default, and not to be changed."""

    allow_atomic: bool
    """Whether batches may be stored together or not at all (nats-server 2.12); False by default."""

    allow_msg_schedules: bool
    """Whether messages may be scheduled (nats-server 2.12); False by default, and not to be taken back."""

    allow_batched: bool
    """Whether fast batches may be published (nats-server 2.14); False by default."""

    persist_mode: PersistMode
    """When an acknowledgement is sent: "" and ``default`` once the message is stored; ``async`` lets nats-
    server answer before it is written (our broker never does)."""

    metadata: Mapping[str, str]
    """Names and values for people and programs; empty by default. Names that begin with ``_nats.`` are the
    server's."""

    template_owner: str
    """Obsolete: old clients still send it; "" by default."""

    pedantic: bool
    """Of the request, not of the stream: refuse what the server would otherwise correct; False by default.
    Of the request, not of the stream: refuse what the server would otherwise correct; False by default."""


@described
class ConsumerFields(TypedDict, total=False):
    """The fields of a ``ConsumerConfig`` as keyword arguments."""

    durable_name: str
    """Its name, if it is to stay without anybody using it; "", the default, makes it ephemeral."""

    name: str
    """Its name; "", the default, is ``durable_name``, or one that the server chooses."""

    description: str
    """For people; up to 4 KiB. "" by default."""

    deliver_policy: DeliverPolicy
    """Where to begin: ``all``, the default, with the first message; ``last``, ``new``,
    ``last_per_subject``; ``by_start_sequence`` and ``by_start_time`` with ``opt_start_…``."""

    opt_start_seq: int
    """The stream sequence to begin with, for ``by_start_sequence``; 0 by default."""

    opt_start_time: str | datetime | None
    """When to begin, as RFC 3339 text, for ``by_start_time``; None by default."""

    ack_policy: AckPolicy
    """What is acknowledged: ``explicit``, the default, each message; ``all`` everything up to the one
    acknowledged; ``none`` nothing; ``flow_control`` is for stream sources."""

    ack_wait: float | timedelta
    """Seconds after which a message without an acknowledgement is delivered again; 0, the default, is 30
    seconds."""

    max_deliver: int
    """How often a message is delivered at most; 0, the default, and -1: any number of times."""

    backoff: Sequence[float | timedelta]
    """Seconds to wait for the acknowledgement of the first delivery, the second …; the last one holds from
    then on. It is used instead of ``ack_wait``; empty, the default: none."""

    filter_subject: str
    """Which subjects it delivers, with wildcards; "", the default, is all."""

    filter_subjects: str | Sequence[str]
    """The same with several subjects, which must not overlap; empty by default."""

    replay_policy: ReplayPolicy
    """How fast: ``instant``, the default, or ``original``, in the rhythm in which the messages came."""

    rate_limit_bps: int
    """Bits per second that a push consumer sends at most; 0, the default: no limit."""

    sample_freq: str
    """Percent of acknowledgements that are reported as metrics, as text: ``"30"``; "", the default: none.
    Percent of acknowledgements that are reported as metrics, as text: ``"30"``; "", the default: none."""

    max_waiting: int
    """How many pulls may wait at once; 0, the default, is 512."""

    max_ack_pending: int
    """How many messages may be delivered and not acknowledged, before delivery stops; 0, the default, is
    1,000 (-1: any number)."""

    flow_control: bool
    """Whether a push consumer waits for its receiver to keep up; needs ``idle_heartbeat``. False by
    default."""

    headers_only: bool
    """Whether messages come without payload, whose size then stands in ``Nats-Msg-Size``; False by
    default."""

    max_batch: int
    """How many messages one pull may ask for; 0, the default: any number."""

    max_expires: float | timedelta
    """Seconds one pull may wait at most; 0, the default: any time."""

    max_bytes: int
    """How many bytes one pull may ask for; 0, the default: any number."""

    deliver_subject: str
    """Where a push consumer sends messages; "", the default, makes it one that is pulled from."""

    deliver_group: str
    """The queue group that shares what a push consumer sends; "", the default: none."""

    idle_heartbeat: float | timedelta
    """Seconds after which a push consumer that has nothing to send says so, at least 0.1; 0, the default:
    never."""

    inactive_threshold: float | timedelta
    """Seconds after which it is removed if nobody uses it; 0, the default, is 5 seconds of an ephemeral
    one, and never of a durable one."""

    num_replicas: int
    """How many servers of a cluster keep its state; 0, the default: as many as keep the stream."""

    mem_storage: bool
    """Whether its state is kept in memory only; False, the default: as the stream is."""

    direct: bool
    """Of mirrors and sources, which make such consumers themselves; False by default."""

    sourcing: bool
    """Of mirrors and sources, which make such consumers themselves; False by default."""

    metadata: Mapping[str, str]
    """Names and values for people and programs; empty by default. Names that begin with ``_nats.`` are the
    server's."""

    pause_until: str | datetime | None
    """Until when it delivers nothing, as RFC 3339 text; None, the default: it delivers."""

    priority_groups: str | Sequence[str]
    """The names of its priority groups; empty, the default: none. Servers support one."""

    priority_policy: PriorityPolicy
    """Which pulls of a group come first: ``none``, the default; ``overflow`` when enough waits;
    ``pinned_client`` one client only; ``prioritized`` by the number each pull gives."""

    priority_timeout: float | timedelta
    """Seconds without a pull after which a pinned client loses its pin; 0, the default, is 120 seconds."""


@described
class OrderedConsumerFields(TypedDict, total=False):
    """The fields of a ``ConsumerConfig`` that an ordered consumer leaves to its user."""

    deliver_policy: DeliverPolicy
    """Where to begin: ``all``, the default, with the first message; ``last``, ``new``,
    ``last_per_subject``; ``by_start_sequence`` and ``by_start_time`` with ``opt_start_…``."""

    opt_start_seq: int
    """The stream sequence to begin with, for ``by_start_sequence``; 0 by default."""

    opt_start_time: str | datetime | None
    """When to begin, as RFC 3339 text, for ``by_start_time``; None by default."""

    filter_subject: str
    """Which subjects it delivers, with wildcards; "", the default, is all."""

    filter_subjects: str | Sequence[str]
    """The same with several subjects, which must not overlap; empty by default."""

    replay_policy: ReplayPolicy
    """How fast: ``instant``, the default, or ``original``, in the rhythm in which the messages came."""

    headers_only: bool
    """Whether messages come without payload, whose size then stands in ``Nats-Msg-Size``; False by
    default."""

    inactive_threshold: float | timedelta
    """Seconds after which it is removed if nobody uses it; 0, the default, is 5 seconds of an ephemeral
    one, and never of a durable one."""

    metadata: Mapping[str, str]
    """Names and values for people and programs; empty by default. Names that begin with ``_nats.`` are the
    server's."""
