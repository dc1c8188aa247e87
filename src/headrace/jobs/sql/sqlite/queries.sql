-- Queries in SQLite's dialect. Writers hold BEGIN IMMEDIATE, so rows need no locks.

-- name: lock_producer
SELECT * FROM producer WHERE producer_id = :producer_id AND removed_us IS NULL;

-- name: lock_channel
SELECT * FROM channel WHERE channel_id = :channel_id AND removed_us IS NULL;

-- name: insert_messages
-- :payloads are those of all of them, one after the other.
INSERT INTO message (
    channel_seq, producer_seq, message_id, payload, content_type, priority, ordering_key, headers,
    digest, status, received_us, dispatched_us, scheduled_us
)
SELECT
    json_extract(value, '$.channel_seq'), json_extract(value, '$.producer_seq'),
    json_extract(value, '$.message_id'),
    substr(:payloads, json_extract(value, '$.at') + 1, json_extract(value, '$.size')),
    json_extract(value, '$.content_type'), json_extract(value, '$.priority'),
    json_extract(value, '$.ordering_key'), json_extract(value, '$.headers'),
    json_extract(value, '$.digest'), json_extract(value, '$.status'), :now,
    CASE WHEN json_extract(value, '$.status') = 102 THEN :now END,
    json_extract(value, '$.scheduled_us')
FROM json_each(:items) WHERE true
ORDER BY json_extract(value, '$.place')
ON CONFLICT DO NOTHING RETURNING seq, channel_seq, message_id;

-- name: fan_out_work
-- Of each of :channels: how many consumers it has, and whether messages of it wait for their jobs.
SELECT channel.seq AS channel_seq, channel.channel_id, channel.filtered,
    (
        SELECT count(*) FROM consumer WHERE channel_seq = channel.seq AND removed_us IS NULL
    ) AS consumers,
    EXISTS (
        SELECT 1 FROM message INDEXED BY message_accepted
        WHERE channel_seq = channel.seq AND status = 101 AND scheduled_us IS NULL
    ) AS waiting
FROM json_each(:channels) AS wanted CROSS JOIN channel ON channel.seq = wanted.value;

-- name: accepted_messages
-- The first ones of a channel that wait for their jobs.
SELECT seq, channel_seq, priority, ordering_key, headers, length(payload) AS size
FROM message INDEXED BY message_accepted
WHERE channel_seq = :channel_seq AND status = 101 AND scheduled_us IS NULL AND seq <= :until
ORDER BY seq LIMIT :n;

-- name: lock_waiting
-- Those of these messages that have no jobs yet.
SELECT seq FROM message WHERE seq IN (SELECT value FROM json_each(:seqs)) AND +status = 101;

-- name: count_jobs_of_messages
SELECT message_seq, count(*) AS n FROM job
WHERE message_seq IN (SELECT value FROM json_each(:seqs)) GROUP BY message_seq;

-- name: fan_out_messages
-- One job of each message for every consumer of its channel. One with an ordering key waits behind any unfinished one
-- of its key, also of those that are made here.
INSERT INTO job (
    message_seq, consumer_seq, state, hold, priority, ordering_key, due_us, changed_us, created_us
)
SELECT item.seq, consumer.seq, 1001,
    CASE WHEN item.behind = 1 OR item.ordering_key IS NOT NULL AND EXISTS (
        SELECT 1 FROM job AS other
        WHERE other.consumer_seq = consumer.seq AND other.ordering_key = item.ordering_key
        AND other.state IN (1001, 1002)
    ) THEN 2 ELSE 0 END,
    item.priority, item.ordering_key, :now, :now, :now
FROM (
    SELECT json_extract(value, '$.seq') AS seq, json_extract(value, '$.channel_seq') AS channel_seq,
        json_extract(value, '$.priority') AS priority,
        json_extract(value, '$.ordering_key') AS ordering_key,
        json_extract(value, '$.behind') AS behind, json_extract(value, '$.place') AS place
    FROM json_each(:items)
) AS item
JOIN consumer ON consumer.channel_seq = item.channel_seq AND consumer.removed_us IS NULL
ORDER BY item.place, consumer.seq
RETURNING message_seq, consumer_seq;

-- name: fan_out_chosen
-- One job of each message for the consumers that were chosen for it, as above.
INSERT INTO job (
    message_seq, consumer_seq, state, hold, priority, ordering_key, due_us, changed_us, created_us
)
SELECT item.seq, consumer.seq, 1001,
    CASE WHEN item.behind = 1 OR item.ordering_key IS NOT NULL AND EXISTS (
        SELECT 1 FROM job AS other
        WHERE other.consumer_seq = consumer.seq AND other.ordering_key = item.ordering_key
        AND other.state IN (1001, 1002)
    ) THEN 2 ELSE 0 END,
    item.priority, item.ordering_key, :now, :now, :now
