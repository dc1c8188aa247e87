-- The newest message of those that are the same by what a publisher says must be unique.

CREATE TABLE unique_keys (
    message_seq BIGINT PRIMARY KEY REFERENCES message (seq) ON DELETE CASCADE,
    channel_seq BIGINT NOT NULL,
    digest TEXT NOT NULL,
    UNIQUE (channel_seq, digest)
);
