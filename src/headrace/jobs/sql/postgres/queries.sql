-- Queries in PostgreSQL's dialect.

-- name: lock_producer
SELECT * FROM producer WHERE producer_id = :producer_id AND removed_us IS NULL FOR UPDATE;

-- name: lock_channel
SELECT * FROM channel WHERE channel_id = :channel_id AND removed_us IS NULL FOR UPDATE;

-- name: insert_messages
-- :payloads are those of all of them, one after the other.
INSERT INTO message (
    channel_seq, producer_seq, message_id, payload, content_type, priority, ordering_key, headers,
    digest, status, received_us, dispatched_us, scheduled_us
)
SELECT
    item.channel_seq, item.producer_seq, item.message_id,
    substring(:payloads::bytea FROM item.at + 1 FOR item.size), item.content_type, item.priority,
    item.ordering_key, item.headers, item.digest,
    item.status, :now, CASE WHEN item.status = 102 THEN :now::bigint END, item.scheduled_us
FROM json_to_recordset(:items::json) AS item (
    place integer, channel_seq bigint, producer_seq bigint, message_id text, at integer, size integer,
    content_type text, priority integer, ordering_key text, headers text, digest text,
    scheduled_us bigint, status integer
)
ORDER BY item.place
ON CONFLICT DO NOTHING RETURNING seq, channel_seq, message_id;

-- name: fan_out_work
-- Of each of :channels: how many consumers it has, and whether messages of it wait for their jobs.
SELECT channel.seq AS channel_seq, channel.channel_id, channel.filtered,
    (
        SELECT count(*) FROM consumer WHERE channel_seq = channel.seq AND removed_us IS NULL
    ) AS consumers,
    EXISTS (
        SELECT 1 FROM message
        WHERE channel_seq = channel.seq AND status = 101 AND scheduled_us IS NULL
    ) AS waiting
FROM json_array_elements_text(:channels::json) AS wanted
JOIN channel ON channel.seq = wanted.value::bigint;

-- name: accepted_messages
-- The first ones of a channel that wait for their jobs.
SELECT seq, channel_seq, priority, ordering_key, headers, octet_length(payload) AS size FROM message
WHERE channel_seq = :channel_seq AND status = 101 AND scheduled_us IS NULL AND seq <= :until
ORDER BY seq LIMIT :n;

-- name: lock_waiting
-- Those of these messages that have no jobs yet, locked: whoever else makes jobs of them waits.
SELECT seq FROM message WHERE status + 0 = 101 AND seq = ANY(ARRAY(
    SELECT value::bigint FROM json_array_elements_text(:seqs::json) AS value
)) ORDER BY seq FOR UPDATE;

-- name: count_jobs_of_messages
SELECT message_seq, count(*) AS n FROM job WHERE message_seq = ANY(ARRAY(
    SELECT value::bigint FROM json_array_elements_text(:seqs::json) AS value
)) GROUP BY message_seq;

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
FROM json_to_recordset(:items::json) AS item (
    place integer, seq bigint, channel_seq bigint, priority integer, ordering_key text, behind integer
)
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
FROM json_to_recordset(:items::json) AS item (
    place integer, seq bigint, consumer bigint, priority integer, ordering_key text, behind integer
)
JOIN consumer ON consumer.seq = item.consumer AND consumer.removed_us IS NULL
ORDER BY item.place, consumer.seq
RETURNING message_seq, consumer_seq;

-- name: waiting_jobs
-- Those of :consumers that have a job to claim, now or later.
SELECT * FROM (
    SELECT
        consumer.seq AS consumer_seq,
        EXISTS (
            SELECT 1 FROM job
            WHERE consumer_seq = consumer.seq AND state = 1001 AND hold = 0
        ) AS ready,
        (
            SELECT min(due_us) FROM job
            WHERE consumer_seq = consumer.seq AND state = 1001 AND hold = 1
        ) AS due_us
    FROM json_array_elements_text(:consumers::json) AS waited
    JOIN consumer ON consumer.seq = waited.value::bigint AND consumer.paused = 0
        AND consumer.disabled_us IS NULL AND consumer.removed_us IS NULL
) AS found
WHERE ready OR due_us IS NOT NULL;

-- name: lock_keys
-- Transactions that add or finish jobs of one ordering key lock each other out; always in the same order.
SELECT pg_advisory_xact_lock(key) FROM (
    SELECT DISTINCT hashtextextended(value, 0) AS key
    FROM json_array_elements_text(:keys::json) AS value ORDER BY 1
) AS keys;