FROM (
    SELECT json_extract(value, '$.seq') AS seq, json_extract(value, '$.consumer') AS consumer,
        json_extract(value, '$.priority') AS priority,
        json_extract(value, '$.ordering_key') AS ordering_key,
        json_extract(value, '$.behind') AS behind, json_extract(value, '$.place') AS place
    FROM json_each(:items)
) AS item
JOIN consumer ON consumer.seq = item.consumer AND consumer.removed_us IS NULL
ORDER BY item.place, consumer.seq
RETURNING message_seq, consumer_seq;

-- name: waiting_jobs
-- Those of :consumers that have a job to claim, now or later.
SELECT * FROM (
    SELECT
        consumer.seq AS consumer_seq,
        EXISTS (
            SELECT 1 FROM job INDEXED BY job_queued
            WHERE consumer_seq = consumer.seq AND state = 1001 AND hold = 0
        ) AS ready,
        (
            SELECT min(due_us) FROM job INDEXED BY job_delayed
            WHERE consumer_seq = consumer.seq AND state = 1001 AND hold = 1
        ) AS due_us
    FROM json_each(:consumers) AS waited
    CROSS JOIN consumer ON consumer.seq = waited.value AND consumer.paused = 0
        AND consumer.disabled_us IS NULL AND consumer.removed_us IS NULL
) AS found
WHERE ready OR due_us IS NOT NULL;

-- name: lock_keys
SELECT 1 WHERE :keys IS NOT NULL;

-- name: lock_consumer
SELECT seq FROM consumer WHERE seq = :seq;

-- name: ready_jobs
-- The first of those that may be claimed, with their messages; without the payloads that have more than :bytes.
-- Nothing by a definition that was changed, or disabled, since it was read.
SELECT job.seq, job.message_seq, job.consumer_seq, job.state, job.hold, job.priority, job.ordering_key,
    job.retries, job.claims, job.lease, job.lease_started_us, job.last_error, job.cancelled_us,
    job.created_us, message.message_id, message.content_type, message.headers,
    length(message.payload) AS size,
    CASE WHEN length(message.payload) <= :bytes THEN message.payload END AS payload
FROM job INDEXED BY job_queued CROSS JOIN message ON message.seq = job.message_seq
WHERE job.consumer_seq = :consumer_seq AND job.state = 1001 AND job.hold = 0
AND EXISTS (
    SELECT 1 FROM consumer
    WHERE seq = :consumer_seq AND updated_us = :version AND disabled_us IS NULL
)
ORDER BY job.priority DESC, job.seq LIMIT :n;

-- name: messages_of
-- Without the payloads that have more than :bytes; a length reads no payload.
SELECT seq, message_id, content_type, headers,
    CASE WHEN length(payload) <= :bytes THEN payload END AS payload
FROM message WHERE seq IN (SELECT value FROM json_each(:seqs));

-- name: sizes_of
SELECT seq, length(payload) AS size
FROM message WHERE seq IN (SELECT value FROM json_each(:seqs));

-- name: promote_due
UPDATE job SET hold = 0 WHERE seq IN (
    SELECT seq FROM job INDEXED BY job_delayed
    WHERE consumer_seq = :consumer_seq AND state = 1001 AND hold = 1 AND due_us <= :now LIMIT :n
);

-- name: heartbeat_jobs
-- +, here and below: not by the index of all that are leased, or of all jobs of a consumer, to look for some of them.
UPDATE job SET lease_expires_us = min(:expires, lease_started_us + :total),
    progress = coalesce(item.progress, job.progress)
FROM (
    SELECT json_extract(value, '$.seq') AS seq, json_extract(value, '$.lease') AS lease,
        json_extract(value, '$.progress') AS progress
    FROM json_each(:items)
) AS item
WHERE job.seq = item.seq AND +job.consumer_seq = :consumer_seq AND job.lease = item.lease
AND +job.state = 1002 AND job.lease_started_us + :total > :now AND job.cancelled_us IS NULL
RETURNING job.seq, job.lease_expires_us;

-- name: load_jobs
SELECT job.*, consumer.max_retries FROM job JOIN consumer ON consumer.seq = job.consumer_seq
WHERE job.seq IN (SELECT value FROM json_each(:seqs));

