"""The JSON of the service. The specification's shapes keep its names; ours are lower case."""

from __future__ import annotations

from typing import Any

import msgspec

from ..matching.unique import Unique
from ..models import ConsumerSettings


class Problem(msgspec.Struct, omit_defaults=True):
    """Why a request was rejected."""

    code: str
    message: str
    field: str | None = None


# The specification's shapes.


class Listing(msgspec.Struct):
    Result: list[str]
    Pages: dict[str, str]
    Links: None = None


class ProducerShape(msgspec.Struct):
    ID: str
    Name: str
    Token: str
    ChangedAt: str


class ChannelShape(msgspec.Struct):
    ID: str
    Name: str
    Token: str
    ChangedAt: str
    ConsumersURL: str
    MessagesURL: str
    BroadcastURL: str
    MessagesStatusURL: str
    ScheduledMessagesURL: str


class ConsumerShape(msgspec.Struct):
    ID: str
    Name: str
    Token: str
    ChangedAt: str
    CallbackURL: str
    DeadLetterQueueURL: str
    Type: str


class JobOfMessage(msgspec.Struct):
    ID: str
    JobURL: str
    ListenerEndpoint: str
    ListenerName: str
    Status: str
    StatusChangedAt: str


class MessageShape(msgspec.Struct, omit_defaults=True):
    ID: str
    Payload: str
    ContentType: str
    ProducedBy: str
    ReceivedAt: str
    DispatchedAt: str | None
    Status: str
    Jobs: list[JobOfMessage]
    Headers: dict[str, str]
    PayloadEncoding: str | None = None
    JobsTruncated: bool = False


class StatusCount(msgspec.Struct):
    Count: int
    Links: dict[str, str]


class MessagesStatus(msgspec.Struct):
    counts: dict[str, StatusCount]
    next_scheduled_message_at: str | None


class ScheduledListing(msgspec.Struct):
    result: list[str]
    pages: dict[str, str]


class ScheduledShape(msgspec.Struct, omit_defaults=True):
    id: str
    messageId: str  # noqa: N815
    contentType: str  # noqa: N815
    priority: int
    producedBy: str  # noqa: N815
    dispatchSchedule: str  # noqa: N815
    dispatchedAt: str | None  # noqa: N815
    status: str
    payload: str
    headers: dict[str, str]
    payloadEncoding: str | None = None  # noqa: N815


class QueuedMessage(msgspec.Struct, omit_defaults=True):
    MessageID: str
    Payload: str
    Headers: dict[str, str]
    ContentType: str
    PayloadEncoding: str | None = None


class QueuedJob(msgspec.Struct):
    ID: str
    Priority: int
    IncrementalTimeout: int
    Message: QueuedMessage


class QueuedJobs(msgspec.Struct):
    Result: list[QueuedJob]


class JobShape(msgspec.Struct):
    ListenerEndpoint: str
    ListenerName: str
    Status: str
    StatusChangedAt: str
    MessageURL: str
    ChannelURL: str
    ConsumerURL: str
    ProducerURL: str
    JobRequeueURL: str


class DeadJob(msgspec.Struct):
    ID: str
    JobURL: str
    ListenerEndpoint: str
    ListenerName: str
    Status: str
    StatusChangedAt: str
    MessageURL: str
    JobRequeueURL: str
    RetryAttemptCount: int
    LastError: str


class DeadJobs(msgspec.Struct):
    DeadJobs: list[DeadJob]
    Pages: dict[str, str]


class Deleted(msgspec.Struct):
    deletedCount: int  # noqa: N815


class DeadCount(msgspec.Struct):
    channelId: str  # noqa: N815
    channelName: str  # noqa: N815
    consumerId: str  # noqa: N815
    consumerName: str  # noqa: N815
    deadCount: int  # noqa: N815


class DeadCounts(msgspec.Struct):
    consumers: list[DeadCount]


class StateCount(msgspec.Struct):
    status: int
    count: int
    oldestItemTimestamp: str | None  # noqa: N815
    newestItemTimestamp: str | None  # noqa: N815


# The leased API.


class ClaimBody(msgspec.Struct, forbid_unknown_fields=True):
    max: int = 1
    lease_seconds: float = 30.0
    wait_seconds: float = 0.0


class LeasedMessage(msgspec.Struct, omit_defaults=True):
    id: str
    payload: str
    content_type: str
    headers: dict[str, str]
    encoding: str | None = None
    ordering_key: str | None = None


class LeasedJob(msgspec.Struct):
    id: str
    lease: str
    deadline: str
    attempt: int
    priority: int
    message: LeasedMessage


class LeasedJobs(msgspec.Struct):
    jobs: list[LeasedJob]


