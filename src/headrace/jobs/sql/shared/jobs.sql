-- Jobs: reading them, and the small writes. Claims and batches differ by dialect.

-- name: list_queued
-- All QUEUED jobs, as specified: first those that can be claimed, then delayed ones; FIFO within a priority.
SELECT job.seq, job.priority, job.extra_s, job.hold, message.message_id, message.payload, message.headers,
    message.content_type
FROM job JOIN message ON message.seq = job.message_seq
WHERE job.consumer_seq = :consumer_seq AND job.state = 1001
ORDER BY job.consumer_seq, job.hold, job.priority DESC, job.seq LIMIT :n;

-- name: list_queued_sizes
-- How much the rows of the list above would carry, in the same order.
SELECT length(message.payload) AS size
FROM job JOIN message ON message.seq = job.message_seq
WHERE job.consumer_seq = :consumer_seq AND job.state = 1001
ORDER BY job.consumer_seq, job.hold, job.priority DESC, job.seq LIMIT :n;

-- name: get_job
SELECT job.*, consumer.consumer_id, consumer.name AS consumer_name, consumer.callback_url,
    consumer.kind, consumer.max_retries, message.message_id, producer.producer_id, channel.channel_id
FROM job
JOIN consumer ON consumer.seq = job.consumer_seq
JOIN channel ON channel.seq = consumer.channel_seq
JOIN message ON message.seq = job.message_seq
LEFT JOIN producer ON producer.seq = message.producer_seq
WHERE job.seq = :seq;

-- name: job_at
-- The job of this number, or the next one.
SELECT seq, created_us FROM job WHERE seq >= :seq ORDER BY seq LIMIT 1;

-- name: last_job
SELECT max(seq) AS seq FROM job;

-- name: list_consumers_of_channel
SELECT seq, consumer_id FROM consumer WHERE channel_seq = :channel_seq AND removed_us IS NULL;

-- name: mark_cancelled
-- A job that runs: it ends with its claim.
UPDATE job SET cancelled_us = :now WHERE seq = :seq AND state = 1002;

-- name: delete_job
DELETE FROM job WHERE seq = :seq;

-- name: key_is_busy
SELECT 1 FROM job
WHERE consumer_seq = :consumer_seq AND ordering_key = :ordering_key AND state IN (1001, 1002)
AND seq <> :seq AND (state = 1002 OR hold <> 2 OR seq < :seq) LIMIT 1;

-- name: next_of_key
SELECT seq, due_us FROM job
WHERE consumer_seq = :consumer_seq AND ordering_key = :ordering_key AND state IN (1001, 1002)
ORDER BY seq LIMIT 1;

-- name: key_has_runner
SELECT 1 FROM job
WHERE consumer_seq = :consumer_seq AND ordering_key = :ordering_key
AND (state = 1002 OR (state = 1001 AND hold <> 2)) LIMIT 1;

-- name: set_hold
UPDATE job SET hold = :hold WHERE seq = :seq AND state = 1001;

-- name: page_dead_after
SELECT job.seq, job.changed_us, job.retries, job.last_error, message.message_id
FROM job JOIN message ON message.seq = job.message_seq
WHERE job.consumer_seq = :consumer_seq AND job.state = 1004 AND job.seq < :at
ORDER BY job.seq DESC LIMIT :n;

-- name: page_dead_before
SELECT job.seq, job.changed_us, job.retries, job.last_error, message.message_id
FROM job JOIN message ON message.seq = job.message_seq
WHERE job.consumer_seq = :consumer_seq AND job.state = 1004 AND job.seq > :at
ORDER BY job.seq LIMIT :n;

-- name: list_attempts
SELECT number, kind, started_us, duration_us, status, error, excerpt
FROM attempt WHERE job_seq = :job_seq ORDER BY seq LIMIT :n;

-- name: insert_event
INSERT INTO event (at_us, kind, channel_id, consumer_id, detail)
VALUES (:now, :kind, :channel_id, :consumer_id, :detail);

-- name: page_events_after
SELECT * FROM event WHERE seq < :at ORDER BY seq DESC LIMIT :n;

-- name: page_events_before
SELECT * FROM event WHERE seq > :at ORDER BY seq LIMIT :n;

-- name: list_outcomes
SELECT * FROM outcome ORDER BY seq LIMIT :n;

-- name: oldest_ready_us
-- The first job of each priority, along the index that claims use: no scan of the backlog.
WITH RECURSIVE level (priority) AS (
    SELECT (
        SELECT priority FROM job WHERE consumer_seq = :consumer_seq AND state = 1001 AND hold = 0
        ORDER BY consumer_seq, hold, priority DESC, seq LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT priority FROM job WHERE consumer_seq = :consumer_seq AND state = 1001 AND hold = 0
        AND priority < level.priority ORDER BY consumer_seq, hold, priority DESC, seq LIMIT 1
    ) FROM level WHERE level.priority IS NOT NULL
)
SELECT min((
    SELECT created_us FROM job WHERE consumer_seq = :consumer_seq AND state = 1001 AND hold = 0
    AND priority <= level.priority ORDER BY consumer_seq, hold, priority DESC, seq LIMIT 1
)) AS created_us FROM level;

-- name: count_spent
-- Unfinished jobs that have been retried so often that the next failure is their last.
SELECT count(*) AS n FROM job
WHERE consumer_seq = :consumer_seq AND state IN (1001, 1002) AND retries >= :max_retries
AND retries < :before;

-- name: oldest_of_state
SELECT changed_us, created_us FROM job
WHERE consumer_seq = :consumer_seq AND state = :state ORDER BY seq LIMIT 1;

-- name: newest_of_state
SELECT changed_us, created_us FROM job
WHERE consumer_seq = :consumer_seq AND state = :state ORDER BY seq DESC LIMIT 1;

-- name: channel_of_consumer
SELECT channel_seq FROM consumer WHERE seq = :seq;
