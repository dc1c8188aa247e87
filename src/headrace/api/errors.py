"""The error table that client and broker share: JetStream error number, HTTP-like code, text.

``with_(…)`` completes a text with ``{…}``. Numbers and texts are the public server's.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

from ..errors import ConsumerNotFoundError, JetStreamApiError, StreamNotFoundError


class ErrorSpec:
    """What an answer says of an error: a row of the table, or one whose text is filled in."""

    err_code: int
    code: int
    description: str

    def with_(self, **values: object) -> ErrorSpec:
        """The row with the placeholders of its text filled in."""
        return _Filled(self.err_code, self.code, self.description.format(**values))

    def because(self, reason: object) -> ErrorSpec:
        """The row with a reason behind its text."""
        return _Filled(self.err_code, self.code, f"{self.description}: {reason}")

    def to_wire(self) -> dict[str, Any]:
        """The ``error`` object of a response."""
        return {"code": self.code, "err_code": self.err_code, "description": self.description}

    def as_exception(self) -> JetStreamApiError:
        """The exception that the client raises for it."""
        return _exception(self.code, self.err_code, self.description)


class _Filled(ErrorSpec):
    def __init__(self, err_code: int, code: int, description: str) -> None:
        self.err_code = err_code
        self.code = code
        self.description = description


def api_error(error: dict[str, Any]) -> JetStreamApiError:
    """The exception for the ``error`` object of a response."""
    return _exception(
        int(error.get("code", 0)), int(error.get("err_code", 0)), str(error.get("description", ""))
    )


def _exception(code: int, err_code: int, description: str) -> JetStreamApiError:
    """Of the class that says what is missing, where there is one."""
    kind = JetStreamApiError
    if err_code == ErrorCode.STREAM_NOT_FOUND:
        kind = StreamNotFoundError
    elif err_code == ErrorCode.CONSUMER_NOT_FOUND:
        kind = ConsumerNotFoundError
    return kind(code, err_code, description)


# fmt: off
class ErrorCode(ErrorSpec, IntEnum):
    """What ``JetStreamApiError.err_code`` may be: what client and broker use of the public server's."""

    def __new__(cls, err_code: int, code: int = 0, description: str = "") -> ErrorCode:
        row = int.__new__(cls, err_code)
        row._value_ = row.err_code = err_code
        row.code, row.description = code, description
        return row

    ACCOUNT_RESOURCES_EXCEEDED = (10002, 400, "resource limits exceeded for account")
    """Resource limits exceeded for account."""
    BAD_REQUEST = (10003, 400, "bad request")
    """Bad request."""
    CLUSTER_REQUIRED = (10010, 503, "JetStream clustering support required")
    """JetStream clustering support required."""
    CONSUMER_CREATE = (10012, 500, "{err}")
    """The text varies."""
    CONSUMER_NAME_EXISTS = (10013, 400, "consumer name already in use")
    """Consumer name already in use."""
    CONSUMER_NOT_FOUND = (10014, 404, "consumer not found")
    """Consumer not found."""
    CONSUMER_DURABLE_NAME_MISMATCH = (
        10017, 400, "consumer name in subject does not match durable name in request")
    """Consumer name in subject does not match durable name in request."""
    SNAPSHOT_DELIVER_SUBJECT_INVALID = (10015, 400, "deliver subject not valid")
    """Deliver subject not valid."""
    CONSUMER_EPHEMERAL_WITH_DURABLE_IN_SUBJECT = (
        10018, 400, "consumer expected to be durable but a durable name was not set")
    """Consumer expected to be durable but a durable name was not set."""
    CONSUMER_EPHEMERAL_WITH_DURABLE_NAME = (
        10020, 400, "consumer expected to be ephemeral but a durable name was set in request")
    """Consumer expected to be ephemeral but a durable name was set in request."""
    STREAM_EXTERNAL_API_OVERLAP = (
        10021, 400, "stream external api prefix {prefix} must not overlap with {subject}")
    """Stream external api prefix {prefix} must not overlap with {subject}."""
    STREAM_EXTERNAL_DELIVER_OVERLAP = (
        10022, 400, "stream external delivery prefix {prefix} overlaps with stream subject {subject}")
    """Stream external delivery prefix {prefix} overlaps with stream subject {subject}."""
    INSUFFICIENT_RESOURCES = (10023, 503, "insufficient resources")
    """Insufficient resources."""
    STREAM_EXTERNAL_DELIVER_INVALID = (
        10024, 400, "stream external delivery prefix {prefix} must not contain wildcards")
    """Stream external delivery prefix {prefix} must not contain wildcards."""
    INVALID_JSON = (10025, 400, "invalid JSON: {err}")
    """Invalid JSON: {err}."""
    MAX_CONSUMERS = (10026, 400, "maximum consumers limit reached")
    """Maximum consumers limit reached."""
    MAX_STREAMS = (10027, 400, "maximum number of streams reached")
    """Maximum number of streams reached."""
    MEMORY_RESOURCES_EXCEEDED = (10028, 500, "insufficient memory resources available")
    """Insufficient memory resources available."""
    MIRROR_CONSUMER_SETUP_FAILED = (10029, 500, "{err}")
    """The text varies."""
    MIRROR_MAX_MESSAGE_SIZE_TOO_BIG = (10030, 400, "stream mirror must have max message size >= source")
    """Stream mirror must have max message size >= source."""
    MIRROR_WITH_SOURCES = (10031, 400, "stream mirrors can not also contain other sources")
    """Stream mirrors can not also contain other sources."""
    MIRROR_WITH_SUBJECTS = (10034, 400, "stream mirrors can not contain subjects")
    """Stream mirrors can not contain subjects."""
    NO_MESSAGE_FOUND = (10037, 404, "no message found")
    """No message found."""
    NOT_EMPTY_REQUEST = (10038, 400, "expected an empty request payload")
    """Expected an empty request payload."""
    NOT_ENABLED_FOR_ACCOUNT = (10039, 503, "JetStream not enabled for account")
    """JetStream not enabled for account."""
    SEQUENCE_NOT_FOUND = (10043, 400, "sequence {seq} not found")
    """Sequence {seq} not found."""
    SOURCE_CONSUMER_SETUP_FAILED = (10045, 500, "{err}")
    """The text varies."""
    SOURCE_MAX_MESSAGE_SIZE_TOO_BIG = (10046, 400, "stream source must have max message size >= target")
    """Stream source must have max message size >= target."""
    STORAGE_RESOURCES_EXCEEDED = (10047, 500, "insufficient storage resources available")
    """Insufficient storage resources available."""
    STREAM_CREATE = (10049, 500, "{err}")
    """The text varies."""
    STREAM_DELETE = (10050, 500, "{err}")
    """The text varies."""
    STREAM_GENERAL = (10051, 500, "{err}")
    """The text varies."""
    STREAM_INVALID_CONFIG = (10052, 500, "{err}")
    """The text varies."""
    STREAM_MESSAGE_EXCEEDS_MAXIMUM = (10054, 400, "message size exceeds maximum allowed")
    """Message size exceeds maximum allowed."""
    STREAM_MIRROR_NOT_UPDATABLE = (10055, 400, "stream mirror configuration can not be updated")
    """Stream mirror configuration can not be updated."""
    STREAM_NAME_MISMATCH = (10056, 400, "stream name in subject does not match request")
    """Stream name in subject does not match request."""
    STREAM_MSG_DELETE_FAILED = (10057, 500, "{err}")
    """The text varies."""
    STREAM_NAME_EXISTS = (10058, 400, "stream name already in use with a different configuration")
    """Stream name already in use with a different configuration."""
    STREAM_NOT_FOUND = (10059, 404, "stream not found")
    """Stream not found."""
    STREAM_NOT_MATCH = (10060, 400, "expected stream does not match")
    """Expected stream does not match."""
    STREAM_RESTORE = (10062, 500, "restore failed: {err}")
    """Restore failed: {err}."""
    STREAM_SNAPSHOT = (10064, 500, "snapshot failed: {err}")
    """Snapshot failed: {err}."""
    STREAM_SUBJECT_OVERLAP = (10065, 400, "subjects overlap with an existing stream")
    """Subjects overlap with an existing stream."""
    STREAM_UPDATE = (10069, 500, "{err}")
    """The text varies."""
    STREAM_WRONG_LAST_MSG_ID = (10070, 400, "wrong last msg ID: {id}")
    """Wrong last msg ID: {id}."""
    STREAM_WRONG_LAST_SEQUENCE = (10071, 400, "wrong last sequence: {seq}")
    """Wrong last sequence: {seq}."""
    STREAM_REPLICAS_NOT_SUPPORTED = (10074, 500, "replicas > 1 not supported in non-clustered mode")
    """Replicas > 1 not supported in non-clustered mode."""
    STREAM_STORE_FAILED = (10077, 503, "{err}")
    """The text varies."""
    CONSUMER_DELIVER_TO_WILDCARDS = (10079, 400, "consumer deliver subject has wildcards")
    """Consumer deliver subject has wildcards."""
    CONSUMER_PUSH_MAX_WAITING = (10080, 400, "consumer in push mode can not set max waiting")
    """Consumer in push mode can not set max waiting."""
    CONSUMER_DELIVER_CYCLE = (10081, 400, "consumer deliver subject forms a cycle")
    """Consumer deliver subject forms a cycle."""
    CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED = (
        10082, 400, "consumer requires ack policy for max ack pending")
    """Consumer requires ack policy for max ack pending."""
    CONSUMER_SMALL_HEARTBEAT = (10083, 400, "consumer idle heartbeat needs to be >= 100ms")
    """Consumer idle heartbeat needs to be >= 100ms."""
    CONSUMER_PULL_REQUIRES_ACK = (
        10084, 400, "consumer in pull mode requires explicit ack policy on workqueue stream")
    """Consumer in pull mode requires explicit ack policy on workqueue stream."""
    CONSUMER_PULL_WITH_RATE_LIMIT = (10086, 400, "consumer in pull mode can not have rate limit set")
    """Consumer in pull mode can not have rate limit set."""
    CONSUMER_HEARTBEAT_REQUIRES_PUSH = (
        10088, 400, "consumer idle heartbeat requires a push based consumer")
    """Consumer idle heartbeat requires a push based consumer."""
    CONSUMER_FLOW_CONTROL_REQUIRES_PUSH = (
        10089, 400, "consumer flow control requires a push based consumer")
    """Consumer flow control requires a push based consumer."""
    CONSUMER_DIRECT_REQUIRES_PUSH = (10090, 400, "consumer direct requires a push based consumer")
    """Consumer direct requires a push based consumer."""
    CONSUMER_DIRECT_REQUIRES_EPHEMERAL = (10091, 400, "consumer direct requires an ephemeral consumer")
    """Consumer direct requires an ephemeral consumer."""
    CONSUMER_INVALID_POLICY = (10094, 400, "{err}")
    """The text varies."""
    CONSUMER_INVALID_SAMPLING = (10095, 400, "failed to parse consumer sampling configuration: {err}")
    """Failed to parse consumer sampling configuration: {err}."""
    STREAM_HEADER_EXCEEDS_MAXIMUM = (10097, 400, "header size exceeds maximum allowed of 64k")
    """Header size exceeds maximum allowed of 64k."""
    CONSUMER_WQ_REQUIRES_EXPLICIT_ACK = (10098, 400, "workqueue stream requires explicit ack")
    """Workqueue stream requires explicit ack."""
    CONSUMER_WQ_MULTIPLE_UNFILTERED = (
        10099, 400, "multiple non-filtered consumers not allowed on workqueue stream")
    """Multiple non-filtered consumers not allowed on workqueue stream."""
    CONSUMER_WQ_NOT_UNIQUE = (10100, 400, "filtered consumer not unique on workqueue stream")
    """Filtered consumer not unique on workqueue stream."""
    CONSUMER_WQ_NOT_DELIVER_ALL = (10101, 400, "consumer must be deliver all on workqueue stream")
    """Consumer must be deliver all on workqueue stream."""
    CONSUMER_NAME_TOO_LONG = (10102, 400, "consumer name is too long, maximum allowed is {max}")
    """Consumer name is too long, maximum allowed is {max}."""
    CONSUMER_DESCRIPTION_TOO_LONG = (
        10107, 400, "consumer description is too long, maximum allowed is {max}")
    """Consumer description is too long, maximum allowed is {max}."""
    CONSUMER_FC_REQUIRES_HEARTBEAT = (10108, 400, "consumer with flow control also needs heartbeats")
    """Consumer with flow control also needs heartbeats."""
    STREAM_SEALED = (10109, 400, "invalid operation on sealed stream")
    """Invalid operation on sealed stream."""
    STREAM_PURGE_FAILED = (10110, 500, "{err}")
    """The text varies."""
    STREAM_ROLLUP_FAILED = (10111, 500, "{err}")
    """The text varies."""
    CONSUMER_INVALID_DELIVER_SUBJECT = (10112, 400, "invalid push consumer deliver subject")
    """Invalid push consumer deliver subject."""
    STREAM_MAX_BYTES_REQUIRED = (10113, 400, "account requires a stream config to have max bytes set")
    """Account requires a stream config to have max bytes set."""
    CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL = (
        10115, 400, "consumer max request expires needs to be >= 1ms")
    """Consumer max request expires needs to be >= 1ms."""
    CONSUMER_MAX_DELIVER_BACKOFF = (
        10116, 400, "max deliver is required to be > length of backoff values")
    """Max deliver is required to be > length of backoff values."""
    NO_LIMITS = (10120, 400, "no JetStream default or applicable tiered limit present")
    """No JetStream default or applicable tiered limit present."""
    CONSUMER_MAX_PENDING_ACK_EXCESS = (
        10121, 400, "consumer max ack pending exceeds system limit of {limit}")
    """Consumer max ack pending exceeds system limit of {limit}."""
    STREAM_MAX_BYTES_EXCEEDED = (10122, 400, "stream max bytes exceeds account limit max stream bytes")
    """Stream max bytes exceeds account limit max stream bytes."""
    CONSUMER_MAX_REQUEST_BATCH_EXCEEDED = (
        10125, 400, "consumer max request batch exceeds server limit of {limit}")
    """Consumer max request batch exceeds server limit of {limit}."""
    CONSUMER_REPLICAS_EXCEEDS_STREAM = (10126, 400, "consumer config replica count exceeds parent stream")
    """Consumer config replica count exceeds parent stream."""
    CONSUMER_NAME_PATH_SEPARATORS = (10127, 400, "Consumer name can not contain path separators")
    """Consumer name can not contain path separators."""
    STREAM_NAME_EXISTS_RESTORE = (10130, 400, "stream name already in use, cannot restore")
    """Stream name already in use, cannot restore."""
    CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH = (
        10131, 400, "Consumer create request did not match filtered subject from create subject")
    """Consumer create request did not match filtered subject from create subject."""
    CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH = (
        10132, 400, "Consumer Durable and Name have to be equal if both are provided")
    """Consumer Durable and Name have to be equal if both are provided."""
    REPLICAS_NEGATIVE = (10133, 400, "replicas count cannot be negative")
    """Replicas count cannot be negative."""
    CONSUMER_METADATA_LENGTH = (10135, 400, "consumer metadata exceeds maximum size of {limit}")
    """Consumer metadata exceeds maximum size of {limit}."""
    CONSUMER_DUPLICATE_FILTERS = (
        10136, 400, "consumer cannot have both FilterSubject and FilterSubjects specified")
    """Consumer cannot have both FilterSubject and FilterSubjects specified."""
    CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED = (
        10137, 400, "consumer with multiple subject filters cannot use subject based API")
    """Consumer with multiple subject filters cannot use subject based API."""
    CONSUMER_OVERLAPPING_FILTERS = (10138, 400, "consumer subject filters cannot overlap")
    """Consumer subject filters cannot overlap."""
    CONSUMER_EMPTY_FILTER = (10139, 400, "consumer filter in FilterSubjects cannot be empty")
    """Consumer filter in FilterSubjects cannot be empty."""
    SOURCE_DUPLICATE = (10140, 400, "duplicate source configuration detected")
    """Duplicate source configuration detected."""
    SOURCE_INVALID_NAME = (10141, 400, "sourced stream name is invalid")
    """Sourced stream name is invalid."""
    MIRROR_INVALID_NAME = (10142, 400, "mirrored stream name is invalid")
    """Mirrored stream name is invalid."""
    MIRROR_WITH_FIRST_SEQ = (10143, 400, "stream mirrors can not have first sequence configured")
    """Stream mirrors can not have first sequence configured."""
    SOURCE_MULTIPLE_FILTERS = (
        10144, 400, "source with multiple subject transforms cannot also have a single subject filter")
    """Source with multiple subject transforms cannot also have a single subject filter."""
    SOURCE_INVALID_FILTER = (10145, 400, "source transform source: {err}")
    """Source transform source: {err}."""
    SOURCE_INVALID_TRANSFORM = (10146, 400, "source transform: {err}")
    """Source transform: {err}."""
    SOURCE_OVERLAPPING_FILTERS = (10147, 400, "source filters can not overlap")
    """Source filters can not overlap."""
    CONSUMER_ALREADY_EXISTS = (10148, 400, "consumer already exists")
    """Consumer already exists."""
    CONSUMER_DOES_NOT_EXIST = (10149, 400, "consumer does not exist")
    """Consumer does not exist."""
    MIRROR_MULTIPLE_FILTERS = (
        10150, 400, "mirror with multiple subject transforms cannot also have a single subject filter")
    """Mirror with multiple subject transforms cannot also have a single subject filter."""
    MIRROR_INVALID_FILTER = (10151, 400, "mirror transform source: {err}")
    """Mirror transform source: {err}."""
    MIRROR_OVERLAPPING_FILTERS = (10152, 400, "mirror subject filters can not overlap")
    """Mirror subject filters can not overlap."""
    CONSUMER_INACTIVE_THRESHOLD_EXCESS = (
        10153, 400, "consumer inactive threshold exceeds system limit of {limit}")
    """Consumer inactive threshold exceeds system limit of {limit}."""
    MIRROR_INVALID_TRANSFORM = (10154, 400, "mirror transform: {err}")
    """Mirror transform: {err}."""
    STREAM_TRANSFORM_INVALID_SOURCE = (10155, 400, "stream transform source: {err}")
    """Stream transform source: {err}."""
    STREAM_TRANSFORM_INVALID_DESTINATION = (10156, 400, "stream transform: {err}")
    """Stream transform: {err}."""
    PEDANTIC = (10157, 400, "pedantic mode: {err}")
    """Pedantic mode: {err}."""
    CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP = (
        10159, 400, "Setting PriorityPolicy requires at least one PriorityGroup to be set")
    """Setting PriorityPolicy requires at least one PriorityGroup to be set."""
    CONSUMER_INVALID_PRIORITY_GROUP = (
        10160, 400, "Provided priority group does not exist for this consumer")
    """Provided priority group does not exist for this consumer."""
    CONSUMER_EMPTY_GROUP_NAME = (10161, 400, "Group name cannot be an empty string")
    """Group name cannot be an empty string."""
    CONSUMER_INVALID_GROUP_NAME = (
        10162, 400,
        "Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ and may not exceed 16 characters")
    """Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ and may not exceed 16 characters."""
    STREAM_WRONG_LAST_SEQUENCE_CONSTANT = (10164, 400, "wrong last sequence")
    """Wrong last sequence."""
    MESSAGE_TTL_INVALID = (10165, 400, "invalid per-message TTL")
    """Invalid per-message TTL."""
    MESSAGE_TTL_DISABLED = (10166, 400, "per-message TTL is disabled")
    """Per-message TTL is disabled."""
    MESSAGE_INCR_DISABLED = (10168, 400, "message counters is disabled")
    """Message counters is disabled."""
    MESSAGE_INCR_MISSING = (10169, 400, "message counter increment is missing")
    """Message counter increment is missing."""
    MESSAGE_INCR_PAYLOAD = (10170, 400, "message counter has payload")
    """Message counter has payload."""
    MESSAGE_INCR_INVALID = (10171, 400, "message counter increment is invalid")
    """Message counter increment is invalid."""
    MESSAGE_COUNTER_BROKEN = (10172, 400, "message counter is broken")
    """Message counter is broken."""
    MIRROR_WITH_COUNTERS = (10173, 400, "stream mirrors can not also calculate counters")
    """Stream mirrors can not also calculate counters."""
    BATCH_DISABLED = (10174, 400, "atomic publish is disabled")
    """Atomic publish is disabled."""
    BATCH_MISSING_SEQUENCE = (10175, 400, "atomic publish sequence is missing")
    """Atomic publish sequence is missing."""
    BATCH_INCOMPLETE = (10176, 400, "atomic publish batch is incomplete")
    """Atomic publish batch is incomplete."""
    BATCH_UNSUPPORTED_HEADER = (10177, 400, "atomic publish unsupported header used: {header}")
    """Atomic publish unsupported header used: {header}."""
    CONSUMER_PUSH_WITH_PRIORITY_GROUP = (
        10178, 400, "priority groups can not be used with push consumers")
    """Priority groups can not be used with push consumers."""
    BATCH_INVALID_ID = (10179, 400, "atomic publish batch ID is invalid")
    """Atomic publish batch ID is invalid."""
    CONSUMER_ACK_WAIT_NEGATIVE = (10183, 400, "consumer ack wait needs to be positive")
    """Consumer ack wait needs to be positive."""
    CONSUMER_BACKOFF_NEGATIVE = (10184, 400, "consumer backoff needs to be positive")
    """Consumer backoff needs to be positive."""
    REQUIRED_API_LEVEL = (10185, 412, "JetStream minimum api level required")
    """JetStream minimum api level required."""
    MIRROR_WITH_SCHEDULES = (10186, 400, "stream mirrors can not also schedule messages")
    """Stream mirrors can not also schedule messages."""
    SOURCE_WITH_SCHEDULES = (10187, 400, "stream source can not also schedule messages")
    """Stream source can not also schedule messages."""
    SCHEDULES_DISABLED = (10188, 400, "message schedules is disabled")
    """Message schedules is disabled."""
    SCHEDULES_PATTERN_INVALID = (10189, 400, "message schedules pattern is invalid")
    """Message schedules pattern is invalid."""
    SCHEDULES_TARGET_INVALID = (10190, 400, "message schedules target is invalid")
    """Message schedules target is invalid."""
    SCHEDULES_TTL_INVALID = (10191, 400, "message schedules invalid per-message TTL")
    """Message schedules invalid per-message TTL."""
    SCHEDULES_ROLLUP_INVALID = (10192, 400, "message schedules invalid rollup")
    """Message schedules invalid rollup."""
    STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID = (
        10193, 400, "missing sequence for expected last sequence per subject")
    """Missing sequence for expected last sequence per subject."""
    CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE = (
        10196, 400, "consumer can not have priority groups when policy is none")
    """Consumer can not have priority groups when policy is none."""
    CONSUMER_PINNED_TTL_WITHOUT_POLICY = (
        10197, 400, "PinnedTTL cannot be set when PriorityPolicy is none")
    """PinnedTTL cannot be set when PriorityPolicy is none."""
    MIRROR_WITH_ATOMIC_PUBLISH = (10198, 400, "stream mirrors can not also use atomic publishing")
    """Stream mirrors can not also use atomic publishing."""
    BATCH_TOO_LARGE = (10199, 400, "atomic publish batch is too large: {size}")
    """Atomic publish batch is too large: {size}."""
    BATCH_INVALID_COMMIT = (10200, 400, "atomic publish batch commit is invalid")
    """Atomic publish batch commit is invalid."""
    BATCH_DUPLICATE_ID = (10201, 400, "atomic publish batch contains duplicate message id")
    """Atomic publish batch contains duplicate message id."""
    SCHEDULES_SOURCE_INVALID = (10203, 400, "message schedules source is invalid")
    """Message schedules source is invalid."""
    CONSUMER_INVALID_RESET = (10204, 400, "invalid reset: {err}")
    """Invalid reset: {err}."""
    FAST_BATCH_DISABLED = (10205, 400, "batch publish is disabled")
    """Batch publish is disabled."""
    FAST_BATCH_INVALID_PATTERN = (10206, 400, "batch publish pattern is invalid")
    """Batch publish pattern is invalid."""
    FAST_BATCH_INVALID_ID = (10207, 400, "batch publish ID is invalid")
    """Batch publish ID is invalid."""
    FAST_BATCH_UNKNOWN = (10208, 400, "batch publish ID unknown")
    """Batch publish ID unknown."""
    MIRROR_WITH_BATCH_PUBLISH = (10209, 400, "stream mirrors can not also use batch publishing")
    """Stream mirrors can not also use batch publishing."""
    BATCH_TOO_MANY = (10210, 429, "atomic publish too many inflight")
    """Atomic publish too many inflight."""
    FAST_BATCH_TOO_MANY = (10211, 429, "batch publish too many inflight")
    """Batch publish too many inflight."""
    SCHEDULES_SCHEDULER_INVALID = (10212, 400, "message schedules invalid scheduler")
    """Message schedules invalid scheduler."""
    MIRROR_CONSUMER_INVALID = (10213, 400, "stream mirror consumer config is invalid")
    """Stream mirror consumer config is invalid."""
    MIRROR_CONSUMER_REQUIRES_FLOW_ACKS = (
        10214, 400, "stream mirror consumer requires flow control ack policy")
    """Stream mirror consumer requires flow control ack policy."""
    SOURCE_CONSUMER_INVALID = (10215, 400, "stream source consumer config is invalid")
    """Stream source consumer config is invalid."""
    SOURCE_CONSUMER_DUPLICATE = (10216, 400, "duplicate stream source consumer detected")
    """Duplicate stream source consumer detected."""
    SOURCE_CONSUMER_REQUIRES_FLOW_ACKS = (
        10217, 400, "stream source consumer requires flow control ack policy")
    """Stream source consumer requires flow control ack policy."""
    CONSUMER_FLOW_ACKS_REQUIRE_PUSH = (
        10218, 400, "flow control ack policy requires a push based consumer")
    """Flow control ack policy requires a push based consumer."""
    CONSUMER_FLOW_ACKS_REQUIRE_FLOW_CONTROL = (
        10219, 400, "flow control ack policy requires flow control")
    """Flow control ack policy requires flow control."""
    CONSUMER_FLOW_ACKS_REQUIRE_MAX_ACK_PENDING = (
        10220, 400, "flow control ack policy requires max ack pending")
    """Flow control ack policy requires max ack pending."""
    CONSUMER_FLOW_ACKS_WITH_ACK_WAIT = (10221, 400, "flow control ack policy requires unset ack wait")
    """Flow control ack policy requires unset ack wait."""
    CONSUMER_FLOW_ACKS_WITH_MAX_DELIVER = (
        10222, 400, "flow control ack policy requires unset max deliver")
    """Flow control ack policy requires unset max deliver."""
    SCHEDULES_TIME_ZONE_INVALID = (10223, 400, "message schedules time zone is invalid")
    """Message schedules time zone is invalid."""
    MESSAGE_SOURCE_HEADER_NOT_ALLOWED = (10227, 400, "message stream source header is not allowed")
    """Message stream source header is not allowed."""
# fmt: on

Errors = ErrorCode
"""The name by which the broker calls it."""

_NOT_NOW: Final = frozenset(
    {
        10008,  # JetStream is not available now
        10009,  # not the leader (now)
        10158,  # a message with this id is being stored: the one sent before
    }
)
_NOBODY: Final = 503


def is_leaderless(error: Exception) -> bool:
    """Whether a server refused, and did nothing, because somebody else leads, or nobody does now.

    What it could not propose to the others is answered with 503 and no number.
    """
    if not isinstance(error, JetStreamApiError):
        return False
    return error.err_code in _NOT_NOW or (error.code == _NOBODY and error.err_code == 0)