-- name: load_expired
SELECT job.*, consumer.max_retries, consumer.kind, consumer.consumer_id, channel.channel_id
FROM job INDEXED BY job_leased
JOIN consumer ON consumer.seq = job.consumer_seq
JOIN channel ON channel.seq = consumer.channel_seq
WHERE job.state = 1002 AND job.lease_expires_us <= :now
ORDER BY job.lease_expires_us LIMIT :n;

-- name: load_dead
SELECT job.*, consumer.max_retries FROM job INDEXED BY job_by_state
JOIN consumer ON consumer.seq = job.consumer_seq
WHERE job.consumer_seq = :consumer_seq AND job.state = 1004 AND job.seq > :after
AND job.cancelled_us IS NULL
ORDER BY job.seq LIMIT :n;

-- name: store_jobs
-- Each of :items is a list, in the order of what is set here: names would take longer to read than to store.
UPDATE job SET
    state = json_extract(item.value, '$[1]'),
    hold = json_extract(item.value, '$[2]'),
    retries = json_extract(item.value, '$[3]'),
    claims = json_extract(item.value, '$[4]'),
    due_us = json_extract(item.value, '$[5]'),
    lease = json_extract(item.value, '$[6]'),
    lease_started_us = json_extract(item.value, '$[7]'),
    lease_expires_us = json_extract(item.value, '$[8]'),
    extra_s = json_extract(item.value, '$[9]'),
    last_error = json_extract(item.value, '$[10]'),
    cancelled_us = json_extract(item.value, '$[11]'),
    changed_us = :now
FROM json_each(:items) AS item WHERE job.seq = json_extract(item.value, '$[0]');

-- name: delete_dead
DELETE FROM job WHERE seq IN (
    SELECT seq FROM job INDEXED BY job_by_state
    WHERE consumer_seq = :consumer_seq AND state = 1004 ORDER BY seq LIMIT :n
);

-- name: delete_jobs_of_consumer
DELETE FROM job WHERE seq IN (
    SELECT seq FROM job INDEXED BY job_by_state WHERE consumer_seq = :consumer_seq LIMIT :n
);

-- name: jobs_to_move
-- Jobs of one consumer in one state, and whether the other has its own job of the same message.
SELECT job.seq, job.ordering_key, EXISTS (
    SELECT 1 FROM job AS other WHERE other.message_seq = job.message_seq AND other.consumer_seq = :to
) AS present
FROM job INDEXED BY job_by_state WHERE job.consumer_seq = :consumer_seq AND job.state = :state
ORDER BY job.seq LIMIT :n;

-- name: move_jobs
UPDATE job SET
    consumer_seq = :to,
    hold = CASE WHEN state = 1001 AND ordering_key IS NOT NULL THEN 2 ELSE hold END
WHERE +consumer_seq = :consumer_seq AND seq IN (SELECT value FROM json_each(:seqs));

-- name: delete_moved
DELETE FROM job WHERE +consumer_seq = :consumer_seq AND seq IN (SELECT value FROM json_each(:seqs));

-- name: delete_delivered
DELETE FROM job WHERE seq IN (
    SELECT seq FROM job INDEXED BY job_by_state
    WHERE consumer_seq = :consumer_seq AND state = 1003 ORDER BY seq LIMIT :n
);

-- name: delete_messages_of_channel
DELETE FROM message WHERE seq IN (
    SELECT seq FROM message WHERE channel_seq = :channel_seq LIMIT :n
);

-- name: due_messages
SELECT message.seq, message.channel_seq, message.priority, message.ordering_key, message.scheduled_us,
    message.headers, length(message.payload) AS size, channel.channel_id, channel.filtered
FROM message INDEXED BY message_waiting JOIN channel ON channel.seq = message.channel_seq
WHERE message.status = 101 AND message.scheduled_us <= :now
AND NOT EXISTS (
    SELECT 1 FROM message AS earlier INDEXED BY message_accepted
    WHERE earlier.channel_seq = channel.seq AND earlier.status = 101 AND earlier.scheduled_us IS NULL
)
ORDER BY message.scheduled_us, message.seq LIMIT :n;

-- name: dispatch_messages
UPDATE message SET status = 102, dispatched_us = :now
WHERE +status = 101 AND seq IN (SELECT value FROM json_each(:seqs));

-- name: due_schedules
SELECT schedule.*, channel.channel_id, channel.filtered
FROM schedule JOIN channel ON channel.seq = schedule.channel_seq
WHERE schedule.paused = 0 AND schedule.next_us <= :now
AND channel.draining = 0 AND channel.removed_us IS NULL
ORDER BY schedule.next_us LIMIT :n;

