"""Every limit of the job service, with its unit in its name and the behaviour when it is reached."""

from __future__ import annotations

from typing import Final

# Names and documents.
ID_CHARS_MAX: Final = 255  # a longer id, or one with other characters than A-Z a-z 0-9 . _ -: 400
NAME_CHARS_MAX: Final = 255  # longer: 400
TOKEN_CHARS_MAX: Final = 255  # longer: 400
URL_CHARS_MAX: Final = 2048  # longer: 400
ORDERING_KEY_CHARS_MAX: Final = 255  # longer: 400
CONTENT_TYPE_CHARS_MAX: Final = 255  # longer: 400
REASON_CHARS_MAX: Final = 4096  # a longer reason of a failure is truncated
PAYLOAD_BYTES_MAX_DEFAULT: Final = 1024 * 1024  # a larger payload: 413
DOCUMENT_BYTES_MAX: Final = 1024 * 1024  # a larger JSON or form body: 413
METADATA_HEADERS_MAX: Final = 64  # more stored request headers: 400
METADATA_BYTES_MAX: Final = 16 * 1024  # more bytes of them: 400
SUBJECT_CHARS_MAX: Final = 1024  # a longer subject: 400
FILTER_PATTERNS_MAX: Final = 64  # more patterns of subjects, or of a header, in a filter: 400
FILTER_PATTERN_CHARS_MAX: Final = 1024  # a longer pattern, or name of a header, in a filter: 400
FILTER_PATTERNS_TOTAL_MAX: Final = 128  # more patterns in a filter in all: 400
SETTINGS_BYTES_MAX: Final = 16 * 1024  # more JSON of settings, with filter, of a consumer: 400
FILTER_HEADERS_MAX: Final = 16  # more headers in a filter: 400
PRIORITY_MAX: Final = 2**31 - 1  # a larger priority: 400

# Pages.
PAGE_SIZE: Final = 25  # definitions, messages, dead letters
JOBS_OF_MESSAGE_MAX: Final = (
    100  # jobs shown with one message; `JobsTruncated` says when there are more
)
QUEUED_JOBS_DEFAULT: Final = 25
QUEUED_JOBS_MAX: Final = 100  # a larger `limit` is clipped, as specified

PATH_CHARS_MAX: Final = 255  # a longer path into a payload: 400
PATH_STEPS_MAX: Final = 16  # more names and indexes in it: 400
PAYLOAD_PATHS_MAX: Final = 16  # more paths in a filter or a search by payload: 400
SEARCH_ROWS: Final = 1000  # jobs whose payloads one page, or one slice, of a search looks into
SEARCH_BYTES_MAX: Final = 8 * 1024 * 1024  # and bytes of these payloads; one in any case
UNIQUE_PARTS_MAX: Final = 16  # more parts by which a message is unique: 400
UNIQUE_S_MAX: Final = 366 * 86_400.0  # unique for longer: 400

# Access.
KEYS_MAX: Final = 1000  # more keys, with those that are over and not removed yet: 409
KEY_CHANNELS_MAX: Final = 64  # more patterns of channels in a key: 400
KEY_S_MIN: Final = 1.0  # a key that is valid for less: 400
KEY_S_MAX: Final = 10 * 366 * 86_400.0  # or for more: 400
KEY_SEEN_S: Final = 1.0  # so long a process goes on with what it has read of a key
KEYS_SEEN_MAX: Final = 1000  # keys that a process keeps so; more: it forgets all
AUDIT_REFUSALS_PER_MINUTE: Final = 120  # of one process; more are counted, not written
WRONG_TOKENS_PER_MINUTE: Final = (
    120  # of one address at one process; then 429 until the minute is over
)
WRONG_ADDRESSES_MAX: Final = 10_000  # addresses that are counted so; more: it forgets all
RIGHT_TOKENS_MAX: Final = (
    10_000  # requests whose tokens were right, and go on; more: it forgets all
)
AUDIT_TEXT_CHARS_MAX: Final = 1024  # a longer text in the audit log is cut

# Metrics.
METRICS_CONSUMERS_MAX: Final = 500  # in the order of their names; the others are counted
METRICS_SLICE: Final = 50  # of these are looked at in one transaction
METRICS_SERIES_MAX: Final = 2000  # of one metric; more are counted

# Leases.
PROGRESS_NOTE_CHARS_MAX: Final = 255  # a longer note about how far a job is: 400
CLAIM_MAX: Final = 500  # more jobs in one claim: 400
CLAIM_BYTES_MAX: Final = (
    16
    * 1024
    * 1024  # payloads of one claim, or of one list of queued jobs; the rest comes with the next,
    # and one job is always given
)
BATCH_MAX: Final = (
    500  # more items in one heartbeat, complete, fail, release, or batch of messages: 400
)
BATCH_BYTES_MAX: Final = 16 * 1024 * 1024  # a larger body of a batch of messages: 413
LEASE_S_MAX: Final = 3600.0  # a longer lease in one step: 400
LEASE_TOTAL_S_MAX: Final = (
    12 * 3600.0
)  # heartbeats are limited to this, counted from the claim; past it 409
WAIT_S_MAX: Final = 60.0  # a longer long poll: 400
INCREMENTAL_TIMEOUT_S_MAX: Final = 7 * 24 * 3600  # more: 400
RETRY_DELAY_S_MAX: Final = 7 * 24 * 3600.0  # a longer requested delay: 400; a computed one is cut

