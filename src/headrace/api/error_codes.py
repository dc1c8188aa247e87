"""The numbers of JetStream's errors by name, for ``error.err_code == ErrorCode.…``.

Written by ``scripts/make-keywords`` from ``Errors``: change the fields there.
"""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """What ``JetStreamApiError.err_code`` may be."""

    ACCOUNT_RESOURCES_EXCEEDED = 10002
    """Resource limits exceeded for account."""
    BAD_REQUEST = 10003
    """Bad request."""
    CLUSTER_REQUIRED = 10010
    """JetStream clustering support required."""
    CONSUMER_CREATE = 10012
    """The text varies."""
    CONSUMER_NAME_EXISTS = 10013
    """Consumer name already in use."""
    CONSUMER_NOT_FOUND = 10014
    """Consumer not found."""
    CONSUMER_DURABLE_NAME_MISMATCH = 10017
    """Consumer name in subject does not match durable name in request."""
    SNAPSHOT_DELIVER_SUBJECT_INVALID = 10015
    """Deliver subject not valid."""
    CONSUMER_EPHEMERAL_WITH_DURABLE_IN_SUBJECT = 10018
    """Consumer expected to be durable but a durable name was not set."""
    CONSUMER_EPHEMERAL_WITH_DURABLE_NAME = 10020
    """Consumer expected to be ephemeral but a durable name was set in request."""
    STREAM_EXTERNAL_API_OVERLAP = 10021
    """Stream external api prefix {prefix} must not overlap with {subject}."""
    STREAM_EXTERNAL_DELIVER_OVERLAP = 10022
    """Stream external delivery prefix {prefix} overlaps with stream subject {subject}."""
    INSUFFICIENT_RESOURCES = 10023
    """Insufficient resources."""
    STREAM_EXTERNAL_DELIVER_INVALID = 10024
    """Stream external delivery prefix {prefix} must not contain wildcards."""
    INVALID_JSON = 10025
    """Invalid JSON: {err}."""
    MAX_CONSUMERS = 10026
    """Maximum consumers limit reached."""
    MAX_STREAMS = 10027
    """Maximum number of streams reached."""
    MEMORY_RESOURCES_EXCEEDED = 10028
    """Insufficient memory resources available."""
    MIRROR_CONSUMER_SETUP_FAILED = 10029
    """The text varies."""
    MIRROR_MAX_MESSAGE_SIZE_TOO_BIG = 10030
    """Stream mirror must have max message size >= source."""
    MIRROR_WITH_SOURCES = 10031
    """Stream mirrors can not also contain other sources."""
    MIRROR_WITH_SUBJECTS = 10034
    """Stream mirrors can not contain subjects."""
    NO_MESSAGE_FOUND = 10037
    """No message found."""
    NOT_EMPTY_REQUEST = 10038
    """Expected an empty request payload."""
    NOT_ENABLED_FOR_ACCOUNT = 10039
    """JetStream not enabled for account."""
    SEQUENCE_NOT_FOUND = 10043
    """Sequence {seq} not found."""
    SOURCE_CONSUMER_SETUP_FAILED = 10045
    """The text varies."""
    SOURCE_MAX_MESSAGE_SIZE_TOO_BIG = 10046
    """Stream source must have max message size >= target."""
    STORAGE_RESOURCES_EXCEEDED = 10047
    """Insufficient storage resources available."""
    STREAM_CREATE = 10049
    """The text varies."""
    STREAM_DELETE = 10050
    """The text varies."""
    STREAM_GENERAL = 10051
    """The text varies."""
    STREAM_INVALID_CONFIG = 10052
    """The text varies."""
    STREAM_MESSAGE_EXCEEDS_MAXIMUM = 10054
    """Message size exceeds maximum allowed."""
    STREAM_MIRROR_NOT_UPDATABLE = 10055
    """Stream mirror configuration can not be updated."""
    STREAM_NAME_MISMATCH = 10056
    """Stream name in subject does not match request."""
    STREAM_MSG_DELETE_FAILED = 10057
    """The text varies."""
    STREAM_NAME_EXISTS = 10058
    """Stream name already in use with a different configuration."""
    STREAM_NOT_FOUND = 10059
    """Stream not found."""
    STREAM_NOT_MATCH = 10060
    """Expected stream does not match."""
    STREAM_RESTORE = 10062
    """Restore failed: {err}."""
    STREAM_SNAPSHOT = 10064
    """Snapshot failed: {err}."""
    STREAM_SUBJECT_OVERLAP = 10065
    """Subjects overlap with an existing stream."""
    STREAM_UPDATE = 10069
    """The text varies."""
    STREAM_WRONG_LAST_MSG_ID = 10070
    """Wrong last msg ID: {id}."""
    STREAM_WRONG_LAST_SEQUENCE = 10071
    """Wrong last sequence: {seq}."""
    STREAM_REPLICAS_NOT_SUPPORTED = 10074
    """Replicas > 1 not supported in non-clustered mode."""
    STREAM_STORE_FAILED = 10077
    """The text varies."""
    CONSUMER_DELIVER_TO_WILDCARDS = 10079
    """Consumer deliver subject has wildcards."""
    CONSUMER_PUSH_MAX_WAITING = 10080
    """Consumer in push mode can not set max waiting."""
    CONSUMER_DELIVER_CYCLE = 10081
    """Consumer deliver subject forms a cycle."""
    CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED = 10082
    """Consumer requires ack policy for max ack pending."""
    CONSUMER_SMALL_HEARTBEAT = 10083
    """Consumer idle heartbeat needs to be >= 100ms."""
    CONSUMER_PULL_REQUIRES_ACK = 10084
    """Consumer in pull mode requires explicit ack policy on workqueue stream."""
    CONSUMER_PULL_WITH_RATE_LIMIT = 10086
    """Consumer in pull mode can not have rate limit set."""
    CONSUMER_HEARTBEAT_REQUIRES_PUSH = 10088
    """Consumer idle heartbeat requires a push based consumer."""
    CONSUMER_FLOW_CONTROL_REQUIRES_PUSH = 10089
    """Consumer flow control requires a push based consumer."""
    CONSUMER_DIRECT_REQUIRES_PUSH = 10090
    """Consumer direct requires a push based consumer."""
    CONSUMER_DIRECT_REQUIRES_EPHEMERAL = 10091
    """Consumer direct requires an ephemeral consumer."""
    CONSUMER_INVALID_POLICY = 10094
    """The text varies."""
    CONSUMER_INVALID_SAMPLING = 10095
    """Failed to parse consumer sampling configuration: {err}."""
    STREAM_HEADER_EXCEEDS_MAXIMUM = 10097
    """Header size exceeds maximum allowed of 64k."""
    CONSUMER_WQ_REQUIRES_EXPLICIT_ACK = 10098
    """Workqueue stream requires explicit ack."""
    CONSUMER_WQ_MULTIPLE_UNFILTERED = 10099
    """Multiple non-filtered consumers not allowed on workqueue stream."""
    CONSUMER_WQ_NOT_UNIQUE = 10100
    """Filtered consumer not unique on workqueue stream."""
    CONSUMER_WQ_NOT_DELIVER_ALL = 10101
    """Consumer must be deliver all on workqueue stream."""
    CONSUMER_NAME_TOO_LONG = 10102
    """Consumer name is too long, maximum allowed is {max}."""
    CONSUMER_DESCRIPTION_TOO_LONG = 10107
    """Consumer description is too long, maximum allowed is {max}."""
    CONSUMER_FC_REQUIRES_HEARTBEAT = 10108
    """Consumer with flow control also needs heartbeats."""
    STREAM_SEALED = 10109
    """Invalid operation on sealed stream."""
    STREAM_PURGE_FAILED = 10110
    """The text varies."""
    STREAM_ROLLUP_FAILED = 10111
    """The text varies."""
    CONSUMER_INVALID_DELIVER_SUBJECT = 10112
    """Invalid push consumer deliver subject."""
    STREAM_MAX_BYTES_REQUIRED = 10113
    """Account requires a stream config to have max bytes set."""
    CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL = 10115
    """Consumer max request expires needs to be >= 1ms."""
    CONSUMER_MAX_DELIVER_BACKOFF = 10116
    """Max deliver is required to be > length of backoff values."""
    NO_LIMITS = 10120
    """No JetStream default or applicable tiered limit present."""
    CONSUMER_MAX_PENDING_ACK_EXCESS = 10121
    """Consumer max ack pending exceeds system limit of {limit}."""
    STREAM_MAX_BYTES_EXCEEDED = 10122
    """Stream max bytes exceeds account limit max stream bytes."""
    CONSUMER_MAX_REQUEST_BATCH_EXCEEDED = 10125
    """Consumer max request batch exceeds server limit of {limit}."""
    CONSUMER_REPLICAS_EXCEEDS_STREAM = 10126
    """Consumer config replica count exceeds parent stream."""
    CONSUMER_NAME_PATH_SEPARATORS = 10127
    """Consumer name can not contain path separators."""
    STREAM_NAME_EXISTS_RESTORE = 10130
    """Stream name already in use, cannot restore."""
    CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH = 10131
    """Consumer create request did not match filtered subject from create subject."""
    CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH = 10132
    """Consumer Durable and Name have to be equal if both are provided."""
    REPLICAS_NEGATIVE = 10133
    """Replicas count cannot be negative."""
    CONSUMER_METADATA_LENGTH = 10135
    """Consumer metadata exceeds maximum size of {limit}."""
    CONSUMER_DUPLICATE_FILTERS = 10136
    """Consumer cannot have both FilterSubject and FilterSubjects specified."""
    CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED = 10137
    """Consumer with multiple subject filters cannot use subject based API."""
    CONSUMER_OVERLAPPING_FILTERS = 10138
    """Consumer subject filters cannot overlap."""
    CONSUMER_EMPTY_FILTER = 10139
    """Consumer filter in FilterSubjects cannot be empty."""
    SOURCE_DUPLICATE = 10140
    """Duplicate source configuration detected."""
    SOURCE_INVALID_NAME = 10141
    """Sourced stream name is invalid."""
    MIRROR_INVALID_NAME = 10142
    """Mirrored stream name is invalid."""
    MIRROR_WITH_FIRST_SEQ = 10143
    """Stream mirrors can not have first sequence configured."""
    SOURCE_MULTIPLE_FILTERS = 10144
    """Source with multiple subject transforms cannot also have a single subject filter."""
    SOURCE_INVALID_FILTER = 10145
    """Source transform source: {err}."""
    SOURCE_INVALID_TRANSFORM = 10146
    """Source transform: {err}."""
    SOURCE_OVERLAPPING_FILTERS = 10147
    """Source filters can not overlap."""
    CONSUMER_ALREADY_EXISTS = 10148
    """Consumer already exists."""
    CONSUMER_DOES_NOT_EXIST = 10149
    """Consumer does not exist."""
    MIRROR_MULTIPLE_FILTERS = 10150
    """Mirror with multiple subject transforms cannot also have a single subject filter."""
    MIRROR_INVALID_FILTER = 10151
    """Mirror transform source: {err}."""
    MIRROR_OVERLAPPING_FILTERS = 10152
    """Mirror subject filters can not overlap."""
    CONSUMER_INACTIVE_THRESHOLD_EXCESS = 10153
    """Consumer inactive threshold exceeds system limit of {limit}."""
    MIRROR_INVALID_TRANSFORM = 10154
    """Mirror transform: {err}."""
    STREAM_TRANSFORM_INVALID_SOURCE = 10155
    """Stream transform source: {err}."""
    STREAM_TRANSFORM_INVALID_DESTINATION = 10156
    """Stream transform: {err}."""
    PEDANTIC = 10157
    """Pedantic mode: {err}."""
    CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP = 10159
    """Setting PriorityPolicy requires at least one PriorityGroup to be set."""
    CONSUMER_INVALID_PRIORITY_GROUP = 10160
    """Provided priority group does not exist for this consumer."""
    CONSUMER_EMPTY_GROUP_NAME = 10161
    """Group name cannot be an empty string."""
    CONSUMER_INVALID_GROUP_NAME = 10162
    """Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ and may not exceed 16 characters."""
    STREAM_WRONG_LAST_SEQUENCE_CONSTANT = 10164
    """Wrong last sequence."""
    MESSAGE_TTL_INVALID = 10165
    """Invalid per-message TTL."""
    MESSAGE_TTL_DISABLED = 10166
    """Per-message TTL is disabled."""
    MESSAGE_INCR_DISABLED = 10168
    """Message counters is disabled."""
    MESSAGE_INCR_MISSING = 10169
    """Message counter increment is missing."""
    MESSAGE_INCR_PAYLOAD = 10170
    """Message counter has payload."""
    MESSAGE_INCR_INVALID = 10171
    """Message counter increment is invalid."""
    MESSAGE_COUNTER_BROKEN = 10172
    """Message counter is broken."""
    MIRROR_WITH_COUNTERS = 10173
    """Stream mirrors can not also calculate counters."""
    BATCH_DISABLED = 10174
    """Atomic publish is disabled."""
    BATCH_MISSING_SEQUENCE = 10175
    """Atomic publish sequence is missing."""
    BATCH_INCOMPLETE = 10176
    """Atomic publish batch is incomplete."""
    BATCH_UNSUPPORTED_HEADER = 10177
    """Atomic publish unsupported header used: {header}."""
    CONSUMER_PUSH_WITH_PRIORITY_GROUP = 10178
    """Priority groups can not be used with push consumers."""
    BATCH_INVALID_ID = 10179
    """Atomic publish batch ID is invalid."""
    CONSUMER_ACK_WAIT_NEGATIVE = 10183
    """Consumer ack wait needs to be positive."""
    CONSUMER_BACKOFF_NEGATIVE = 10184
    """Consumer backoff needs to be positive."""
    REQUIRED_API_LEVEL = 10185
    """JetStream minimum api level required."""
    MIRROR_WITH_SCHEDULES = 10186
    """Stream mirrors can not also schedule messages."""
    SOURCE_WITH_SCHEDULES = 10187
    """Stream source can not also schedule messages."""
    SCHEDULES_DISABLED = 10188
    """Message schedules is disabled."""
    SCHEDULES_PATTERN_INVALID = 10189
    """Message schedules pattern is invalid."""
    SCHEDULES_TARGET_INVALID = 10190
    """Message schedules target is invalid."""
    SCHEDULES_TTL_INVALID = 10191
    """Message schedules invalid per-message TTL."""
    SCHEDULES_ROLLUP_INVALID = 10192
    """Message schedules invalid rollup."""
    STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID = 10193
    """Missing sequence for expected last sequence per subject."""
    CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE = 10196
    """Consumer can not have priority groups when policy is none."""
    CONSUMER_PINNED_TTL_WITHOUT_POLICY = 10197
    """PinnedTTL cannot be set when PriorityPolicy is none."""
    MIRROR_WITH_ATOMIC_PUBLISH = 10198
    """Stream mirrors can not also use atomic publishing."""
    BATCH_TOO_LARGE = 10199
    """Atomic publish batch is too large: {size}."""
    BATCH_INVALID_COMMIT = 10200
    """Atomic publish batch commit is invalid."""
    BATCH_DUPLICATE_ID = 10201
    """Atomic publish batch contains duplicate message id."""
    SCHEDULES_SOURCE_INVALID = 10203
    """Message schedules source is invalid."""
    CONSUMER_INVALID_RESET = 10204
    """Invalid reset: {err}."""
    FAST_BATCH_DISABLED = 10205
    """Batch publish is disabled."""
    FAST_BATCH_INVALID_PATTERN = 10206
    """Batch publish pattern is invalid."""
    FAST_BATCH_INVALID_ID = 10207
    """Batch publish ID is invalid."""
    FAST_BATCH_UNKNOWN = 10208
    """Batch publish ID unknown."""
    MIRROR_WITH_BATCH_PUBLISH = 10209
    """Stream mirrors can not also use batch publishing."""
    BATCH_TOO_MANY = 10210
    """Atomic publish too many inflight."""
    FAST_BATCH_TOO_MANY = 10211
    """Batch publish too many inflight."""
    SCHEDULES_SCHEDULER_INVALID = 10212
    """Message schedules invalid scheduler."""
    MIRROR_CONSUMER_INVALID = 10213
    """Stream mirror consumer config is invalid."""
    MIRROR_CONSUMER_REQUIRES_FLOW_ACKS = 10214
    """Stream mirror consumer requires flow control ack policy."""
    SOURCE_CONSUMER_INVALID = 10215
    """Stream source consumer config is invalid."""
    SOURCE_CONSUMER_DUPLICATE = 10216
    """Duplicate stream source consumer detected."""
    SOURCE_CONSUMER_REQUIRES_FLOW_ACKS = 10217
    """Stream source consumer requires flow control ack policy."""
    CONSUMER_FLOW_ACKS_REQUIRE_PUSH = 10218
    """Flow control ack policy requires a push based consumer."""
    CONSUMER_FLOW_ACKS_REQUIRE_FLOW_CONTROL = 10219
    """Flow control ack policy requires flow control."""
    CONSUMER_FLOW_ACKS_REQUIRE_MAX_ACK_PENDING = 10220
    """Flow control ack policy requires max ack pending."""
    CONSUMER_FLOW_ACKS_WITH_ACK_WAIT = 10221
    """Flow control ack policy requires unset ack wait."""
    CONSUMER_FLOW_ACKS_WITH_MAX_DELIVER = 10222
    """Flow control ack policy requires unset max deliver."""
    SCHEDULES_TIME_ZONE_INVALID = 10223
    """Message schedules time zone is invalid."""
    MESSAGE_SOURCE_HEADER_NOT_ALLOWED = 10227
    """Message stream source header is not allowed."""
