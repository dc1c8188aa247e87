"""Every limit, with its unit in its name and the behaviour when it is reached.

Values follow nats-server where it has the same limit, so that clients meet no surprise.
"""

from __future__ import annotations

from typing import Final

# The wire (nats-server: MAX_CONTROL_LINE_SIZE, MAX_PAYLOAD_SIZE).
CONTROL_LINE_BYTES_MAX: Final = 4096  # a longer line: -ERR 'maximum control line exceeded', closed
PAYLOAD_BYTES_MAX: Final = 1024 * 1024  # a larger payload: -ERR 'Maximum Payload Violation', closed
HEADER_BYTES_MAX: Final = 64 * 1024  # a larger header block on a stream: err_code 10097

# Documents of others: JSON and TOML.
NESTING_MAX: Final = 100  # of arrays and objects in each other; more is refused as invalid

# Sessions.
AUTH_TIMEOUT_S: Final = 2.0  # no CONNECT in time: -ERR 'Authentication Timeout', closed
TLS_TIMEOUT_S: Final = 2.0  # a handshake that takes longer is abandoned
WRITE_DEADLINE_S: Final = 10.0  # a reader that takes nothing for so long is closed
PING_INTERVAL_S: Final = 120.0  # two unanswered pings: -ERR 'Stale Connection', closed
PINGS_OUT_MAX: Final = 2
OUTBOUND_BYTES_MAX: Final = 64 * 1024 * 1024  # unsent output: -ERR 'Slow Consumer', closed
OUTBOUND_BLOCKED_BYTES: Final = 8 * 1024 * 1024  # unsent: stream deliveries wait, nothing is lost
CONNECTIONS_MAX: Final = 65_536  # one more: -ERR 'maximum connections exceeded', closed
SUBSCRIPTIONS_PER_CONNECTION_MAX: Final = 100_000  # one more: -ERR 'maximum subscriptions exceeded'
SUBSCRIPTION_TOKENS_MAX: Final = 256  # one more: -ERR 'Permissions Violation …, too many tokens'
READ_CHUNK_BYTES: Final = 256 * 1024  # the most that one read of a socket returns

# JetStream names and documents.
NAME_CHARS_MAX: Final = 255
DESCRIPTION_BYTES_MAX: Final = 4096
METADATA_BYTES_MAX: Final = 128 * 1024
METADATA_ENTRIES_MAX: Final = 10_000  # one more: refused as metadata that is too large
BACKOFF_STEPS_MAX: Final = 1000  # of a consumer; one more: err_code 10012
PLACEMENT_TAGS_MAX: Final = 1000  # of a stream; one more: err_code 10052
SUBJECT_TOKENS_MAX: Final = 25_000  # of all subjects, or filters, of a request; see limits.md
RULE_TOKENS_MAX: Final = 256  # of a transform's source, or destination with its arguments
RULES_TOKENS_MAX: Final = 4000  # of the transforms of all sources of a stream together
API_REQUEST_BYTES_MAX: Final = 1024 * 1024  # a larger request: err_code 10025
API_REQUEST_VALUES_MAX: Final = 20_000  # by their commas and brackets; more: err_code 10025
TEXT_CHARS_MAX: Final = 16 * 1024  # of one text in a request; a longer one: err_code 10025
LAST_PATTERNS_MAX: Final = 5000  # of one direct get; one more: status 413
NAMES_PER_PAGE: Final = 1024
INFOS_PER_PAGE: Final = 256
LISTED_PARTS_MAX: Final = (
    20_000  # subjects, and ten times sources, of a page of infos: it ends sooner
)
SUBJECTS_PER_PAGE: Final = 100_000
LOST_LISTED_MAX: Final = 1000  # sequences of lost messages in a stream's info: the first ones
PRIORITY_GROUP_CHARS_MAX: Final = 16