# Push.
RESPONSE_BYTES_MAX: Final = (
    64 * 1024
)  # the rest of a longer answer is not read; the connection is closed
RESPONSE_HEAD_BYTES_MAX: Final = 16 * 1024  # a longer head: the attempt fails
EXCERPT_CHARS_MAX: Final = 1024  # the part of the answer that an attempt stores
PUSH_TIMEOUT_S_DEFAULT: Final = 30.0
PUSH_TIMEOUT_S_MAX: Final = 300.0
PUSH_CONCURRENCY_DEFAULT: Final = 20
PUSH_CONCURRENCY_MAX: Final = 1000
PUSH_CALLS_MAX: Final = (
    2560  # under way in one process, fewer if the system allows few open files: jobs wait; a channel
    # has half of them at most
)
PUSH_CONNECTIONS_IDLE_MAX: Final = (
    256  # kept alive per process, with those by which a second address is tried; the oldest kept alive
    # is closed for one more
)
PUSH_CONNECTION_IDLE_S: Final = 30.0
PUSH_NODE_S: Final = 8.0  # a process that has said nothing for so long pushes no more: others do
PUSH_BEAT_S: Final = 2.0  # it says so as often
CALLS_SLOT_S: Final = 300  # calls of an endpoint are counted by as many seconds
CALLS_KEPT_S: Final = 86_400  # and so long; asked for more: 400
RETRY_AFTER_S_MAX: Final = 3600.0  # a longer Retry-After is treated as this

# Feeds.
FEED_BATCH_MAX: Final = 5000  # messages of a stream in one transaction
FEED_BYTES_MAX: Final = (
    16 * 1024 * 1024
)  # payloads of them; fewer are asked for, but one in any case
FEED_CALL_S: Final = 5.0  # a broker that answers no question within that is away
FEED_WAIT_S: Final = (
    5.0  # how long one request for messages waits, and how old what is told of a feed is
)
FEED_ROOM_S: Final = 0.5  # how often one looks for room whose channel has too many unfinished jobs
FEED_ACK_WAIT_S: Final = 10.0  # what a process that died had comes again after so long
FEED_AWAY_S: Final = 90.0  # a feed that nobody has told of for so long is shown as away

# Retries. By default an endpoint may be down for a day: 5 s doubled up to 6 h, each up to a fifth shorter,
# are 28 to 35 hours in all.
MAX_RETRIES_DEFAULT: Final = 17
RETRY_BASE_S_DEFAULT: Final = 5.0
RETRY_CAP_S_DEFAULT: Final = 6 * 3600.0
RETRY_JITTER_DEFAULT: Final = 0.2
MAX_RETRIES_MAX: Final = 1000
RETRY_DELAYS_S_DEFAULT: Final = (
    5.0,
    30.0,
    60.0,
)  # of a schedule that names none: the predecessor's

# The service.
RATIONAL_DELAY_S_DEFAULT: Final = 2.0
CONNECTION_TIMEOUT_S_DEFAULT: Final = 30.0
STOP_MARGIN_S: Final = (
    0.25  # what the specification calls stopTimeout is connection timeout plus this
)
SCHEDULE_MIN_DELAY_S_DEFAULT: Final = 120.0  # a message scheduled sooner: 412
SCHEDULES_MAX: Final = 1000  # more schedules of a channel: 409
SCHEDULE_ID_CHARS_MAX: Final = (
    200  # a longer id of a schedule, of which those of messages are made: 400
)
SCHEDULE_RUNS_MAX: Final = (
    100  # missed times of a schedule in one transaction, which ends with so many
)
SCHEDULE_LATE_S: Final = 60.0  # a time that is later was missed
SCHEDULE_UPCOMING: Final = 5  # times shown of a schedule
CRON_CHARS_MAX: Final = 255  # a longer pattern: 400
FAN_OUT_MAX: Final = 500
"""Jobs, messages times consumers, of one transaction that publishes; all of one message. The following
transactions make the others."""
TURN_ROWS: Final = 100  # a publication of more messages waits for other large writes of its process
SWEEP_ROWS: Final = 1000  # rows that one maintenance transaction changes
PAGES_GIVEN_BACK: Final = 4000  # SQLite: pages that one transaction takes off the file
WINDOW_BYTES_MAX: Final = (
    64
    * 1024
    * 1024  # payloads that retention holds in memory at once; more come in the next window
)
POLL_S: Final = 1.0  # a look for all who wait, should no wake-up have reached them
CONNECTIONS_MAX: Final = (
    4096  # HTTP connections of one process: beyond, the one that has waited longest for a request
    # is closed; if none waits, the new one is answered 503
)
DESCRIPTORS_KEPT: Final = (
    512  # open files that connections and push leave for database, feeds and logs; of fewer than 1,024
    # in all it is half
)
WRITES_PENDING_MAX: Final = (
    10_000  # more queued operations of a kind, and with SQLite more writes: 503
)
WRITES_PER_COMMIT_MAX: Final = 256
