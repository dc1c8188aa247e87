-- A channel that lives in a stream: its name and subjects, as JSON.
ALTER TABLE channel ADD COLUMN stream TEXT;

-- The durable consumer of each push consumer of such a channel. It stays when the consumer is deleted, until
-- the broker has deleted the durable one. acked_seq: all up to it were done with when that was noted last;
-- created: the stream of this name that it counts in; replay: from where to deliver again, as JSON.
CREATE TABLE stream_cursors (
    consumer_seq INTEGER PRIMARY KEY,
    stream TEXT NOT NULL,
    durable TEXT NOT NULL,
    created TEXT,
    acked_seq INTEGER,
    replay TEXT
) STRICT;
