"""The error table that client and broker share: HTTP-like code, JetStream error number, text.

``ErrorSpec.with_(…)`` completes a text with ``{…}``. Numbers and texts are the public server's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import ConsumerNotFoundError, JetStreamApiError, StreamNotFoundError


class ErrorSpec(NamedTuple):
    """One row of the table."""

    err_code: int
    code: int
    description: str

    def with_(self, **values: object) -> ErrorSpec:
        """The row with the placeholders of its text filled in."""
        return self._replace(description=self.description.format(**values))

    def to_wire(self) -> dict[str, Any]:
        """The ``error`` object of a response."""
        return {"code": self.code, "err_code": self.err_code, "description": self.description}

    def as_exception(self) -> JetStreamApiError:
        """The exception that the client raises for it."""
        return _exception(self.code, self.err_code, self.description)


def api_error(error: dict[str, Any]) -> JetStreamApiError:
    """The exception for the ``error`` object of a response."""
    return _exception(
        int(error.get("code", 0)), int(error.get("err_code", 0)), str(error.get("description", ""))
    )


def _exception(code: int, err_code: int, description: str) -> JetStreamApiError:
    """Of the class that says what is missing, where there is one."""
    kind = JetStreamApiError
    if err_code == Errors.STREAM_NOT_FOUND.err_code:
        kind = StreamNotFoundError
    elif err_code == Errors.CONSUMER_NOT_FOUND.err_code:
        kind = ConsumerNotFoundError
    return kind(code, err_code, description)


_Row = ErrorSpec


# fmt: off
class Errors:
    """The table, by name: what client and broker use of the public server's."""

    ACCOUNT_RESOURCES_EXCEEDED = _Row(10002, 400, "resource limits exceeded for account")
    BAD_REQUEST = _Row(10003, 400, "bad request")
    CLUSTER_REQUIRED = _Row(10010, 503, "JetStream clustering support required")
    CONSUMER_CREATE = _Row(10012, 500, "{err}")
    CONSUMER_NAME_EXISTS = _Row(10013, 400, "consumer name already in use")
    CONSUMER_NOT_FOUND = _Row(10014, 404, "consumer not found")
    CONSUMER_DURABLE_NAME_MISMATCH = _Row(
        10017, 400, "consumer name in subject does not match durable name in request")
    SNAPSHOT_DELIVER_SUBJECT_INVALID = _Row(10015, 400, "deliver subject not valid")
    CONSUMER_EPHEMERAL_WITH_DURABLE_IN_SUBJECT = _Row(
        10018, 400, "consumer expected to be durable but a durable name was not set")
    CONSUMER_EPHEMERAL_WITH_DURABLE_NAME = _Row(
        10020, 400, "consumer expected to be ephemeral but a durable name was set in request")
    STREAM_EXTERNAL_API_OVERLAP = _Row(
        10021, 400, "stream external api prefix {prefix} must not overlap with {subject}")
    STREAM_EXTERNAL_DELIVER_OVERLAP = _Row(
        10022, 400, "stream external delivery prefix {prefix} overlaps with stream subject {subject}")
    INSUFFICIENT_RESOURCES = _Row(10023, 503, "insufficient resources")
    STREAM_EXTERNAL_DELIVER_INVALID = _Row(
        10024, 400, "stream external delivery prefix {prefix} must not contain wildcards")
    INVALID_JSON = _Row(10025, 400, "invalid JSON: {err}")
    MAX_CONSUMERS = _Row(10026, 400, "maximum consumers limit reached")
    MAX_STREAMS = _Row(10027, 400, "maximum number of streams reached")
    MEMORY_RESOURCES_EXCEEDED = _Row(10028, 500, "insufficient memory resources available")
    MIRROR_CONSUMER_SETUP_FAILED = _Row(10029, 500, "{err}")
    MIRROR_MAX_MESSAGE_SIZE_TOO_BIG = _Row(10030, 400, "stream mirror must have max message size >= source")
    MIRROR_WITH_SOURCES = _Row(10031, 400, "stream mirrors can not also contain other sources")
    MIRROR_WITH_SUBJECTS = _Row(10034, 400, "stream mirrors can not contain subjects")
    NO_MESSAGE_FOUND = _Row(10037, 404, "no message found")
    NOT_EMPTY_REQUEST = _Row(10038, 400, "expected an empty request payload")
    NOT_ENABLED_FOR_ACCOUNT = _Row(10039, 503, "JetStream not enabled for account")
    SEQUENCE_NOT_FOUND = _Row(10043, 400, "sequence {seq} not found")
    SOURCE_CONSUMER_SETUP_FAILED = _Row(10045, 500, "{err}")
    SOURCE_MAX_MESSAGE_SIZE_TOO_BIG = _Row(10046, 400, "stream source must have max message size >= target")
    STORAGE_RESOURCES_EXCEEDED = _Row(10047, 500, "insufficient storage resources available")
    STREAM_CREATE = _Row(10049, 500, "{err}")
    STREAM_DELETE = _Row(10050, 500, "{err}")
    STREAM_GENERAL = _Row(10051, 500, "{err}")
    STREAM_INVALID_CONFIG = _Row(10052, 500, "{err}")
    STREAM_MESSAGE_EXCEEDS_MAXIMUM = _Row(10054, 400, "message size exceeds maximum allowed")
    STREAM_MIRROR_NOT_UPDATABLE = _Row(10055, 400, "stream mirror configuration can not be updated")
    STREAM_NAME_MISMATCH = _Row(10056, 400, "stream name in subject does not match request")
    STREAM_MSG_DELETE_FAILED = _Row(10057, 500, "{err}")
    STREAM_NAME_EXISTS = _Row(10058, 400, "stream name already in use with a different configuration")
    STREAM_NOT_FOUND = _Row(10059, 404, "stream not found")
    STREAM_NOT_MATCH = _Row(10060, 400, "expected stream does not match")
    STREAM_RESTORE = _Row(10062, 500, "restore failed: {err}")
    STREAM_SNAPSHOT = _Row(10064, 500, "snapshot failed: {err}")
    STREAM_SUBJECT_OVERLAP = _Row(10065, 400, "subjects overlap with an existing stream")
    STREAM_UPDATE = _Row(10069, 500, "{err}")
    STREAM_WRONG_LAST_MSG_ID = _Row(10070, 400, "wrong last msg ID: {id}")
    STREAM_WRONG_LAST_SEQUENCE = _Row(10071, 400, "wrong last sequence: {seq}")
    STREAM_REPLICAS_NOT_SUPPORTED = _Row(10074, 500, "replicas > 1 not supported in non-clustered mode")
    STREAM_STORE_FAILED = _Row(10077, 503, "{err}")
    CONSUMER_DELIVER_TO_WILDCARDS = _Row(10079, 400, "consumer deliver subject has wildcards")
    CONSUMER_PUSH_MAX_WAITING = _Row(10080, 400, "consumer in push mode can not set max waiting")
    CONSUMER_DELIVER_CYCLE = _Row(10081, 400, "consumer deliver subject forms a cycle")
    CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED = _Row(
        10082, 400, "consumer requires ack policy for max ack pending")
    CONSUMER_SMALL_HEARTBEAT = _Row(10083, 400, "consumer idle heartbeat needs to be >= 100ms")
    CONSUMER_PULL_REQUIRES_ACK = _Row(
        10084, 400, "consumer in pull mode requires explicit ack policy on workqueue stream")
    CONSUMER_PULL_WITH_RATE_LIMIT = _Row(10086, 400, "consumer in pull mode can not have rate limit set")
    CONSUMER_HEARTBEAT_REQUIRES_PUSH = _Row(
        10088, 400, "consumer idle heartbeat requires a push based consumer")
    CONSUMER_FLOW_CONTROL_REQUIRES_PUSH = _Row(
        10089, 400, "consumer flow control requires a push based consumer")
    CONSUMER_DIRECT_REQUIRES_PUSH = _Row(10090, 400, "consumer direct requires a push based consumer")
    CONSUMER_DIRECT_REQUIRES_EPHEMERAL = _Row(10091, 400, "consumer direct requires an ephemeral consumer")
    CONSUMER_INVALID_POLICY = _Row(10094, 400, "{err}")
    CONSUMER_INVALID_SAMPLING = _Row(10095, 400, "failed to parse consumer sampling configuration: {err}")
    STREAM_HEADER_EXCEEDS_MAXIMUM = _Row(10097, 400, "header size exceeds maximum allowed of 64k")
    CONSUMER_WQ_REQUIRES_EXPLICIT_ACK = _Row(10098, 400, "workqueue stream requires explicit ack")
    CONSUMER_WQ_MULTIPLE_UNFILTERED = _Row(
        10099, 400, "multiple non-filtered consumers not allowed on workqueue stream")
    CONSUMER_WQ_NOT_UNIQUE = _Row(10100, 400, "filtered consumer not unique on workqueue stream")
    CONSUMER_WQ_NOT_DELIVER_ALL = _Row(10101, 400, "consumer must be deliver all on workqueue stream")
    CONSUMER_NAME_TOO_LONG = _Row(10102, 400, "consumer name is too long, maximum allowed is {max}")
    CONSUMER_DESCRIPTION_TOO_LONG = _Row(
        10107, 400, "consumer description is too long, maximum allowed is {max}")
    CONSUMER_FC_REQUIRES_HEARTBEAT = _Row(10108, 400, "consumer with flow control also needs heartbeats")
    STREAM_SEALED = _Row(10109, 400, "invalid operation on sealed stream")
    STREAM_PURGE_FAILED = _Row(10110, 500, "{err}")
    STREAM_ROLLUP_FAILED = _Row(10111, 500, "{err}")
    CONSUMER_INVALID_DELIVER_SUBJECT = _Row(10112, 400, "invalid push consumer deliver subject")
    STREAM_MAX_BYTES_REQUIRED = _Row(10113, 400, "account requires a stream config to have max bytes set")
    CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL = _Row(
        10115, 400, "consumer max request expires needs to be >= 1ms")
    CONSUMER_MAX_DELIVER_BACKOFF = _Row(
        10116, 400, "max deliver is required to be > length of backoff values")
    NO_LIMITS = _Row(10120, 400, "no JetStream default or applicable tiered limit present")
    CONSUMER_MAX_PENDING_ACK_EXCESS = _Row(
        10121, 400, "consumer max ack pending exceeds system limit of {limit}")
    STREAM_MAX_BYTES_EXCEEDED = _Row(10122, 400, "stream max bytes exceeds account limit max stream bytes")
    CONSUMER_MAX_REQUEST_BATCH_EXCEEDED = _Row(
        10125, 400, "consumer max request batch exceeds server limit of {limit}")
    CONSUMER_REPLICAS_EXCEEDS_STREAM = _Row(10126, 400, "consumer config replica count exceeds parent stream")
    CONSUMER_NAME_PATH_SEPARATORS = _Row(10127, 400, "Consumer name can not contain path separators")
    STREAM_NAME_EXISTS_RESTORE = _Row(10130, 400, "stream name already in use, cannot restore")
    CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH = _Row(
        10131, 400, "Consumer create request did not match filtered subject from create subject")
    CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH = _Row(
        10132, 400, "Consumer Durable and Name have to be equal if both are provided")
    REPLICAS_NEGATIVE = _Row(10133, 400, "replicas count cannot be negative")
    CONSUMER_METADATA_LENGTH = _Row(10135, 400, "consumer metadata exceeds maximum size of {limit}")
    CONSUMER_DUPLICATE_FILTERS = _Row(
        10136, 400, "consumer cannot have both FilterSubject and FilterSubjects specified")
    CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED = _Row(
        10137, 400, "consumer with multiple subject filters cannot use subject based API")
    CONSUMER_OVERLAPPING_FILTERS = _Row(10138, 400, "consumer subject filters cannot overlap")
    CONSUMER_EMPTY_FILTER = _Row(10139, 400, "consumer filter in FilterSubjects cannot be empty")
    SOURCE_DUPLICATE = _Row(10140, 400, "duplicate source configuration detected")
    SOURCE_INVALID_NAME = _Row(10141, 400, "sourced stream name is invalid")
    MIRROR_INVALID_NAME = _Row(10142, 400, "mirrored stream name is invalid")
    MIRROR_WITH_FIRST_SEQ = _Row(10143, 400, "stream mirrors can not have first sequence configured")
    SOURCE_MULTIPLE_FILTERS = _Row(
        10144, 400, "source with multiple subject transforms cannot also have a single subject filter")
    SOURCE_INVALID_FILTER = _Row(10145, 400, "source transform source: {err}")
    SOURCE_INVALID_TRANSFORM = _Row(10146, 400, "source transform: {err}")
    SOURCE_OVERLAPPING_FILTERS = _Row(10147, 400, "source filters can not overlap")
    CONSUMER_ALREADY_EXISTS = _Row(10148, 400, "consumer already exists")
    CONSUMER_DOES_NOT_EXIST = _Row(10149, 400, "consumer does not exist")
    MIRROR_MULTIPLE_FILTERS = _Row(
        10150, 400, "mirror with multiple subject transforms cannot also have a single subject filter")
    MIRROR_INVALID_FILTER = _Row(10151, 400, "mirror transform source: {err}")
    MIRROR_OVERLAPPING_FILTERS = _Row(10152, 400, "mirror subject filters can not overlap")
    CONSUMER_INACTIVE_THRESHOLD_EXCESS = _Row(
        10153, 400, "consumer inactive threshold exceeds system limit of {limit}")
    MIRROR_INVALID_TRANSFORM = _Row(10154, 400, "mirror transform: {err}")
    STREAM_TRANSFORM_INVALID_SOURCE = _Row(10155, 400, "stream transform source: {err}")
    STREAM_TRANSFORM_INVALID_DESTINATION = _Row(10156, 400, "stream transform: {err}")
    PEDANTIC = _Row(10157, 400, "pedantic mode: {err}")
    CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP = _Row(
        10159, 400, "Setting PriorityPolicy requires at least one PriorityGroup to be set")
    CONSUMER_INVALID_PRIORITY_GROUP = _Row(
        10160, 400, "Provided priority group does not exist for this consumer")
    CONSUMER_EMPTY_GROUP_NAME = _Row(10161, 400, "Group name cannot be an empty string")
    CONSUMER_INVALID_GROUP_NAME = _Row(
        10162, 400,
        "Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ and may not exceed 16 characters")
    STREAM_WRONG_LAST_SEQUENCE_CONSTANT = _Row(10164, 400, "wrong last sequence")
    MESSAGE_TTL_INVALID = _Row(10165, 400, "invalid per-message TTL")
    MESSAGE_TTL_DISABLED = _Row(10166, 400, "per-message TTL is disabled")
    MESSAGE_INCR_DISABLED = _Row(10168, 400, "message counters is disabled")
    MESSAGE_INCR_MISSING = _Row(10169, 400, "message counter increment is missing")
    MESSAGE_INCR_PAYLOAD = _Row(10170, 400, "message counter has payload")
    MESSAGE_INCR_INVALID = _Row(10171, 400, "message counter increment is invalid")
    MESSAGE_COUNTER_BROKEN = _Row(10172, 400, "message counter is broken")
    MIRROR_WITH_COUNTERS = _Row(10173, 400, "stream mirrors can not also calculate counters")
    BATCH_DISABLED = _Row(10174, 400, "atomic publish is disabled")
    BATCH_MISSING_SEQUENCE = _Row(10175, 400, "atomic publish sequence is missing")
    BATCH_INCOMPLETE = _Row(10176, 400, "atomic publish batch is incomplete")
    BATCH_UNSUPPORTED_HEADER = _Row(10177, 400, "atomic publish unsupported header used: {header}")
    CONSUMER_PUSH_WITH_PRIORITY_GROUP = _Row(
        10178, 400, "priority groups can not be used with push consumers")
    BATCH_INVALID_ID = _Row(10179, 400, "atomic publish batch ID is invalid")
    CONSUMER_ACK_WAIT_NEGATIVE = _Row(10183, 400, "consumer ack wait needs to be positive")
    CONSUMER_BACKOFF_NEGATIVE = _Row(10184, 400, "consumer backoff needs to be positive")
    REQUIRED_API_LEVEL = _Row(10185, 412, "JetStream minimum api level required")
    MIRROR_WITH_SCHEDULES = _Row(10186, 400, "stream mirrors can not also schedule messages")
    SOURCE_WITH_SCHEDULES = _Row(10187, 400, "stream source can not also schedule messages")
    SCHEDULES_DISABLED = _Row(10188, 400, "message schedules is disabled")
    SCHEDULES_PATTERN_INVALID = _Row(10189, 400, "message schedules pattern is invalid")
    SCHEDULES_TARGET_INVALID = _Row(10190, 400, "message schedules target is invalid")
    SCHEDULES_TTL_INVALID = _Row(10191, 400, "message schedules invalid per-message TTL")
    SCHEDULES_ROLLUP_INVALID = _Row(10192, 400, "message schedules invalid rollup")
    STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID = _Row(
        10193, 400, "missing sequence for expected last sequence per subject")
    CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE = _Row(
        10196, 400, "consumer can not have priority groups when policy is none")
    CONSUMER_PINNED_TTL_WITHOUT_POLICY = _Row(
        10197, 400, "PinnedTTL cannot be set when PriorityPolicy is none")
    MIRROR_WITH_ATOMIC_PUBLISH = _Row(10198, 400, "stream mirrors can not also use atomic publishing")
    BATCH_TOO_LARGE = _Row(10199, 400, "atomic publish batch is too large: {size}")
    BATCH_INVALID_COMMIT = _Row(10200, 400, "atomic publish batch commit is invalid")
    BATCH_DUPLICATE_ID = _Row(10201, 400, "atomic publish batch contains duplicate message id")
    SCHEDULES_SOURCE_INVALID = _Row(10203, 400, "message schedules source is invalid")
    CONSUMER_INVALID_RESET = _Row(10204, 400, "invalid reset: {err}")
    FAST_BATCH_DISABLED = _Row(10205, 400, "batch publish is disabled")
    FAST_BATCH_INVALID_PATTERN = _Row(10206, 400, "batch publish pattern is invalid")
    FAST_BATCH_INVALID_ID = _Row(10207, 400, "batch publish ID is invalid")
    FAST_BATCH_UNKNOWN = _Row(10208, 400, "batch publish ID unknown")
    MIRROR_WITH_BATCH_PUBLISH = _Row(10209, 400, "stream mirrors can not also use batch publishing")
    BATCH_TOO_MANY = _Row(10210, 429, "atomic publish too many inflight")
    FAST_BATCH_TOO_MANY = _Row(10211, 429, "batch publish too many inflight")
    SCHEDULES_SCHEDULER_INVALID = _Row(10212, 400, "message schedules invalid scheduler")
    MIRROR_CONSUMER_INVALID = _Row(10213, 400, "stream mirror consumer config is invalid")
    MIRROR_CONSUMER_REQUIRES_FLOW_ACKS = _Row(
        10214, 400, "stream mirror consumer requires flow control ack policy")
    SOURCE_CONSUMER_INVALID = _Row(10215, 400, "stream source consumer config is invalid")
    SOURCE_CONSUMER_DUPLICATE = _Row(10216, 400, "duplicate stream source consumer detected")
    SOURCE_CONSUMER_REQUIRES_FLOW_ACKS = _Row(
        10217, 400, "stream source consumer requires flow control ack policy")
    CONSUMER_FLOW_ACKS_REQUIRE_PUSH = _Row(
        10218, 400, "flow control ack policy requires a push based consumer")
    CONSUMER_FLOW_ACKS_REQUIRE_FLOW_CONTROL = _Row(
        10219, 400, "flow control ack policy requires flow control")
    CONSUMER_FLOW_ACKS_REQUIRE_MAX_ACK_PENDING = _Row(
        10220, 400, "flow control ack policy requires max ack pending")
    CONSUMER_FLOW_ACKS_WITH_ACK_WAIT = _Row(10221, 400, "flow control ack policy requires unset ack wait")
    CONSUMER_FLOW_ACKS_WITH_MAX_DELIVER = _Row(
        10222, 400, "flow control ack policy requires unset max deliver")
    SCHEDULES_TIME_ZONE_INVALID = _Row(10223, 400, "message schedules time zone is invalid")
    MESSAGE_SOURCE_HEADER_NOT_ALLOWED = _Row(10227, 400, "message stream source header is not allowed")
# fmt: on