-- name: lock_consumer
SELECT seq FROM consumer WHERE seq = :seq FOR UPDATE;

-- name: ready_jobs
-- The first of those that may be claimed, locked, with their messages; without the payloads that have more than
-- :bytes. Nothing by a definition that was changed, or disabled, since it was read.
SELECT job.seq, job.message_seq, job.consumer_seq, job.state, job.hold, job.priority, job.ordering_key,
    job.retries, job.claims, job.lease, job.lease_started_us, job.last_error, job.cancelled_us,
    job.created_us, message.message_id, message.content_type, message.headers,
    octet_length(message.payload) AS size,
    CASE WHEN octet_length(message.payload) <= :bytes THEN message.payload END AS payload
FROM job JOIN message ON message.seq = job.message_seq
WHERE job.consumer_seq = :consumer_seq AND job.state = 1001 AND job.hold = 0
AND EXISTS (
    SELECT 1 FROM consumer
    WHERE seq = :consumer_seq AND updated_us = :version AND disabled_us IS NULL
)
ORDER BY job.priority DESC, job.seq LIMIT :n FOR UPDATE OF job SKIP LOCKED;

-- name: messages_of
-- Without the payloads that have more than :bytes; a length reads no payload.
SELECT seq, message_id, content_type, headers,
    CASE WHEN octet_length(payload) <= :bytes THEN payload END AS payload
FROM message WHERE seq = ANY(ARRAY(
    SELECT value::bigint FROM json_array_elements_text(:seqs::json) AS value
));

-- name: sizes_of
SELECT seq, octet_length(payload) AS size
FROM message WHERE seq = ANY(ARRAY(
    SELECT value::bigint FROM json_array_elements_text(:seqs::json) AS value
));

-- name: promote_due
UPDATE job SET hold = 0 WHERE seq = ANY(ARRAY(
    SELECT seq FROM job
    WHERE consumer_seq = :consumer_seq AND state = 1001 AND hold = 1 AND due_us <= :now
    ORDER BY due_us LIMIT :n FOR UPDATE SKIP LOCKED
));

-- name: heartbeat_jobs
-- + 0 and LIMIT, here and below: a plan that was made for an empty table may begin with all jobs, or all that
-- are leased, and look for some among them. The limit leaves out nothing, but lets a plan begin with the items.
UPDATE job SET lease_expires_us = least(:expires, lease_started_us + :total),
    progress = coalesce(item.progress, job.progress)
FROM (
    SELECT * FROM json_to_recordset(:items::json) AS item (seq bigint, lease text, progress text)
    LIMIT json_array_length(:items::json)
) AS item
WHERE job.seq = item.seq AND job.consumer_seq + 0 = :consumer_seq AND job.lease = item.lease
AND job.state + 0 = 1002 AND job.lease_started_us + :total > :now AND job.cancelled_us IS NULL
RETURNING job.seq, job.lease_expires_us;

-- name: load_jobs
SELECT job.*, consumer.max_retries FROM job JOIN consumer ON consumer.seq = job.consumer_seq
WHERE job.seq = ANY(ARRAY(
    SELECT value::bigint FROM json_array_elements_text(:seqs::json) AS value
))
ORDER BY job.seq FOR UPDATE OF job;

-- name: load_expired
SELECT job.*, consumer.max_retries, consumer.kind, consumer.consumer_id, channel.channel_id
FROM job
JOIN consumer ON consumer.seq = job.consumer_seq
JOIN channel ON channel.seq = consumer.channel_seq
WHERE job.state = 1002 AND job.lease_expires_us <= :now
ORDER BY job.lease_expires_us LIMIT :n FOR UPDATE OF job SKIP LOCKED;

-- name: load_dead
SELECT job.*, consumer.max_retries FROM job JOIN consumer ON consumer.seq = job.consumer_seq
WHERE job.consumer_seq = :consumer_seq AND job.state = 1004 AND job.seq > :after
AND job.cancelled_us IS NULL
ORDER BY job.seq LIMIT :n FOR UPDATE OF job SKIP LOCKED;

-- name: store_jobs
-- Each of :items is a list, in the order of what is set here: names would take longer to read than to store.
UPDATE job SET
    state = (item.value ->> 1)::smallint, hold = (item.value ->> 2)::smallint,
    retries = (item.value ->> 3)::integer, claims = (item.value ->> 4)::integer,
    due_us = (item.value ->> 5)::bigint, lease = item.value ->> 6,
    lease_started_us = (item.value ->> 7)::bigint, lease_expires_us = (item.value ->> 8)::bigint,
    extra_s = (item.value ->> 9)::integer, last_error = item.value ->> 10,
    cancelled_us = (item.value ->> 11)::bigint, changed_us = :now
