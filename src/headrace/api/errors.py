"""The error table that client and broker share: HTTP-like code, JetStream error number, text.

``ErrorSpec.with_(…)`` completes a text with ``{…}``. Numbers and texts are the public server's.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ..errors import JetStreamApiError

__all__ = ["BY_NUMBER", "ErrorSpec", "Errors", "api_error"]


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
        return JetStreamApiError(self.code, self.err_code, self.description)


def api_error(error: dict[str, Any]) -> JetStreamApiError:
    """The exception for the ``error`` object of a response."""
    return JetStreamApiError(
        int(error.get("code", 0)), int(error.get("err_code", 0)), str(error.get("description", ""))
    )


class Errors:
    """The table, by name."""

    ACCOUNT_RESOURCES_EXCEEDED: Final = ErrorSpec(
        10002, 400, "resource limits exceeded for account"
    )
    BAD_REQUEST: Final = ErrorSpec(10003, 400, "bad request")
    CLUSTER_REQUIRED: Final = ErrorSpec(10010, 503, "JetStream clustering support required")
    CONSUMER_CREATE: Final = ErrorSpec(10012, 500, "{err}")
    CONSUMER_NAME_EXISTS: Final = ErrorSpec(10013, 400, "consumer name already in use")
    CONSUMER_NOT_FOUND: Final = ErrorSpec(10014, 404, "consumer not found")
    CONSUMER_DURABLE_NAME_NOT_IN_SUBJECT: Final = ErrorSpec(
        10016, 400, "consumer expected to be durable but no durable name set in subject"
    )
    CONSUMER_DURABLE_NAME_MISMATCH: Final = ErrorSpec(
        10017, 400, "consumer name in subject does not match durable name in request"
    )
    CONSUMER_EPHEMERAL_WITH_DURABLE_IN_SUBJECT: Final = ErrorSpec(
        10018, 400, "consumer expected to be durable but a durable name was not set"
    )
    CONSUMER_EPHEMERAL_WITH_DURABLE_NAME: Final = ErrorSpec(
        10020, 400, "consumer expected to be ephemeral but a durable name was set in request"
    )
    CONSUMER_EPHEMERAL_DURABLE_IN_SUBJECT: Final = ErrorSpec(
        10019, 400, "consumer expected to be ephemeral but detected a durable name set in subject"
    )
    STREAM_EXTERNAL_API_OVERLAP: Final = ErrorSpec(
        10021, 400, "stream external api prefix {prefix} must not overlap with {subject}"
    )
    STREAM_EXTERNAL_DELIVER_OVERLAP: Final = ErrorSpec(
        10022,
        400,
        "stream external delivery prefix {prefix} overlaps with stream subject {subject}",
    )
    INSUFFICIENT_RESOURCES: Final = ErrorSpec(10023, 503, "insufficient resources")
    STREAM_EXTERNAL_DELIVER_INVALID: Final = ErrorSpec(
        10024, 400, "stream external delivery prefix {prefix} must not contain wildcards"
    )
    INVALID_JSON: Final = ErrorSpec(10025, 400, "invalid JSON: {err}")
    MAX_CONSUMERS: Final = ErrorSpec(10026, 400, "maximum consumers limit reached")
    MAX_STREAMS: Final = ErrorSpec(10027, 400, "maximum number of streams reached")
    MEMORY_RESOURCES_EXCEEDED: Final = ErrorSpec(
        10028, 500, "insufficient memory resources available"
    )
    MIRROR_CONSUMER_SETUP_FAILED: Final = ErrorSpec(10029, 500, "{err}")
    MIRROR_MAX_MESSAGE_SIZE_TOO_BIG: Final = ErrorSpec(
        10030, 400, "stream mirror must have max message size >= source"
    )
    MIRROR_WITH_SOURCES: Final = ErrorSpec(
        10031, 400, "stream mirrors can not also contain other sources"
    )
    MIRROR_WITH_SUBJECTS: Final = ErrorSpec(10034, 400, "stream mirrors can not contain subjects")
    NO_MESSAGE_FOUND: Final = ErrorSpec(10037, 404, "no message found")
    NOT_EMPTY_REQUEST: Final = ErrorSpec(10038, 400, "expected an empty request payload")
    NOT_ENABLED_FOR_ACCOUNT: Final = ErrorSpec(10039, 503, "JetStream not enabled for account")
    SEQUENCE_NOT_FOUND: Final = ErrorSpec(10043, 400, "sequence {seq} not found")
    SOURCE_CONSUMER_SETUP_FAILED: Final = ErrorSpec(10045, 500, "{err}")
    SOURCE_MAX_MESSAGE_SIZE_TOO_BIG: Final = ErrorSpec(
        10046, 400, "stream source must have max message size >= target"
    )
    STORAGE_RESOURCES_EXCEEDED: Final = ErrorSpec(
        10047, 500, "insufficient storage resources available"
    )
    STREAM_CREATE: Final = ErrorSpec(10049, 500, "{err}")
    STREAM_DELETE: Final = ErrorSpec(10050, 500, "{err}")
    STREAM_GENERAL: Final = ErrorSpec(10051, 500, "{err}")
    STREAM_INVALID_CONFIG: Final = ErrorSpec(10052, 500, "{err}")
    STREAM_MESSAGE_EXCEEDS_MAXIMUM: Final = ErrorSpec(
        10054, 400, "message size exceeds maximum allowed"
    )
    STREAM_MIRROR_NOT_UPDATABLE: Final = ErrorSpec(
        10055, 400, "stream mirror configuration can not be updated"
    )
    STREAM_NAME_MISMATCH: Final = ErrorSpec(
        10056, 400, "stream name in subject does not match request"
    )
    STREAM_MSG_DELETE_FAILED: Final = ErrorSpec(10057, 500, "{err}")
    STREAM_NAME_EXISTS: Final = ErrorSpec(
        10058, 400, "stream name already in use with a different configuration"
    )
    STREAM_NOT_FOUND: Final = ErrorSpec(10059, 404, "stream not found")
    STREAM_RESTORE: Final = ErrorSpec(10062, 500, "restore failed: {err}")
    STREAM_SNAPSHOT: Final = ErrorSpec(10064, 500, "snapshot failed: {err}")
    STREAM_NAME_EXISTS_RESTORE: Final = ErrorSpec(
        10130, 400, "stream name already in use, cannot restore"
    )
    STREAM_NOT_MATCH: Final = ErrorSpec(10060, 400, "expected stream does not match")
    STREAM_SUBJECT_OVERLAP: Final = ErrorSpec(
        10065, 400, "subjects overlap with an existing stream"
    )
    STREAM_UPDATE: Final = ErrorSpec(10069, 500, "{err}")
    STREAM_WRONG_LAST_MSG_ID: Final = ErrorSpec(10070, 400, "wrong last msg ID: {id}")
    STREAM_WRONG_LAST_SEQUENCE: Final = ErrorSpec(10071, 400, "wrong last sequence: {seq}")
    STREAM_REPLICAS_NOT_SUPPORTED: Final = ErrorSpec(
        10074, 500, "replicas > 1 not supported in non-clustered mode"
    )
    NOT_ENABLED: Final = ErrorSpec(10076, 503, "JetStream not enabled")
    STREAM_STORE_FAILED: Final = ErrorSpec(10077, 503, "{err}")
    CONSUMER_DELIVER_TO_WILDCARDS: Final = ErrorSpec(
        10079, 400, "consumer deliver subject has wildcards"
    )
    CONSUMER_PUSH_MAX_WAITING: Final = ErrorSpec(
        10080, 400, "consumer in push mode can not set max waiting"
    )
    CONSUMER_DELIVER_CYCLE: Final = ErrorSpec(10081, 400, "consumer deliver subject forms a cycle")
    CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED: Final = ErrorSpec(
        10082, 400, "consumer requires ack policy for max ack pending"
    )
    CONSUMER_SMALL_HEARTBEAT: Final = ErrorSpec(
        10083, 400, "consumer idle heartbeat needs to be >= 100ms"
    )
    CONSUMER_PULL_REQUIRES_ACK: Final = ErrorSpec(
        10084, 400, "consumer in pull mode requires explicit ack policy on workqueue stream"
    )
    CONSUMER_PULL_NOT_DURABLE: Final = ErrorSpec(
        10085, 400, "consumer in pull mode requires a durable name"
    )
    CONSUMER_PULL_WITH_RATE_LIMIT: Final = ErrorSpec(
        10086, 400, "consumer in pull mode can not have rate limit set"
    )
    CONSUMER_MAX_WAITING_NEGATIVE: Final = ErrorSpec(
        10087, 400, "consumer max waiting needs to be positive"
    )
    CONSUMER_HEARTBEAT_REQUIRES_PUSH: Final = ErrorSpec(
        10088, 400, "consumer idle heartbeat requires a push based consumer"
    )
    CONSUMER_FLOW_CONTROL_REQUIRES_PUSH: Final = ErrorSpec(
        10089, 400, "consumer flow control requires a push based consumer"
    )
    CONSUMER_DIRECT_REQUIRES_PUSH: Final = ErrorSpec(
        10090, 400, "consumer direct requires a push based consumer"
    )
    CONSUMER_DIRECT_REQUIRES_EPHEMERAL: Final = ErrorSpec(
        10091, 400, "consumer direct requires an ephemeral consumer"
    )
    CONSUMER_ON_MAPPED: Final = ErrorSpec(10092, 400, "consumer direct on a mapped consumer")
    CONSUMER_FILTER_NOT_SUBSET: Final = ErrorSpec(
        10093, 400, "consumer filter subject is not a valid subset of the interest subjects"
    )
    CONSUMER_INVALID_POLICY: Final = ErrorSpec(10094, 400, "{err}")
    CONSUMER_INVALID_SAMPLING: Final = ErrorSpec(
        10095, 400, "failed to parse consumer sampling configuration: {err}"
    )
    STREAM_INVALID: Final = ErrorSpec(10096, 500, "stream not valid")
    STREAM_HEADER_EXCEEDS_MAXIMUM: Final = ErrorSpec(
        10097, 400, "header size exceeds maximum allowed of 64k"
    )
    CONSUMER_WQ_REQUIRES_EXPLICIT_ACK: Final = ErrorSpec(
        10098, 400, "workqueue stream requires explicit ack"
    )
    CONSUMER_WQ_MULTIPLE_UNFILTERED: Final = ErrorSpec(
        10099, 400, "multiple non-filtered consumers not allowed on workqueue stream"
    )
    CONSUMER_WQ_NOT_UNIQUE: Final = ErrorSpec(
        10100, 400, "filtered consumer not unique on workqueue stream"
    )
    CONSUMER_WQ_NOT_DELIVER_ALL: Final = ErrorSpec(
        10101, 400, "consumer must be deliver all on workqueue stream"
    )
    CONSUMER_NAME_TOO_LONG: Final = ErrorSpec(
        10102, 400, "consumer name is too long, maximum allowed is {max}"
    )
    CONSUMER_BAD_DURABLE_NAME: Final = ErrorSpec(
        10103, 400, "durable name can not contain '.', '*', '>'"
    )
    CONSUMER_STORE_FAILED: Final = ErrorSpec(10104, 500, "error creating store for consumer: {err}")
    CONSUMER_DESCRIPTION_TOO_LONG: Final = ErrorSpec(
        10107, 400, "consumer description is too long, maximum allowed is {max}"
    )
    CONSUMER_FC_REQUIRES_HEARTBEAT: Final = ErrorSpec(
        10108, 400, "consumer with flow control also needs heartbeats"
    )
    STREAM_SEALED: Final = ErrorSpec(10109, 400, "invalid operation on sealed stream")
    STREAM_PURGE_FAILED: Final = ErrorSpec(10110, 500, "{err}")
    STREAM_ROLLUP_FAILED: Final = ErrorSpec(10111, 500, "{err}")
    CONSUMER_INVALID_DELIVER_SUBJECT: Final = ErrorSpec(
        10112, 400, "invalid push consumer deliver subject"
    )
    STREAM_MAX_BYTES_EXCEEDED: Final = ErrorSpec(
        10122, 400, "stream max bytes exceeds account limit max stream bytes"
    )
    STREAM_MAX_BYTES_REQUIRED: Final = ErrorSpec(
        10113, 400, "account requires a stream config to have max bytes set"
    )
    CONSUMER_MAX_REQUEST_BATCH_NEGATIVE: Final = ErrorSpec(
        10114, 400, "consumer max request batch needs to be > 0"
    )
    CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL: Final = ErrorSpec(
        10115, 400, "consumer max request expires needs to be >= 1ms"
    )
    CONSUMER_MAX_DELIVER_BACKOFF: Final = ErrorSpec(
        10116, 400, "max deliver is required to be > length of backoff values"
    )
    STREAM_INFO_MAX_SUBJECTS: Final = ErrorSpec(
        10117, 500, "subject details would exceed maximum allowed"
    )
    STREAM_OFFLINE: Final = ErrorSpec(10118, 500, "stream is offline")
    NO_LIMITS: Final = ErrorSpec(
        10120, 400, "no JetStream default or applicable tiered limit present"
    )
    CONSUMER_MAX_PENDING_ACK_EXCESS: Final = ErrorSpec(
        10121, 400, "consumer max ack pending exceeds system limit of {limit}"
    )
    CONSUMER_MAX_REQUEST_BATCH_EXCEEDED: Final = ErrorSpec(
        10125, 400, "consumer max request batch exceeds server limit of {limit}"
    )
    CONSUMER_REPLICAS_EXCEEDS_STREAM: Final = ErrorSpec(
        10126, 400, "consumer config replica count exceeds parent stream"
    )
    CONSUMER_NAME_PATH_SEPARATORS: Final = ErrorSpec(
        10127, 400, "Consumer name can not contain path separators"
    )
    STREAM_NAME_PATH_SEPARATORS: Final = ErrorSpec(
        10128, 400, "Stream name can not contain path separators"
    )
    CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH: Final = ErrorSpec(
        10131,
        400,
        "Consumer create request did not match filtered subject from create subject",
    )
    CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH: Final = ErrorSpec(
        10132, 400, "Consumer Durable and Name have to be equal if both are provided"
    )
    REPLICAS_NEGATIVE: Final = ErrorSpec(10133, 400, "replicas count cannot be negative")
    CONSUMER_REPLICAS_SHOULD_MATCH: Final = ErrorSpec(
        10134, 400, "consumer config replicas must match interest retention stream's replicas"
    )
    CONSUMER_METADATA_LENGTH: Final = ErrorSpec(
        10135, 400, "consumer metadata exceeds maximum size of {limit}"
    )
    CONSUMER_DUPLICATE_FILTERS: Final = ErrorSpec(
        10136, 400, "consumer cannot have both FilterSubject and FilterSubjects specified"
    )
    CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED: Final = ErrorSpec(
        10137, 400, "consumer with multiple subject filters cannot use subject based API"
    )
    CONSUMER_OVERLAPPING_FILTERS: Final = ErrorSpec(
        10138, 400, "consumer subject filters cannot overlap"
    )
    CONSUMER_EMPTY_FILTER: Final = ErrorSpec(
        10139, 400, "consumer filter in FilterSubjects cannot be empty"
    )
    SOURCE_DUPLICATE: Final = ErrorSpec(10140, 400, "duplicate source configuration detected")
    SOURCE_INVALID_NAME: Final = ErrorSpec(10141, 400, "sourced stream name is invalid")
    MIRROR_INVALID_NAME: Final = ErrorSpec(10142, 400, "mirrored stream name is invalid")
    MIRROR_WITH_FIRST_SEQ: Final = ErrorSpec(
        10143, 400, "stream mirrors can not have first sequence configured"
    )
    SOURCE_MULTIPLE_FILTERS: Final = ErrorSpec(
        10144,
        400,
        "source with multiple subject transforms cannot also have a single subject filter",
    )
    SOURCE_INVALID_FILTER: Final = ErrorSpec(10145, 400, "source transform source: {err}")
    SOURCE_INVALID_TRANSFORM: Final = ErrorSpec(10146, 400, "source transform: {err}")
    SOURCE_OVERLAPPING_FILTERS: Final = ErrorSpec(10147, 400, "source filters can not overlap")
    CONSUMER_ALREADY_EXISTS: Final = ErrorSpec(10148, 400, "consumer already exists")
    CONSUMER_DOES_NOT_EXIST: Final = ErrorSpec(10149, 400, "consumer does not exist")
    MIRROR_MULTIPLE_FILTERS: Final = ErrorSpec(
        10150,
        400,
        "mirror with multiple subject transforms cannot also have a single subject filter",
    )
    MIRROR_INVALID_FILTER: Final = ErrorSpec(10151, 400, "mirror transform source: {err}")
    MIRROR_OVERLAPPING_FILTERS: Final = ErrorSpec(
        10152, 400, "mirror subject filters can not overlap"
    )
    CONSUMER_INACTIVE_THRESHOLD_EXCESS: Final = ErrorSpec(
        10153, 400, "consumer inactive threshold exceeds system limit of {limit}"
    )
    MIRROR_INVALID_TRANSFORM: Final = ErrorSpec(10154, 400, "mirror transform: {err}")
    STREAM_TRANSFORM_INVALID_SOURCE: Final = ErrorSpec(10155, 400, "stream transform source: {err}")
    STREAM_TRANSFORM_INVALID_DESTINATION: Final = ErrorSpec(10156, 400, "stream transform: {err}")
    PEDANTIC: Final = ErrorSpec(10157, 400, "pedantic mode: {err}")
    CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP: Final = ErrorSpec(
        10159, 400, "Setting PriorityPolicy requires at least one PriorityGroup to be set"
    )
    CONSUMER_INVALID_PRIORITY_GROUP: Final = ErrorSpec(
        10160, 400, "Provided priority group does not exist for this consumer"
    )
    CONSUMER_EMPTY_GROUP_NAME: Final = ErrorSpec(10161, 400, "Group name cannot be an empty string")
    CONSUMER_INVALID_GROUP_NAME: Final = ErrorSpec(
        10162,
        400,
        "Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ and may not exceed 16 characters",
    )
    STREAM_WRONG_LAST_SEQUENCE_CONSTANT: Final = ErrorSpec(10164, 400, "wrong last sequence")
    MESSAGE_TTL_INVALID: Final = ErrorSpec(10165, 400, "invalid per-message TTL")
    MESSAGE_TTL_DISABLED: Final = ErrorSpec(10166, 400, "per-message TTL is disabled")
    MESSAGE_INCR_DISABLED: Final = ErrorSpec(10168, 400, "message counters is disabled")
    MESSAGE_INCR_MISSING: Final = ErrorSpec(10169, 400, "message counter increment is missing")
    MESSAGE_INCR_PAYLOAD: Final = ErrorSpec(10170, 400, "message counter has payload")
    MESSAGE_INCR_INVALID: Final = ErrorSpec(10171, 400, "message counter increment is invalid")
    MESSAGE_COUNTER_BROKEN: Final = ErrorSpec(10172, 400, "message counter is broken")
    MIRROR_WITH_COUNTERS: Final = ErrorSpec(
        10173, 400, "stream mirrors can not also calculate counters"
    )
    BATCH_DISABLED: Final = ErrorSpec(10174, 400, "atomic publish is disabled")
    BATCH_MISSING_SEQUENCE: Final = ErrorSpec(10175, 400, "atomic publish sequence is missing")
    BATCH_INCOMPLETE: Final = ErrorSpec(10176, 400, "atomic publish batch is incomplete")
    BATCH_UNSUPPORTED_HEADER: Final = ErrorSpec(
        10177, 400, "atomic publish unsupported header used: {header}"
    )
    CONSUMER_PUSH_WITH_PRIORITY_GROUP: Final = ErrorSpec(
        10178, 400, "priority groups can not be used with push consumers"
    )
    BATCH_INVALID_ID: Final = ErrorSpec(10179, 400, "atomic publish batch ID is invalid")
    CONSUMER_ACK_POLICY_INVALID: Final = ErrorSpec(10181, 400, "consumer ack policy invalid")
    CONSUMER_REPLAY_POLICY_INVALID: Final = ErrorSpec(10182, 400, "consumer replay policy invalid")
    CONSUMER_ACK_WAIT_NEGATIVE: Final = ErrorSpec(
        10183, 400, "consumer ack wait needs to be positive"
    )
    CONSUMER_BACKOFF_NEGATIVE: Final = ErrorSpec(
        10184, 400, "consumer backoff needs to be positive"
    )
    REQUIRED_API_LEVEL: Final = ErrorSpec(10185, 412, "JetStream minimum api level required")
    MIRROR_WITH_SCHEDULES: Final = ErrorSpec(
        10186, 400, "stream mirrors can not also schedule messages"
    )
    SOURCE_WITH_SCHEDULES: Final = ErrorSpec(
        10187, 400, "stream source can not also schedule messages"
    )
    SCHEDULES_DISABLED: Final = ErrorSpec(10188, 400, "message schedules is disabled")
    SCHEDULES_PATTERN_INVALID: Final = ErrorSpec(10189, 400, "message schedules pattern is invalid")
    SCHEDULES_TARGET_INVALID: Final = ErrorSpec(10190, 400, "message schedules target is invalid")
    SCHEDULES_TTL_INVALID: Final = ErrorSpec(
        10191, 400, "message schedules invalid per-message TTL"
    )
    SCHEDULES_ROLLUP_INVALID: Final = ErrorSpec(10192, 400, "message schedules invalid rollup")
    STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID: Final = ErrorSpec(
        10193, 400, "missing sequence for expected last sequence per subject"
    )
    CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE: Final = ErrorSpec(
        10196, 400, "consumer can not have priority groups when policy is none"
    )
    CONSUMER_PINNED_TTL_WITHOUT_POLICY: Final = ErrorSpec(
        10197, 400, "PinnedTTL cannot be set when PriorityPolicy is none"
    )
    MIRROR_WITH_ATOMIC_PUBLISH: Final = ErrorSpec(
        10198, 400, "stream mirrors can not also use atomic publishing"
    )
    BATCH_TOO_LARGE: Final = ErrorSpec(10199, 400, "atomic publish batch is too large: {size}")
    BATCH_INVALID_COMMIT: Final = ErrorSpec(10200, 400, "atomic publish batch commit is invalid")
    BATCH_DUPLICATE_ID: Final = ErrorSpec(
        10201, 400, "atomic publish batch contains duplicate message id"
    )
    SCHEDULES_SOURCE_INVALID: Final = ErrorSpec(10203, 400, "message schedules source is invalid")
    CONSUMER_INVALID_RESET: Final = ErrorSpec(10204, 400, "invalid reset: {err}")
    FAST_BATCH_DISABLED: Final = ErrorSpec(10205, 400, "batch publish is disabled")
    FAST_BATCH_INVALID_PATTERN: Final = ErrorSpec(10206, 400, "batch publish pattern is invalid")
    FAST_BATCH_INVALID_ID: Final = ErrorSpec(10207, 400, "batch publish ID is invalid")
    FAST_BATCH_UNKNOWN: Final = ErrorSpec(10208, 400, "batch publish ID unknown")
    MIRROR_WITH_BATCH_PUBLISH: Final = ErrorSpec(
        10209, 400, "stream mirrors can not also use batch publishing"
    )
    BATCH_TOO_MANY: Final = ErrorSpec(10210, 429, "atomic publish too many inflight")
    FAST_BATCH_TOO_MANY: Final = ErrorSpec(10211, 429, "batch publish too many inflight")
    SCHEDULES_SCHEDULER_INVALID: Final = ErrorSpec(
        10212, 400, "message schedules invalid scheduler"
    )
    MIRROR_CONSUMER_INVALID: Final = ErrorSpec(
        10213, 400, "stream mirror consumer config is invalid"
    )
    MIRROR_CONSUMER_REQUIRES_FLOW_ACKS: Final = ErrorSpec(
        10214, 400, "stream mirror consumer requires flow control ack policy"
    )
    SOURCE_CONSUMER_INVALID: Final = ErrorSpec(
        10215, 400, "stream source consumer config is invalid"
    )
    SOURCE_CONSUMER_DUPLICATE: Final = ErrorSpec(
        10216, 400, "duplicate stream source consumer detected"
    )
    SOURCE_CONSUMER_REQUIRES_FLOW_ACKS: Final = ErrorSpec(
        10217, 400, "stream source consumer requires flow control ack policy"
    )
    CONSUMER_FLOW_ACKS_REQUIRE_PUSH: Final = ErrorSpec(
        10218, 400, "flow control ack policy requires a push based consumer"
    )
    CONSUMER_FLOW_ACKS_REQUIRE_FLOW_CONTROL: Final = ErrorSpec(
        10219, 400, "flow control ack policy requires flow control"
    )
    CONSUMER_FLOW_ACKS_REQUIRE_MAX_ACK_PENDING: Final = ErrorSpec(
        10220, 400, "flow control ack policy requires max ack pending"
    )
    CONSUMER_FLOW_ACKS_WITH_ACK_WAIT: Final = ErrorSpec(
        10221, 400, "flow control ack policy requires unset ack wait"
    )
    CONSUMER_FLOW_ACKS_WITH_MAX_DELIVER: Final = ErrorSpec(
        10222, 400, "flow control ack policy requires unset max deliver"
    )
    SCHEDULES_TIME_ZONE_INVALID: Final = ErrorSpec(
        10223, 400, "message schedules time zone is invalid"
    )
    MESSAGE_SOURCE_HEADER_NOT_ALLOWED: Final = ErrorSpec(
        10227, 400, "message stream source header is not allowed"
    )


BY_NUMBER: Final[dict[int, ErrorSpec]] = {
    row.err_code: row for row in vars(Errors).values() if isinstance(row, ErrorSpec)
}