-- name: jobs_of_messages
SELECT job.*, consumer.consumer_id FROM job JOIN consumer ON consumer.seq = job.consumer_seq
WHERE job.message_seq IN (SELECT value FROM json_each(:seqs)) ORDER BY job.seq;

-- name: states_of_messages
SELECT seq, message_seq, state, changed_us FROM job WHERE message_seq IN (SELECT value FROM json_each(:seqs));

-- name: delete_jobs_of_messages
-- Those that are finished: one may have been sent back since it was looked at, and then its message stays, too.
DELETE FROM job WHERE message_seq IN (SELECT value FROM json_each(:seqs)) AND state IN (1003, 1004);

-- name: delete_messages
DELETE FROM message WHERE seq IN (SELECT value FROM json_each(:seqs));

-- name: move_leases
-- The clock was set by :step.
UPDATE job SET lease_started_us = lease_started_us + :step, lease_expires_us = lease_expires_us + :step
WHERE state = 1002;

-- name: move_pauses
UPDATE job SET due_us = due_us + :step WHERE state = 1001 AND hold = 1;

-- name: move_leads
UPDATE leader SET expires_us = expires_us + :step;

-- name: fold_counters
DELETE FROM counter WHERE n = 0;

-- name: empty_pages
SELECT freelist_count AS n FROM pragma_freelist_count;

-- name: give_back_page
-- One for each execution: Python steps such a statement once. None in a file that was made without this.
PRAGMA incremental_vacuum(1);

-- name: notify
SELECT 1 WHERE :payload IS NULL;

-- name: insert_outcomes
INSERT INTO outcome (
    at_us, channel_id, consumer_id, message_id, job_seq, state, retries, error
)
SELECT :now, channel.channel_id, consumer.consumer_id, message.message_id, job.seq, job.state,
    job.retries, CASE WHEN job.state = 1004 THEN job.last_error END
FROM job
JOIN consumer ON consumer.seq = job.consumer_seq
JOIN channel ON channel.seq = consumer.channel_seq
JOIN message ON message.seq = job.message_seq
WHERE job.seq IN (SELECT value FROM json_each(:seqs))
AND json_extract(consumer.settings, '$.outcomes') = 1
ORDER BY job.seq;

-- name: states_of
SELECT seq, consumer_seq, state, lease, due_us, cancelled_us FROM job
WHERE seq IN (SELECT value FROM json_each(:seqs));

-- name: insert_attempts
INSERT INTO attempt (job_seq, number, kind, started_us, duration_us, status, error, excerpt)
SELECT json_extract(value, '$.job_seq'), json_extract(value, '$.number'), json_extract(value, '$.kind'),
    json_extract(value, '$.started_us'), json_extract(value, '$.duration_us'),
    json_extract(value, '$.status'), json_extract(value, '$.error'), json_extract(value, '$.excerpt')
FROM json_each(:items);

-- name: delete_outcomes
-- Exactly the published ones: a lower number may be committed later than a higher one.
DELETE FROM outcome WHERE seq IN (SELECT value FROM json_each(:seqs));

-- name: page_jobs_of_state_after
-- A page of the jobs of one consumer in one state. Those after :last were made after :until_us.
SELECT job.seq, job.consumer_seq, job.state, job.hold, job.priority, job.retries, job.claims, job.created_us,
    job.changed_us, job.due_us, job.last_error, job.cancelled_us, job.lease_started_us, job.progress,
    job.message_seq, message.message_id
FROM job INDEXED BY job_by_state JOIN message ON message.seq = job.message_seq
WHERE job.consumer_seq = :consumer_seq AND job.state = :state AND job.seq < :at AND job.seq <= :last
AND job.created_us <= :until_us
ORDER BY job.seq DESC LIMIT :n;

-- name: page_jobs_of_message_after
-- The same of one message, which has a job for each consumer at most.
SELECT job.seq, job.consumer_seq, job.state, job.hold, job.priority, job.retries, job.claims, job.created_us,
    job.changed_us, job.due_us, job.last_error, job.cancelled_us, job.lease_started_us, job.progress,
    job.message_seq, message.message_id
FROM job INDEXED BY job_by_message JOIN message ON message.seq = job.message_seq
JOIN consumer ON consumer.seq = job.consumer_seq AND consumer.removed_us IS NULL
WHERE job.message_seq = :message_seq AND job.seq < :at AND job.created_us <= :until_us
AND (:consumer_seq = 0 OR job.consumer_seq = :consumer_seq) AND (:state = 0 OR job.state = :state)
ORDER BY job.seq DESC LIMIT :n;

