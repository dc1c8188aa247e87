-- Counts, leases of maintenance, retention.

-- name: get_meta
SELECT value FROM meta WHERE key = :key;

-- name: put_meta
INSERT INTO meta (key, value) VALUES (:key, :value)
ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: add_meta
-- Returns the stored value: the first one stays.
INSERT INTO meta (key, value) VALUES (:key, :value)
ON CONFLICT (key) DO UPDATE SET value = meta.value
RETURNING value;

-- name: take_lead
-- Succeeds for the current holder, and for any process once its time is over.
INSERT INTO leader (task, holder, expires_us) VALUES (:task, :holder, :expires)
ON CONFLICT (task) DO UPDATE SET holder = excluded.holder, expires_us = excluded.expires_us
WHERE leader.holder = excluded.holder OR leader.expires_us <= :now
RETURNING holder;

-- name: drop_lead
DELETE FROM leader WHERE task = :task AND holder = :holder;

-- name: job_counts, by any plan
SELECT ref AS consumer_seq, kind AS state, sum(n) AS n FROM counter
WHERE scope = 'job' GROUP BY ref, kind;

-- name: job_counts_of
SELECT kind AS state, sum(n) AS n FROM counter WHERE scope = 'job' AND ref = :consumer_seq GROUP BY kind;

-- name: job_totals, by any plan
SELECT counter.kind AS state, sum(counter.n) AS n FROM counter
JOIN consumer ON consumer.seq = counter.ref AND consumer.removed_us IS NULL
WHERE counter.scope = 'job' GROUP BY counter.kind;

-- name: message_counts, by any plan
SELECT kind, sum(n) AS n FROM counter
WHERE scope = 'message' AND ref = :channel_seq GROUP BY kind;

-- name: scan_old_sizes, by any plan
-- One limited window in the order of seq, so that a run sees blocked messages only once.
SELECT seq, received_us, length(payload) AS size FROM message
WHERE seq > :after ORDER BY seq LIMIT :n;

-- name: scan_old_heads, by any plan
-- The same without payloads.
SELECT seq, received_us, status FROM message WHERE seq > :after ORDER BY seq LIMIT :n;

-- name: scan_old_messages, by any plan
-- The rows of such a window.
SELECT message.seq, message.message_id, message.payload, message.content_type, message.priority,
    message.headers, message.ordering_key, message.received_us, message.dispatched_us,
    message.scheduled_us, message.status, channel.channel_id, producer.producer_id
FROM message
JOIN channel ON channel.seq = message.channel_seq
LEFT JOIN producer ON producer.seq = message.producer_seq
WHERE message.seq > :after AND message.seq <= :until ORDER BY message.seq;

-- name: removed_range
-- The only range that can have this job.
SELECT * FROM removed_jobs WHERE first_seq <= :seq ORDER BY first_seq DESC LIMIT 1;

-- name: insert_removed_range
INSERT INTO removed_jobs (first_seq, last_seq, removed_us, folder)
VALUES (:first, :last, :now, :folder);

-- name: extend_removed_range
UPDATE removed_jobs SET last_seq = :last, removed_us = :now WHERE first_seq = :first;

-- name: prune_removed_ranges, by any plan
DELETE FROM removed_jobs WHERE first_seq IN (
    SELECT first_seq FROM removed_jobs WHERE removed_us < :before ORDER BY removed_us LIMIT :n
);

-- name: prune_attempts, by any plan
DELETE FROM attempt WHERE seq IN (
    SELECT seq FROM attempt WHERE started_us < :before ORDER BY started_us LIMIT :n
);

-- name: prune_events, by any plan
DELETE FROM event WHERE seq IN (SELECT seq FROM event WHERE at_us < :before ORDER BY seq LIMIT :n);

-- name: next_upkeep_us
-- When the next lease expires, the next scheduled message and the next schedule are due, whether messages wait for
-- their jobs, and whether a consumer or channel was deleted.
SELECT
    (SELECT min(lease_expires_us) FROM job WHERE state = 1002) AS lease_us,
    (SELECT min(scheduled_us) FROM message WHERE status = 101) AS scheduled_us,
    (
        SELECT next_us FROM schedule
        WHERE paused = 0 AND next_us IS NOT NULL AND EXISTS (
            SELECT 1 FROM channel
            WHERE channel.seq = schedule.channel_seq AND draining = 0 AND removed_us IS NULL
        )
        ORDER BY next_us LIMIT 1
    ) AS cron_us,
    EXISTS (SELECT 1 FROM message WHERE status = 101 AND scheduled_us IS NULL) AS accepted,
    EXISTS (SELECT 1 FROM consumer WHERE removed_us IS NOT NULL)
    OR EXISTS (SELECT 1 FROM channel WHERE removed_us IS NOT NULL) AS removed;
