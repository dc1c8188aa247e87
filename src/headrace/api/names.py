"""Subjects, response types, header names and status texts of the JetStream API, spelled once."""

from __future__ import annotations

from typing import Final

API_PREFIX: Final = "$JS.API"
RESPONSE_TYPE_PREFIX: Final = "io.nats.jetstream.api.v1."

# Headers of published messages.
MSG_ID: Final = "Nats-Msg-Id"
EXPECTED_STREAM: Final = "Nats-Expected-Stream"
EXPECTED_LAST_SEQ: Final = "Nats-Expected-Last-Sequence"
EXPECTED_LAST_SUBJECT_SEQ: Final = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_LAST_SUBJECT_SEQ_SUBJECT: Final = "Nats-Expected-Last-Subject-Sequence-Subject"
EXPECTED_LAST_MSG_ID: Final = "Nats-Expected-Last-Msg-Id"
ROLLUP: Final = "Nats-Rollup"
TTL: Final = "Nats-TTL"
BATCH_ID: Final = "Nats-Batch-Id"
BATCH_SEQUENCE: Final = "Nats-Batch-Sequence"
BATCH_COMMIT: Final = "Nats-Batch-Commit"
INCREMENT: Final = "Nats-Incr"
SCHEDULE: Final = "Nats-Schedule"
SCHEDULE_TARGET: Final = "Nats-Schedule-Target"
SCHEDULE_SOURCE: Final = "Nats-Schedule-Source"
SCHEDULE_TTL: Final = "Nats-Schedule-TTL"
SCHEDULE_TIME_ZONE: Final = "Nats-Schedule-Time-Zone"

# Headers of delivered messages and statuses.
STREAM: Final = "Nats-Stream"
SUBJECT: Final = "Nats-Subject"
SEQUENCE: Final = "Nats-Sequence"
TIME_STAMP: Final = "Nats-Time-Stamp"
LAST_SEQUENCE: Final = "Nats-Last-Sequence"
NUM_PENDING: Final = "Nats-Num-Pending"
UP_TO_SEQUENCE: Final = "Nats-UpTo-Sequence"
PIN_ID: Final = "Nats-Pin-Id"
PENDING_MESSAGES: Final = "Nats-Pending-Messages"
PENDING_BYTES: Final = "Nats-Pending-Bytes"
LAST_CONSUMER: Final = "Nats-Last-Consumer"
CONSUMER_STALLED: Final = "Nats-Consumer-Stalled"

# Status lines (code, text).
IDLE_HEARTBEAT: Final = (100, "Idle Heartbeat")
FLOW_CONTROL: Final = (100, "FlowControl Request")
EOB: Final = (204, "EOB")
NO_MESSAGES: Final = (404, "No Messages")
MESSAGE_NOT_FOUND: Final = (404, "Message Not Found")
NO_RESULTS: Final = (404, "No Results")
REQUEST_TIMEOUT: Final = (408, "Request Timeout")
REQUESTS_PENDING: Final = (408, "Requests Pending")
EMPTY_REQUEST: Final = (408, "Empty Request")
MALFORMED_REQUEST: Final = (408, "Malformed Request")
BAD_DIRECT_REQUEST: Final = (408, "Bad Request")
MESSAGE_SIZE_EXCEEDS: Final = (409, "Message Size Exceeds MaxBytes")
BATCH_COMPLETED: Final = (409, "Batch Completed")
EXCEEDED_MAX_WAITING: Final = (409, "Exceeded MaxWaiting")
CONSUMER_DELETED: Final = (409, "Consumer Deleted")
CONSUMER_IS_PUSH: Final = (409, "Consumer is push based")
SERVER_SHUTDOWN: Final = (409, "Server Shutdown")
LEADERSHIP_CHANGE: Final = (409, "Leadership Change")
REQUIRED_LEVEL: Final = (412, "Required Api Level")
TOO_MANY_RESULTS: Final = (413, "Too Many Results")
PIN_ID_MISMATCH: Final = (423, "Nats-Pin-Id mismatch")
WRONG_PIN_ID: Final = (423, "Nats-Wrong-Pin-Id")