-- name: page_jobs_of_state_before
-- A page of the jobs of one consumer in one state. Those after :last were made after :until_us.
SELECT job.seq, job.consumer_seq, job.state, job.hold, job.priority, job.retries, job.claims, job.created_us,
    job.changed_us, job.due_us, job.last_error, job.cancelled_us, job.lease_started_us, job.progress,
    job.message_seq, message.message_id
FROM job INDEXED BY job_by_state JOIN message ON message.seq = job.message_seq
WHERE job.consumer_seq = :consumer_seq AND job.state = :state AND job.seq > :at AND job.seq <= :last
AND job.created_us <= :until_us
ORDER BY job.seq ASC LIMIT :n;

-- name: page_jobs_of_message_before
-- The same of one message, which has a job for each consumer at most.
SELECT job.seq, job.consumer_seq, job.state, job.hold, job.priority, job.retries, job.claims, job.created_us,
    job.changed_us, job.due_us, job.last_error, job.cancelled_us, job.lease_started_us, job.progress,
    job.message_seq, message.message_id
FROM job INDEXED BY job_by_message JOIN message ON message.seq = job.message_seq
JOIN consumer ON consumer.seq = job.consumer_seq AND consumer.removed_us IS NULL
WHERE job.message_seq = :message_seq AND job.seq > :at AND job.created_us <= :until_us
AND (:consumer_seq = 0 OR job.consumer_seq = :consumer_seq) AND (:state = 0 OR job.state = :state)
ORDER BY job.seq ASC LIMIT :n;

-- name: blockers
-- Of jobs that wait for their ordering key, the one that has it.
SELECT job.seq, other.seq AS by_seq, other.state, other.due_us, other.last_error
FROM job JOIN job AS other ON other.seq = (
    SELECT runner.seq FROM job AS runner
    WHERE runner.consumer_seq = job.consumer_seq AND runner.ordering_key = job.ordering_key
    AND runner.state IN (1001, 1002) AND (runner.state = 1002 OR runner.hold <> 2)
    ORDER BY runner.seq LIMIT 1
)
WHERE job.seq IN (SELECT value FROM json_each(:seqs)) AND job.state = 1001 AND job.hold = 2;

-- name: notices_of_jobs
-- Those of these jobs whose channel has one that is told, and which.
SELECT job.seq, job.retries, job.last_error, message.message_id, consumer.consumer_id, channel.channel_id,
    target.seq AS target_seq, target.filtered AS target_filtered
FROM job
JOIN consumer ON consumer.seq = job.consumer_seq
JOIN channel ON channel.seq = consumer.channel_seq
JOIN channel AS target ON target.seq = channel.events_seq AND target.removed_us IS NULL
    AND target.draining = 0
JOIN message ON message.seq = job.message_seq
WHERE job.seq IN (SELECT value FROM json_each(:seqs))
ORDER BY job.seq;

-- name: attempts_of_jobs
SELECT job_seq, number, kind, started_us, duration_us, status, error, excerpt FROM attempt
WHERE job_seq IN (SELECT value FROM json_each(:seqs))
ORDER BY job_seq, seq;

-- name: mark_consumers_well
UPDATE consumer SET failing_since_us = NULL
WHERE failing_since_us IS NOT NULL AND seq IN (SELECT value FROM json_each(:seqs));

-- name: take_push_lanes
-- Of those that a process has which is there, none.
INSERT INTO push_lane (consumer_seq, node)
SELECT consumer.seq, :node FROM json_each(:seqs) AS wanted CROSS JOIN consumer ON consumer.seq = wanted.value
WHERE true
ON CONFLICT (consumer_seq) DO UPDATE SET node = excluded.node
WHERE NOT EXISTS (SELECT 1 FROM push_node WHERE push_node.node = push_lane.node);

-- name: push_lanes_of
SELECT consumer_seq FROM push_lane
WHERE node = :node AND consumer_seq IN (SELECT value FROM json_each(:seqs));

-- name: drop_push_lanes
DELETE FROM push_lane WHERE node = :node AND consumer_seq IN (SELECT value FROM json_each(:seqs));

-- name: add_calls
INSERT INTO push_calls (consumer_seq, at_us, bucket, n)
SELECT consumer.seq, :at_us, json_extract(value, '$.bucket'), json_extract(value, '$.n')
FROM json_each(:items) AS item
JOIN channel ON channel.channel_id = json_extract(value, '$.channel') AND channel.removed_us IS NULL
JOIN consumer ON consumer.channel_seq = channel.seq AND consumer.removed_us IS NULL
    AND consumer.consumer_id = json_extract(value, '$.consumer')
WHERE true
ON CONFLICT (consumer_seq, at_us, bucket) DO UPDATE SET n = push_calls.n + excluded.n;