FROM (
    SELECT value FROM jsonb_array_elements(:items::jsonb) AS items (value)
    LIMIT jsonb_array_length(:items::jsonb)
) AS item
WHERE job.seq = (item.value ->> 0)::bigint;

-- name: delete_dead
-- ANY(ARRAY(…)), here and below: as a part of a join the inner query may be asked again, and then
-- passes over what is locked by now, so that no LIMIT holds.
DELETE FROM job WHERE seq = ANY(ARRAY(
    SELECT seq FROM job WHERE consumer_seq = :consumer_seq AND state = 1004
    ORDER BY seq LIMIT :n FOR UPDATE SKIP LOCKED
));

-- name: delete_jobs_of_consumer
DELETE FROM job WHERE seq = ANY(ARRAY(
    SELECT seq FROM job WHERE consumer_seq = :consumer_seq LIMIT :n FOR UPDATE SKIP LOCKED
));

-- name: jobs_to_move
-- Jobs of one consumer in one state, and whether the other has its own job of the same message.
SELECT job.seq, job.ordering_key, EXISTS (
    SELECT 1 FROM job AS other WHERE other.message_seq = job.message_seq AND other.consumer_seq = :to
) AS present
FROM job WHERE job.consumer_seq = :consumer_seq AND job.state = :state
ORDER BY job.seq LIMIT :n;

-- name: move_jobs
UPDATE job SET
    consumer_seq = :to,
    hold = CASE WHEN state = 1001 AND ordering_key IS NOT NULL THEN 2 ELSE hold END
WHERE consumer_seq + 0 = :consumer_seq AND seq = ANY(ARRAY(
    SELECT value::bigint FROM json_array_elements_text(:seqs::json) AS value
));

-- name: delete_moved
DELETE FROM job WHERE consumer_seq + 0 = :consumer_seq AND seq = ANY(ARRAY(
    SELECT value::bigint FROM json_array_elements_text(:seqs::json) AS value
));

-- name: delete_delivered
DELETE FROM job WHERE seq = ANY(ARRAY(
    SELECT seq FROM job
    WHERE consumer_seq = :consumer_seq AND state = 1003 ORDER BY seq LIMIT :n FOR UPDATE SKIP LOCKED
));

-- name: delete_messages_of_channel
DELETE FROM message WHERE seq = ANY(ARRAY(
    SELECT seq FROM message WHERE channel_seq = :channel_seq LIMIT :n FOR UPDATE SKIP LOCKED
));

-- name: due_messages
SELECT message.seq, message.channel_seq, message.priority, message.ordering_key, message.scheduled_us,
    message.headers, octet_length(message.payload) AS size, channel.channel_id, channel.filtered
FROM message JOIN channel ON channel.seq = message.channel_seq
WHERE message.status = 101 AND message.scheduled_us <= :now
AND NOT EXISTS (
    SELECT 1 FROM message AS earlier
    WHERE earlier.channel_seq = channel.seq AND earlier.status = 101 AND earlier.scheduled_us IS NULL
)
ORDER BY message.scheduled_us, message.seq LIMIT :n;

-- name: dispatch_messages
UPDATE message SET status = 102, dispatched_us = :now WHERE status + 0 = 101 AND seq = ANY(ARRAY(
    SELECT value::bigint FROM json_array_elements_text(:seqs::json) AS value
));

-- name: due_schedules
SELECT schedule.*, channel.channel_id, channel.filtered
FROM schedule JOIN channel ON channel.seq = schedule.channel_seq
WHERE schedule.paused = 0 AND schedule.next_us <= :now
AND channel.draining = 0 AND channel.removed_us IS NULL
ORDER BY schedule.next_us LIMIT :n FOR UPDATE OF schedule SKIP LOCKED;

-- name: jobs_of_messages, by any plan
-- + 0: all jobs are not walked in order.
SELECT job.*, consumer.consumer_id FROM job JOIN consumer ON consumer.seq = job.consumer_seq
WHERE job.message_seq = ANY(ARRAY(
    SELECT value::bigint FROM json_array_elements_text(:seqs::json) AS value
))
ORDER BY job.seq + 0;

-- name: states_of_messages, by any plan
SELECT seq, message_seq, state, changed_us FROM job WHERE message_seq = ANY(ARRAY(
    SELECT value::bigint FROM json_array_elements_text(:seqs::json) AS value
));

