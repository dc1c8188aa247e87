-- Times are microseconds since 1970, UTC, in columns named ..._us. Ids chosen by users are ..._id;
-- seq is ours: it orders, and is never reused.

CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

CREATE TABLE producer (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    producer_id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    token_hash TEXT NOT NULL,
    created_us INTEGER NOT NULL,
    updated_us INTEGER NOT NULL
) STRICT;

CREATE TABLE channel (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    channel_id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    token_hash TEXT NOT NULL,
    created_us INTEGER NOT NULL,
    updated_us INTEGER NOT NULL
) STRICT;

-- A consumer's token and signing secrets are kept as they are: both are used on every push.
CREATE TABLE consumer (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    channel_seq INTEGER NOT NULL REFERENCES channel (seq),
    consumer_id TEXT NOT NULL,
    name TEXT NOT NULL,
    token TEXT NOT NULL,
    callback_url TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('push', 'pull')),
    max_retries INTEGER NOT NULL,
    settings TEXT NOT NULL,
    secrets TEXT NOT NULL,
    paused INTEGER NOT NULL DEFAULT 0,
    disabled_us INTEGER,
    disabled_reason TEXT,
    failing_since_us INTEGER,
    created_us INTEGER NOT NULL,
    updated_us INTEGER NOT NULL,
    UNIQUE (channel_seq, consumer_id)
) STRICT;

-- status: 101 waits for scheduled_us, 102 dispatched (its jobs were made in the same transaction).
CREATE TABLE message (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    channel_seq INTEGER NOT NULL REFERENCES channel (seq),
    producer_seq INTEGER REFERENCES producer (seq),
    message_id TEXT NOT NULL,
    payload BLOB NOT NULL,
    content_type TEXT NOT NULL,
    priority INTEGER NOT NULL,
    ordering_key TEXT,
    headers TEXT NOT NULL,
    digest TEXT NOT NULL,
    status INTEGER NOT NULL CHECK (status IN (101, 102)),
    received_us INTEGER NOT NULL,
    dispatched_us INTEGER,
    scheduled_us INTEGER,
    UNIQUE (channel_seq, message_id)
) STRICT;
CREATE INDEX message_by_channel ON message (channel_seq, status, seq);
CREATE INDEX message_scheduled ON message (channel_seq, seq) WHERE scheduled_us IS NOT NULL;
CREATE INDEX message_waiting ON message (scheduled_us, seq) WHERE status = 101;
CREATE INDEX message_by_producer ON message (producer_seq);

-- state: see states.State; hold: see states.Hold.
CREATE TABLE job (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    message_seq INTEGER NOT NULL REFERENCES message (seq),
    consumer_seq INTEGER NOT NULL REFERENCES consumer (seq) ON DELETE CASCADE,
    state INTEGER NOT NULL CHECK (state IN (1001, 1002, 1003, 1004)),
    hold INTEGER NOT NULL CHECK (hold IN (0, 1, 2)),
    priority INTEGER NOT NULL,
    ordering_key TEXT,
    retries INTEGER NOT NULL DEFAULT 0,
    claims INTEGER NOT NULL DEFAULT 0,
    due_us INTEGER NOT NULL,
    lease TEXT,
    lease_started_us INTEGER,
    lease_expires_us INTEGER,
    extra_s INTEGER NOT NULL DEFAULT 0,
    last_error TEXT,
    changed_us INTEGER NOT NULL,
    created_us INTEGER NOT NULL,
    CHECK ((state = 1002) = (lease_expires_us IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX job_by_message ON job (message_seq, consumer_seq);
CREATE INDEX job_queued ON job (consumer_seq, hold, priority DESC, seq) WHERE state = 1001;
CREATE INDEX job_delayed ON job (consumer_seq, due_us) WHERE state = 1001 AND hold = 1;
CREATE INDEX job_leased ON job (lease_expires_us) WHERE state = 1002;
CREATE INDEX job_by_state ON job (consumer_seq, state, seq);
CREATE INDEX job_keyed ON job (consumer_seq, ordering_key, seq)
    WHERE ordering_key IS NOT NULL AND state IN (1001, 1002);

CREATE TABLE attempt (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    job_seq INTEGER NOT NULL REFERENCES job (seq) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('push', 'pull', 'expired')),
    started_us INTEGER NOT NULL,
    duration_us INTEGER NOT NULL,
    status INTEGER NOT NULL,
    error TEXT,
    excerpt TEXT
) STRICT;
CREATE INDEX attempt_by_job ON attempt (job_seq, seq);
CREATE INDEX attempt_by_age ON attempt (started_us);

CREATE TABLE event (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at_us INTEGER NOT NULL,
    kind TEXT NOT NULL,
    channel_id TEXT,
    consumer_id TEXT,
    detail TEXT NOT NULL
) STRICT;

-- What became of jobs, until it is published to a stream.
CREATE TABLE outcome (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at_us INTEGER NOT NULL,
    channel_id TEXT NOT NULL,
    consumer_id TEXT NOT NULL,
    message_id TEXT NOT NULL,
    job_seq INTEGER NOT NULL,
    state INTEGER NOT NULL,
    retries INTEGER NOT NULL,
    error TEXT
) STRICT;

CREATE TABLE leader (
    task TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    expires_us INTEGER NOT NULL
) STRICT;

-- Counts are kept by the database itself, so no code path can let them drift.
CREATE TABLE counter (
    scope TEXT NOT NULL,
    ref INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (scope, ref, kind)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER job_inserted AFTER INSERT ON job BEGIN
    INSERT INTO counter VALUES ('job', NEW.consumer_seq, NEW.state, 1)
    ON CONFLICT DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER job_moved AFTER UPDATE OF state ON job WHEN OLD.state <> NEW.state BEGIN
    INSERT INTO counter VALUES ('job', OLD.consumer_seq, OLD.state, -1)
    ON CONFLICT DO UPDATE SET n = n - 1;
    INSERT INTO counter VALUES ('job', NEW.consumer_seq, NEW.state, 1)
    ON CONFLICT DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER job_deleted AFTER DELETE ON job BEGIN
    INSERT INTO counter VALUES ('job', OLD.consumer_seq, OLD.state, -1)
    ON CONFLICT DO UPDATE SET n = n - 1;
END;
-- kind: 102 dispatched, 201 scheduled and waiting, 202 scheduled and dispatched.
CREATE TRIGGER message_inserted AFTER INSERT ON message BEGIN
    INSERT INTO counter VALUES (
        'message', NEW.channel_seq, NEW.status + 100 * (NEW.scheduled_us IS NOT NULL), 1
    )
    ON CONFLICT DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER message_moved AFTER UPDATE OF status ON message WHEN OLD.status <> NEW.status BEGIN
    INSERT INTO counter VALUES (
        'message', OLD.channel_seq, OLD.status + 100 * (OLD.scheduled_us IS NOT NULL), -1
    )
    ON CONFLICT DO UPDATE SET n = n - 1;
    INSERT INTO counter VALUES (
        'message', NEW.channel_seq, NEW.status + 100 * (NEW.scheduled_us IS NOT NULL), 1
    )
    ON CONFLICT DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER message_deleted AFTER DELETE ON message BEGIN
    INSERT INTO counter VALUES (
        'message', OLD.channel_seq, OLD.status + 100 * (OLD.scheduled_us IS NOT NULL), -1
    )
    ON CONFLICT DO UPDATE SET n = n - 1;
END;
