-- How many calls of a push consumer's endpoint took how long, and how many failed, in each slot of time.

CREATE TABLE push_calls (
    consumer_seq INTEGER NOT NULL REFERENCES consumer (seq) ON DELETE CASCADE,
    at_us INTEGER NOT NULL,
    bucket INTEGER NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (consumer_seq, at_us, bucket)
) STRICT;
CREATE INDEX push_calls_by_age ON push_calls (at_us);