class HeldBody(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    lease: str


class ProgressBody(msgspec.Struct, forbid_unknown_fields=True):
    done: float | None = None
    note: str = ""


class BeatBody(HeldBody, forbid_unknown_fields=True):
    progress: ProgressBody | None = None


class HeartbeatBody(msgspec.Struct, forbid_unknown_fields=True):
    jobs: list[BeatBody]
    lease_seconds: float = 30.0


class CompleteBody(msgspec.Struct, forbid_unknown_fields=True):
    jobs: list[HeldBody]


class ReleaseBody(msgspec.Struct, forbid_unknown_fields=True):
    jobs: list[HeldBody]
    delay_seconds: float = 0.0


class FailureBody(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    lease: str
    reason: str = ""
    retry_in_seconds: float | None = None
    dead: bool = False


class FailBody(msgspec.Struct, forbid_unknown_fields=True):
    jobs: list[FailureBody]


class ItemResult(msgspec.Struct, omit_defaults=True):
    id: str
    status: int
    code: str
    message: str | None = None
    state: str | None = None
    at: str | None = None


class ItemResults(msgspec.Struct):
    results: list[ItemResult]


# Definitions and operations, Headrace's own.


class ChannelDetail(msgspec.Struct):
    id: str
    name: str
    draining: bool
    events_channel: str | None
    changed_at: str
    consumers: int
    messages: int
    scheduled: int
    jobs: dict[str, int]


class ChannelPatch(msgspec.Struct, forbid_unknown_fields=True):
    draining: bool | None = None
    events_channel: str | None = None


class ConsumerDetail(msgspec.Struct):
    id: str
    channel: str
    name: str
    type: str
    callback_url: str
    max_retries: int
    settings: ConsumerSettings
    paused: bool
    disabled_at: str | None
    disabled_reason: str | None
    failing_since: str | None
    changed_at: str
    jobs: dict[str, int]
    dying: int | None = None


class ConsumerPatch(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None
    type: str | None = None
    callback_url: str | None = None
    max_retries: int | None = None
    settings: dict[str, Any] | None = None
    paused: bool | None = None
    enable: bool = False
    dry_run: bool = False


class RotateBody(msgspec.Struct, forbid_unknown_fields=True):
    keep_previous: bool = True


class Secret(msgspec.Struct):
    secret: str
    live: int


class TokenBody(msgspec.Struct, forbid_unknown_fields=True):
    token: str | None = None
    keep_previous: bool = True


class Token(msgspec.Struct):
    token: str
    live: int


class Attempt(msgspec.Struct):
    number: int
    kind: str
    started_at: str
    duration_seconds: float
    status: int
    error: str | None
    excerpt: str | None


class Blocker(msgspec.Struct):
    id: str
    state: str
    due_at: str | None
    last_error: str | None


class Progress(msgspec.Struct):
    done: float | None
    note: str
    at: str


class JobDetail(msgspec.Struct):
    id: str
    channel: str
    consumer: str
    message: str
    state: str
    priority: int
    retries: int
    claims: int
    changed_at: str
    due_at: str
    lease_expires_at: str | None
    last_error: str | None
    waits_for: str | None
    blocked_by: Blocker | None
    progress: Progress | None
    attempts: list[Attempt]


class EventShape(msgspec.Struct):
    at: str
    kind: str
    channel: str | None
    consumer: str | None
    detail: str


class Events(msgspec.Struct):
    events: list[EventShape]
    pages: dict[str, str]


class ConsumerStatus(msgspec.Struct):
    channel: str
    consumer: str
    type: str
    paused: bool
    disabled_reason: str | None
    failing_since: str | None
    jobs: dict[str, int]
    left_configuration: bool


class FailingPart(msgspec.Struct):
    part: str
    reason: str
    since: str
    tries: int


class Status(msgspec.Struct):
    AppStatus: int
    version: str
    node: str
    database: str
    consumers: list[ConsumerStatus]
    failing: list[FailingPart]


class Health(msgspec.Struct):
    status: str
    detail: str | None = None
    failing: list[str] = []


class PublishedBody(msgspec.Struct):
    id: str
    jobs: int
    scheduled: bool
    replayed: bool
    duplicate: bool


class BatchMessage(msgspec.Struct, forbid_unknown_fields=True):
    payload: str
    encoding: str | None = None
    content_type: str = "application/octet-stream"
    id: str | None = None
    idempotent: bool = False
    priority: int = 0
    ordering_key: str | None = None
    scheduled_for: str | None = None
    subject: str | None = None
    headers: dict[str, str] = {}
    unique: Unique | None = None


class BatchBody(msgspec.Struct, forbid_unknown_fields=True):
    messages: list[BatchMessage]


class PublishedBatch(msgspec.Struct):
    messages: list[PublishedBody]
