-- Channels that live in a stream, and where their consumers are in it.

-- name: set_channel_stream
UPDATE channel SET stream = :stream, updated_us = :updated WHERE seq = :seq;

-- name: any_message
SELECT 1 FROM message WHERE channel_seq = :channel_seq LIMIT 1;

-- name: any_schedule
SELECT 1 FROM schedule WHERE channel_seq = :channel_seq LIMIT 1;

-- name: insert_cursor
INSERT INTO stream_cursors (consumer_seq, stream, durable, created, acked_seq, replay)
VALUES (:consumer_seq, :stream, :durable, :created, :acked_seq, :replay)
ON CONFLICT (consumer_seq) DO NOTHING;

-- name: get_cursor
SELECT * FROM stream_cursors WHERE consumer_seq = :consumer_seq;

-- name: cursors_of_channel
-- Of the consumers of a channel, with what may hold each up.
SELECT stream_cursors.*, consumer.consumer_id, consumer.paused, consumer.disabled_reason,
    consumer.failing_since_us
FROM stream_cursors JOIN consumer ON consumer.seq = stream_cursors.consumer_seq
WHERE consumer.channel_seq = :channel_seq AND consumer.removed_us IS NULL
ORDER BY consumer.consumer_id LIMIT :n;

-- name: move_cursor
UPDATE stream_cursors SET created = :created, acked_seq = :acked_seq
WHERE consumer_seq = :consumer_seq;

-- name: ask_replay
UPDATE stream_cursors SET replay = :replay WHERE consumer_seq = :consumer_seq;

-- name: end_replay
-- Unless another one was asked for meanwhile.
UPDATE stream_cursors SET replay = NULL WHERE consumer_seq = :consumer_seq AND replay = :replay;

-- name: version_of_consumer
SELECT updated_us FROM consumer WHERE seq = :seq;

-- name: version_consumer
UPDATE consumer SET updated_us = :updated WHERE seq = :seq;

-- name: forgotten_cursors
-- Whose consumers were deleted.
SELECT stream_cursors.* FROM stream_cursors
LEFT JOIN consumer ON consumer.seq = stream_cursors.consumer_seq
WHERE consumer.seq IS NULL OR consumer.removed_us IS NOT NULL
ORDER BY stream_cursors.consumer_seq LIMIT :n;

-- name: drop_cursor
DELETE FROM stream_cursors WHERE consumer_seq = :consumer_seq;

-- name: unfinished_keys
-- The ordering keys of which a consumer has unfinished jobs.
SELECT DISTINCT ordering_key FROM job
WHERE consumer_seq = :consumer_seq AND ordering_key IS NOT NULL AND state IN (1001, 1002) LIMIT :n;

-- name: any_of_key
SELECT 1 FROM job
WHERE consumer_seq = :consumer_seq AND ordering_key = :ordering_key AND state IN (1001, 1002) LIMIT 1;

-- name: adopt_job
-- A message of a stream becomes a job of one consumer, unless it is one already.
INSERT INTO job (
    message_seq, consumer_seq, state, hold, priority, ordering_key, claims, due_us, lease,
    lease_started_us, lease_expires_us, changed_us, created_us
) VALUES (
    :message_seq, :consumer_seq, :state, :hold, 0, :ordering_key, :claims, :now, :lease,
    :lease_started, :lease_expires, :now, :created
)
ON CONFLICT (message_seq, consumer_seq) DO NOTHING RETURNING seq;

-- name: job_of_message
SELECT seq FROM job WHERE message_seq = :message_seq AND consumer_seq = :consumer_seq;
