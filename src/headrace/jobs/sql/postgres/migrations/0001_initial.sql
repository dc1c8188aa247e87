-- Times are microseconds since 1970, UTC, in columns named ..._us. Ids chosen by users are ..._id;
-- seq is ours: it orders, and is never reused.

CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

CREATE TABLE producer (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    producer_id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    token_hash TEXT NOT NULL,
    created_us BIGINT NOT NULL,
    updated_us BIGINT NOT NULL
);

CREATE TABLE channel (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    channel_id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    token_hash TEXT NOT NULL,
    created_us BIGINT NOT NULL,
    updated_us BIGINT NOT NULL
);

-- A consumer's token and signing secrets are kept as they are: both are used on every push.
CREATE TABLE consumer (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    channel_seq BIGINT NOT NULL REFERENCES channel (seq),
    consumer_id TEXT NOT NULL,
    name TEXT NOT NULL,
    token TEXT NOT NULL,
    callback_url TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('push', 'pull')),
    max_retries INTEGER NOT NULL,
    settings TEXT NOT NULL,
    secrets TEXT NOT NULL,
    paused INTEGER NOT NULL DEFAULT 0,
    disabled_us BIGINT,
    disabled_reason TEXT,
    failing_since_us BIGINT,
    created_us BIGINT NOT NULL,
    updated_us BIGINT NOT NULL,
    UNIQUE (channel_seq, consumer_id)
);

-- status: 101 waits for scheduled_us, 102 dispatched (its jobs were made in the same transaction).
CREATE TABLE message (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    channel_seq BIGINT NOT NULL REFERENCES channel (seq),
    producer_seq BIGINT REFERENCES producer (seq),
    message_id TEXT NOT NULL,
    payload BYTEA NOT NULL,
    content_type TEXT NOT NULL,
    priority INTEGER NOT NULL,
    ordering_key TEXT,
    headers TEXT NOT NULL,
    digest TEXT NOT NULL,
    status INTEGER NOT NULL CHECK (status IN (101, 102)),
    received_us BIGINT NOT NULL,
    dispatched_us BIGINT,
    scheduled_us BIGINT,
    UNIQUE (channel_seq, message_id)
);
CREATE INDEX message_by_channel ON message (channel_seq, status, seq);
CREATE INDEX message_scheduled ON message (channel_seq, seq) WHERE scheduled_us IS NOT NULL;
CREATE INDEX message_waiting ON message (scheduled_us, seq) WHERE status = 101;
CREATE INDEX message_by_producer ON message (producer_seq);

-- state: see states.State; hold: see states.Hold.
CREATE TABLE job (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_seq BIGINT NOT NULL REFERENCES message (seq),
    consumer_seq BIGINT NOT NULL REFERENCES consumer (seq) ON DELETE CASCADE,
    state SMALLINT NOT NULL CHECK (state IN (1001, 1002, 1003, 1004)),
    hold SMALLINT NOT NULL CHECK (hold IN (0, 1, 2)),
    priority INTEGER NOT NULL,
    ordering_key TEXT,
    retries INTEGER NOT NULL DEFAULT 0,
    claims INTEGER NOT NULL DEFAULT 0,
    due_us BIGINT NOT NULL,
    lease TEXT,
    lease_started_us BIGINT,
    lease_expires_us BIGINT,
    extra_s INTEGER NOT NULL DEFAULT 0,
    last_error TEXT,
    changed_us BIGINT NOT NULL,
    created_us BIGINT NOT NULL,
    CHECK ((state = 1002) = (lease_expires_us IS NOT NULL))
);
CREATE UNIQUE INDEX job_by_message ON job (message_seq, consumer_seq);
CREATE INDEX job_queued ON job (consumer_seq, hold, priority DESC, seq) WHERE state = 1001;
CREATE INDEX job_delayed ON job (consumer_seq, due_us) WHERE state = 1001 AND hold = 1;
CREATE INDEX job_leased ON job (lease_expires_us) WHERE state = 1002;
CREATE INDEX job_by_state ON job (consumer_seq, state, seq);
CREATE INDEX job_keyed ON job (consumer_seq, ordering_key, seq)
    WHERE ordering_key IS NOT NULL AND state IN (1001, 1002);

