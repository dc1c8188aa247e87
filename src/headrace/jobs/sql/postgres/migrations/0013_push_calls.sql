-- How many calls of a push consumer's endpoint took how long, and how many failed, in each slot of time.

CREATE TABLE push_calls (
    consumer_seq BIGINT NOT NULL REFERENCES consumer (seq) ON DELETE CASCADE,
    at_us BIGINT NOT NULL,
    bucket SMALLINT NOT NULL,
    n BIGINT NOT NULL,
    PRIMARY KEY (consumer_seq, at_us, bucket)
);
CREATE INDEX push_calls_by_age ON push_calls (at_us);
