-- What is published again and again, by cron; next_us is the next time that is to be carried out.

CREATE TABLE schedule (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    channel_seq INTEGER NOT NULL REFERENCES channel (seq) ON DELETE CASCADE,
    schedule_id TEXT NOT NULL,
    cron TEXT NOT NULL,
    time_zone TEXT NOT NULL,
    missed TEXT NOT NULL CHECK (missed IN ('once', 'all', 'skip')),
    paused INTEGER NOT NULL,
    payload BLOB NOT NULL,
    content_type TEXT NOT NULL,
    priority INTEGER NOT NULL,
    ordering_key TEXT,
    headers TEXT NOT NULL,
    next_us INTEGER,
    last_us INTEGER,
    created_us INTEGER NOT NULL,
    updated_us INTEGER NOT NULL,
    UNIQUE (channel_seq, schedule_id)
) STRICT;
CREATE INDEX schedule_due ON schedule (next_us) WHERE paused = 0;