CREATE TABLE attempt (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_seq BIGINT NOT NULL REFERENCES job (seq) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('push', 'pull', 'expired')),
    started_us BIGINT NOT NULL,
    duration_us BIGINT NOT NULL,
    status INTEGER NOT NULL,
    error TEXT,
    excerpt TEXT
);
CREATE INDEX attempt_by_job ON attempt (job_seq, seq);
CREATE INDEX attempt_by_age ON attempt (started_us);

CREATE TABLE event (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at_us BIGINT NOT NULL,
    kind TEXT NOT NULL,
    channel_id TEXT,
    consumer_id TEXT,
    detail TEXT NOT NULL
);

-- What became of jobs, until it is published to a stream.
CREATE TABLE outcome (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at_us BIGINT NOT NULL,
    channel_id TEXT NOT NULL,
    consumer_id TEXT NOT NULL,
    message_id TEXT NOT NULL,
    job_seq BIGINT NOT NULL,
    state SMALLINT NOT NULL,
    retries INTEGER NOT NULL,
    error TEXT
);

CREATE TABLE leader (
    task TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    expires_us BIGINT NOT NULL
);

-- Counts are kept by the database itself, so no code path can let them drift. Every statement adds a few
-- rows; maintenance folds them. A row that all transactions update would make them wait for each other.
CREATE TABLE counter (
    scope TEXT NOT NULL,
    ref BIGINT NOT NULL,
    kind INTEGER NOT NULL,
    n BIGINT NOT NULL
);
CREATE INDEX counter_by_ref ON counter (scope, ref, kind);

CREATE FUNCTION jobs_inserted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO counter SELECT 'job', consumer_seq, state, count(*) FROM new_rows GROUP BY 2, 3;
    RETURN NULL;
END $$;
CREATE FUNCTION jobs_moved() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO counter
    SELECT 'job', consumer_seq, state, sum(n) FROM (
        SELECT consumer_seq, state, -1 AS n FROM old_rows
        UNION ALL SELECT consumer_seq, state, 1 FROM new_rows
    ) AS moved GROUP BY 2, 3 HAVING sum(n) <> 0;
    RETURN NULL;
END $$;
CREATE FUNCTION jobs_deleted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO counter SELECT 'job', consumer_seq, state, -count(*) FROM old_rows GROUP BY 2, 3;
    RETURN NULL;
END $$;
-- kind: 102 dispatched, 201 scheduled and waiting, 202 scheduled and dispatched.
CREATE FUNCTION messages_inserted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO counter
    SELECT 'message', channel_seq, status + CASE WHEN scheduled_us IS NULL THEN 0 ELSE 100 END, count(*)
    FROM new_rows GROUP BY 2, 3;
    RETURN NULL;
END $$;
CREATE FUNCTION messages_moved() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO counter
    SELECT 'message', channel_seq, kind, sum(n) FROM (
        SELECT channel_seq, status + CASE WHEN scheduled_us IS NULL THEN 0 ELSE 100 END AS kind, -1 AS n
        FROM old_rows
        UNION ALL
        SELECT channel_seq, status + CASE WHEN scheduled_us IS NULL THEN 0 ELSE 100 END, 1
        FROM new_rows
    ) AS moved GROUP BY 2, 3 HAVING sum(n) <> 0;
    RETURN NULL;
END $$;
CREATE FUNCTION messages_deleted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO counter
    SELECT 'message', channel_seq, status + CASE WHEN scheduled_us IS NULL THEN 0 ELSE 100 END, -count(*)
    FROM old_rows GROUP BY 2, 3;
    RETURN NULL;
END $$;

CREATE TRIGGER jobs_inserted AFTER INSERT ON job
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION jobs_inserted();
CREATE TRIGGER jobs_moved AFTER UPDATE ON job
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION jobs_moved();
CREATE TRIGGER jobs_deleted AFTER DELETE ON job
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION jobs_deleted();
CREATE TRIGGER messages_inserted AFTER INSERT ON message
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION messages_inserted();
CREATE TRIGGER messages_moved AFTER UPDATE ON message
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION messages_moved();
CREATE TRIGGER messages_deleted AFTER DELETE ON message
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION messages_deleted();

-- A queue table turns over: clean it up early and often.
ALTER TABLE job SET (
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE counter SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
