-- Which process pushes to which consumer: one at a time, so that its limits hold whoever else there is.

CREATE TABLE push_node (
    node TEXT PRIMARY KEY,
    expires_us INTEGER NOT NULL,
    leaving INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE push_lane (
    consumer_seq INTEGER PRIMARY KEY REFERENCES consumer (seq) ON DELETE CASCADE,
    node TEXT NOT NULL
) STRICT;
