-- Channels fed by a stream: up to where each feed has made messages of it. sequence and stored_ns are those of
-- the last message; sequence 0: before all, -1: never fed. marks: those of some earlier ones, as JSON. again: from
-- where to make jobs again, as JSON; that ends after again_until. standing: what was seen last, as JSON, at seen_us.
CREATE TABLE feed (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    channel_id TEXT NOT NULL,
    feed_id TEXT NOT NULL,
    stream TEXT NOT NULL,
    sequence INTEGER NOT NULL DEFAULT -1,
    stored_ns INTEGER NOT NULL DEFAULT 0,
    marks TEXT NOT NULL DEFAULT '[]',
    again TEXT,
    again_until INTEGER NOT NULL DEFAULT 0,
    standing TEXT,
    seen_us INTEGER NOT NULL DEFAULT 0,
    UNIQUE (channel_id, feed_id)
) STRICT;