# JetStream engine.
MAX_WAITING_DEFAULT: Final = 512  # one more pull request: 409 Exceeded MaxWaiting
MAX_ACK_PENDING_DEFAULT: Final = 1000  # reached: no new deliveries until acks come
ACK_WAIT_S_DEFAULT: Final = 30.0
EPHEMERAL_INACTIVE_S_DEFAULT: Final = 5.0
DUPLICATE_WINDOW_S_DEFAULT: Final = 120.0
DUPLICATE_IDS_MAX: Final = 2_000_000  # per stream; one more: the oldest is forgotten too early
PINNED_TTL_S_DEFAULT: Final = 120.0
FLOW_WINDOW_BYTES_FIRST: Final = 2 * 1024 * 1024  # unanswered beyond: a push consumer waits
FLOW_WINDOW_BYTES_MAX: Final = 32 * 1024 * 1024  # the window doubles with each answer up to this
ATOMIC_BATCH_MESSAGES_MAX: Final = 1000  # one more in a batch: err_code 10199, batch abandoned
ATOMIC_BATCHES_PER_STREAM_MAX: Final = 50  # one more open batch: err_code 10210
ATOMIC_BATCHES_MAX: Final = 1000  # the same, for all streams together
ATOMIC_BATCHES_BYTES_MAX: Final = 256 * 1024 * 1024  # of all open ones; beyond: 10210, abandoned
ATOMIC_BATCH_IDLE_S: Final = 10.0  # a batch that receives no message for this long is abandoned
FAST_BATCHES_PER_STREAM_MAX: Final = 1000  # one more open fast batch: err_code 10211
FAST_BATCHES_MAX: Final = 50_000  # the same, for all streams together
FAST_BATCH_IDLE_S: Final = 10.0  # a fast batch that receives nothing for this long is forgotten
FAST_BATCH_FLOW_MAX: Final = 500  # messages between two acks, shared by a stream's batches
INGEST_PENDING_BYTES_MAX: Final = 128 * 1024 * 1024  # not durable yet: publishers are paused
INGEST_BEHIND_BYTES: Final = 8 * 1024 * 1024  # not durable yet: who has had its share is paused
INGEST_SHARE_BYTES: Final = 256 * 1024  # of one client, until a quarter of that is durable
STREAMS_MAX: Final = 10_000  # one more stream: err_code 10027
SOURCES_MAX: Final = 1000  # of a stream; one more: err_code 10052
SOURCE_RULES_MAX: Final = 400  # transforms of all sources of a stream; one more: err_code 10052
SNAPSHOTS_MAX: Final = 16  # backups under way in an account; one more: err_code 10064
SNAPSHOT_SLICE_BYTES: Final = 128 * 1024  # of messages, read and encoded in one turn of the loop
SNAPSHOT_INTEREST_S: Final = 2.0  # nobody listens for a backup after this long: 408 No Interest
SNAPSHOT_IDLE_S: Final = 5.0  # chunks unanswered for this long: 408 No Flow Response
RESTORES_MAX: Final = 16  # restores under way in an account; one more: err_code 10062
RESTORE_IDLE_S: Final = 5.0  # no chunk for this long: the restore is given up, nothing of it stays
RESTORE_PENDING_BYTES: Final = 256 * 1024  # on their way to the disk: restores wait
RESTORE_WAITING_BYTES_MAX: Final = (
    8 * 1024 * 1024
)  # unanswered chunks; beyond: the client is paused
CONSUMERS_PER_STREAM_MAX: Final = 100_000  # one more: err_code 10026

# Store.
SEGMENT_BYTES: Final = 64 * 1024 * 1024
COMMIT_BATCH_BYTES_MAX: Final = 4 * 1024 * 1024  # a larger batch is written in several commits
SCRUB_BYTES_S: Final = 2 * 1024 * 1024  # read of sealed files, to find damage; 2 % of a core
INDEX_BYTES: Final = 32 * 1024 * 1024  # of segments; more: those at rest are left to files
PAYLOAD_CACHE_BYTES_DEFAULT: Final = 64 * 1024 * 1024