-- name: delete_jobs_of_messages
-- Those that are finished: one may have been sent back since it was looked at, and then its message stays, too.
DELETE FROM job WHERE message_seq = ANY(ARRAY(
    SELECT value::bigint FROM json_array_elements_text(:seqs::json) AS value
)) AND state IN (1003, 1004);

-- name: delete_messages
DELETE FROM message
WHERE seq = ANY(ARRAY(
    SELECT value::bigint FROM json_array_elements_text(:seqs::json) AS value
));

-- name: fold_counters, by any plan
-- Only what has more than one row: a thousand quiet consumers are not written again and again.
WITH loose AS (
    SELECT scope, ref, kind FROM counter GROUP BY 1, 2, 3 HAVING count(*) > 1 OR sum(n) = 0
), taken AS (
    DELETE FROM counter USING loose
    WHERE counter.scope = loose.scope AND counter.ref = loose.ref AND counter.kind = loose.kind
    RETURNING counter.scope, counter.ref, counter.kind, counter.n
)
INSERT INTO counter SELECT scope, ref, kind, sum(n) FROM taken GROUP BY 1, 2, 3 HAVING sum(n) <> 0;

-- name: empty_pages
-- The server gives them back by itself.
SELECT 0 AS n;

-- name: give_back_page
SELECT 1 WHERE false;

-- name: notify
SELECT pg_notify('headrace_jobs', :payload);

-- name: take_room
-- About 1,000 bytes a row; its transaction is rolled back.
CREATE UNLOGGED TABLE headrace_jobs_room AS
SELECT repeat(' ', 1000) FROM generate_series(1, :rows);

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
WHERE job.seq = ANY(ARRAY(
    SELECT value::bigint FROM json_array_elements_text(:seqs::json) AS value
))
AND consumer.settings::json ->> 'outcomes' = 'true'
ORDER BY job.seq;

-- name: states_of
SELECT seq, consumer_seq, state, lease, due_us, cancelled_us FROM job
WHERE seq = ANY(ARRAY(
    SELECT value::bigint FROM json_array_elements_text(:seqs::json) AS value
));

-- name: insert_attempts
INSERT INTO attempt (job_seq, number, kind, started_us, duration_us, status, error, excerpt)
SELECT job_seq, number, kind, started_us, duration_us, status, error, excerpt
FROM json_to_recordset(:items::json) AS item (
    job_seq bigint, number integer, kind text, started_us bigint, duration_us bigint, status integer,
    error text, excerpt text
);

-- name: delete_outcomes
-- Exactly the published ones: a lower number may be committed later than a higher one.
DELETE FROM outcome
WHERE seq = ANY(ARRAY(
    SELECT value::bigint FROM json_array_elements_text(:seqs::json) AS value
));

-- name: page_jobs_of_state_after
-- A page of the jobs of one consumer in one state. Those after :last were made after :until_us.
SELECT job.seq, job.consumer_seq, job.state, job.hold, job.priority, job.retries, job.claims, job.created_us,
    job.changed_us, job.due_us, job.last_error, job.cancelled_us, job.lease_started_us, job.progress,
    job.message_seq, message.message_id
FROM job JOIN message ON message.seq = job.message_seq
WHERE job.consumer_seq = :consumer_seq AND job.state = :state AND job.seq < :at AND job.seq <= :last
AND job.created_us <= :until_us
ORDER BY job.seq DESC LIMIT :n;

-- name: page_jobs_of_message_after
-- The same of one message, which has a job for each consumer at most. + 0: all jobs are not walked in order.
SELECT job.seq, job.consumer_seq, job.state, job.hold, job.priority, job.retries, job.claims, job.created_us,
    job.changed_us, job.due_us, job.last_error, job.cancelled_us, job.lease_started_us, job.progress,
    job.message_seq, message.message_id
FROM job JOIN message ON message.seq = job.message_seq
JOIN consumer ON consumer.seq = job.consumer_seq AND consumer.removed_us IS NULL
WHERE job.message_seq = :message_seq AND job.seq < :at AND job.created_us <= :until_us
AND (:consumer_seq = 0 OR job.consumer_seq = :consumer_seq) AND (:state = 0 OR job.state = :state)
ORDER BY job.seq + 0 DESC LIMIT :n;

-- name: page_jobs_of_state_before
-- A page of the jobs of one consumer in one state. Those after :last were made after :until_us.
SELECT job.seq, job.consumer_seq, job.state, job.hold, job.priority, job.retries, job.claims, job.created_us,
    job.changed_us, job.due_us, job.last_error, job.cancelled_us, job.lease_started_us, job.progress,
    job.message_seq, message.message_id
FROM job JOIN message ON message.seq = job.message_seq
WHERE job.consumer_seq = :consumer_seq AND job.state = :state AND job.seq > :at AND job.seq <= :last
AND job.created_us <= :until_us
ORDER BY job.seq ASC LIMIT :n;

-- name: page_jobs_of_message_before
-- The same of one message, which has a job for each consumer at most. + 0: all jobs are not walked in order.
SELECT job.seq, job.consumer_seq, job.state, job.hold, job.priority, job.retries, job.claims, job.created_us,
    job.changed_us, job.due_us, job.last_error, job.cancelled_us, job.lease_started_us, job.progress,
    job.message_seq, message.message_id
FROM job JOIN message ON message.seq = job.message_seq
JOIN consumer ON consumer.seq = job.consumer_seq AND consumer.removed_us IS NULL
WHERE job.message_seq = :message_seq AND job.seq > :at AND job.created_us <= :until_us
AND (:consumer_seq = 0 OR job.consumer_seq = :consumer_seq) AND (:state = 0 OR job.state = :state)
ORDER BY job.seq + 0 ASC LIMIT :n;

-- name: blockers
-- Of jobs that wait for their ordering key, the one that has it.
SELECT job.seq, other.seq AS by_seq, other.state, other.due_us, other.last_error
FROM job JOIN job AS other ON other.seq = (
    SELECT runner.seq FROM job AS runner
    WHERE runner.consumer_seq = job.consumer_seq AND runner.ordering_key = job.ordering_key
    AND runner.state IN (1001, 1002) AND (runner.state = 1002 OR runner.hold <> 2)
    ORDER BY runner.seq LIMIT 1
)
WHERE job.seq = ANY(ARRAY(
    SELECT value::bigint FROM json_array_elements_text(:seqs::json) AS value
)) AND job.state = 1001 AND job.hold = 2;

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
WHERE job.seq = ANY(ARRAY(
    SELECT value::bigint FROM json_array_elements_text(:seqs::json) AS value
))
ORDER BY job.seq;

-- name: attempts_of_jobs, by any plan
SELECT job_seq, number, kind, started_us, duration_us, status, error, excerpt FROM attempt
WHERE job_seq = ANY(ARRAY(
    SELECT value::bigint FROM json_array_elements_text(:seqs::json) AS value
))
ORDER BY job_seq, seq;

-- name: mark_consumers_well
UPDATE consumer SET failing_since_us = NULL WHERE failing_since_us IS NOT NULL AND seq = ANY(ARRAY(
    SELECT value::bigint FROM json_array_elements_text(:seqs::json) AS value
));

-- name: take_push_lanes
-- Of those that a process has which is there, none.
INSERT INTO push_lane (consumer_seq, node)
SELECT consumer.seq, :node
FROM json_array_elements_text(:seqs::json) AS wanted JOIN consumer ON consumer.seq = wanted.value::bigint
ORDER BY consumer.seq
ON CONFLICT (consumer_seq) DO UPDATE SET node = excluded.node
WHERE NOT EXISTS (SELECT 1 FROM push_node WHERE push_node.node = push_lane.node);

-- name: push_lanes_of
SELECT consumer_seq FROM push_lane
WHERE node = :node AND consumer_seq = ANY(ARRAY(
    SELECT value::bigint FROM json_array_elements_text(:seqs::json) AS value
));

-- name: drop_push_lanes
DELETE FROM push_lane
WHERE node = :node AND consumer_seq = ANY(ARRAY(
    SELECT value::bigint FROM json_array_elements_text(:seqs::json) AS value
));

-- name: add_calls
INSERT INTO push_calls (consumer_seq, at_us, bucket, n)
SELECT consumer.seq, :at_us, item.bucket, item.n
FROM json_to_recordset(:items::json) AS item (channel text, consumer text, bucket smallint, n bigint)
JOIN channel ON channel.channel_id = item.channel AND channel.removed_us IS NULL
JOIN consumer ON consumer.channel_seq = channel.seq AND consumer.removed_us IS NULL
    AND consumer.consumer_id = item.consumer
ORDER BY consumer.seq, item.bucket
ON CONFLICT (consumer_seq, at_us, bucket) DO UPDATE SET n = push_calls.n + excluded.n;
