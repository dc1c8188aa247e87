-- Whole requests in one statement, for PostgreSQL: each makes sure that what is remembered of who asks still
-- holds. Where it does not, it has no rows, and has done nothing. :now is null, or a test's clock. Each is planned
-- once, maybe for tables that are still empty: + 0 and ORDER BY leave it the one index that is right for full ones,
-- and a LIMIT that leaves out nothing lets it begin with what was asked.

-- name: publish_briefly
-- Messages without keys, schedules and filters, with their jobs; one row of each new message for each job, or one
-- without a consumer.
WITH clock AS MATERIALIZED (
    SELECT coalesce(:now::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), allowed AS MATERIALIZED (
    SELECT item.place, channel.seq AS channel_seq, producer.seq AS producer_seq
    FROM (
        SELECT * FROM json_to_recordset(:publishers::json) AS item (
            place integer, channel_seq bigint, channel_id text, channel_hash text, producer_seq bigint,
            producer_id text, producer_hash text
        )
        LIMIT json_array_length(:publishers::json)
    ) AS item
    JOIN channel ON channel.seq = item.channel_seq AND channel.channel_id = item.channel_id
        AND channel.token_hash = item.channel_hash AND channel.draining = 0 AND channel.filtered = 0
    LEFT JOIN producer ON producer.seq = item.producer_seq
        AND producer.producer_id = item.producer_id AND producer.token_hash = item.producer_hash
    WHERE item.producer_seq IS NULL OR producer.seq IS NOT NULL
), stored AS (
    INSERT INTO message (
        channel_seq, producer_seq, message_id, payload, content_type, priority, headers,
        digest, status, received_us, dispatched_us, scheduled_us
    )
    SELECT
        allowed.channel_seq, allowed.producer_seq, item.message_id,
        substring(:payloads::bytea FROM item.at + 1 FOR item.size), item.content_type, item.priority,
        item.headers, item.digest, 102, clock.now, clock.now, NULL
    FROM clock, json_to_recordset(:items::json) AS item (
        place integer, publisher integer, message_id text, at integer, size integer,
        content_type text, priority integer, headers text, digest text
    )
    JOIN allowed ON allowed.place = item.publisher
    ORDER BY item.place
    ON CONFLICT DO NOTHING RETURNING seq, channel_seq, message_id, priority, received_us
), made AS (
    INSERT INTO job (message_seq, consumer_seq, state, hold, priority, due_us, changed_us, created_us)
    SELECT stored.seq, consumer.seq, 1001, 0, stored.priority, stored.received_us, stored.received_us,
        stored.received_us
    FROM stored
    JOIN consumer ON consumer.channel_seq = stored.channel_seq AND consumer.removed_us IS NULL
    ORDER BY stored.seq, consumer.seq
    RETURNING message_seq, consumer_seq
)
SELECT stored.channel_seq, stored.message_id, made.consumer_seq
FROM stored LEFT JOIN made ON made.message_seq = stored.seq;

-- name: claim_briefly
-- One job for each of :n clients of one consumer, with its message; one row without a job if none is ready. No row
-- where jobs are due that have to be moved first.
WITH clock AS MATERIALIZED (
    SELECT coalesce(:now::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), allowed AS MATERIALIZED (
    SELECT clock.now FROM clock, consumer JOIN channel ON channel.seq = consumer.channel_seq
    WHERE consumer.seq = :consumer_seq AND consumer.updated_us = :version
    AND consumer.disabled_us IS NULL AND consumer.removed_us IS NULL
    AND channel.channel_id = :channel_id AND channel.token_hash = :channel_hash
    AND coalesce((
        SELECT due_us FROM job
        WHERE job.consumer_seq = :consumer_seq AND job.state = 1001 AND job.hold = 1
        ORDER BY due_us LIMIT 1
    ) > clock.now, true)
), picked AS (
    SELECT seq FROM job
    WHERE consumer_seq = :consumer_seq AND state = 1001 AND hold = 0 AND EXISTS (SELECT 1 FROM allowed)
    ORDER BY priority DESC, seq LIMIT :n FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE job SET
        state = 1002, lease = :lease::text || '.' || job.seq, lease_started_us = allowed.now,
        lease_expires_us = allowed.now + :lease_us::bigint, claims = claims + 1, changed_us = allowed.now
    FROM picked, allowed WHERE job.seq = picked.seq
    RETURNING job.seq, job.message_seq, job.lease, job.lease_expires_us, job.priority, job.retries,
        job.claims, job.ordering_key, job.created_us
)
SELECT taken.*, message.message_id, message.content_type, message.headers, message.payload
FROM allowed LEFT JOIN taken ON true LEFT JOIN message ON message.seq = taken.message_seq;

-- name: complete_briefly
-- Those of :seqs that are held under :leases, without keys, and that failed less than :failing times. A join would
-- let a plan begin with all jobs.
WITH clock AS MATERIALIZED (
    SELECT coalesce(:now::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), allowed AS MATERIALIZED (
    SELECT clock.now FROM clock, consumer JOIN channel ON channel.seq = consumer.channel_seq
    WHERE consumer.seq = :consumer_seq AND consumer.updated_us = :version
    AND consumer.removed_us IS NULL
    AND channel.channel_id = :channel_id AND channel.token_hash = :channel_hash
)
UPDATE job SET state = 1003, changed_us = allowed.now, lease_expires_us = NULL, extra_s = 0
FROM allowed
WHERE job.seq = ANY (:seqs::bigint[]) AND job.lease = :leases::json ->> job.seq::text
AND job.consumer_seq + 0 = :consumer_seq AND job.state + 0 = 1002
AND job.ordering_key IS NULL AND job.retries < :failing
RETURNING job.seq;

-- name: push_claim_briefly
-- The same for a push lane of the process :node: up to :n jobs.
WITH clock AS MATERIALIZED (
    SELECT coalesce(:now::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), allowed AS MATERIALIZED (
    SELECT clock.now FROM clock, consumer
    WHERE consumer.seq = :consumer_seq AND consumer.updated_us = :version
    AND consumer.disabled_us IS NULL AND consumer.removed_us IS NULL
    AND EXISTS (SELECT 1 FROM push_lane WHERE push_lane.consumer_seq = :consumer_seq AND node = :node)
    AND coalesce((
        SELECT due_us FROM job
        WHERE job.consumer_seq = :consumer_seq AND job.state = 1001 AND job.hold = 1
        ORDER BY due_us LIMIT 1
    ) > clock.now, true)
), picked AS (
    SELECT seq FROM job
    WHERE consumer_seq = :consumer_seq AND state = 1001 AND hold = 0 AND EXISTS (SELECT 1 FROM allowed)
    ORDER BY priority DESC, seq LIMIT :n FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE job SET
        state = 1002, lease = :lease::text, lease_started_us = allowed.now,
        lease_expires_us = allowed.now + :lease_us::bigint, claims = claims + 1, changed_us = allowed.now
    FROM picked, allowed WHERE job.seq = picked.seq
    RETURNING job.seq, job.message_seq, job.lease, job.lease_expires_us, job.priority, job.retries,
        job.claims, job.ordering_key, job.created_us
)
SELECT taken.*, message.message_id, message.content_type, message.headers, message.payload
FROM allowed LEFT JOIN taken ON true LEFT JOIN message ON message.seq = taken.message_seq;

-- name: push_note_briefly
-- As complete_briefly, of an endpoint that was not failing, with an attempt for each.
WITH clock AS MATERIALIZED (
    SELECT coalesce(:now::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now
), allowed AS MATERIALIZED (
    SELECT clock.now FROM clock, consumer
    WHERE consumer.seq = :consumer_seq AND consumer.updated_us = :version
    AND consumer.removed_us IS NULL AND consumer.failing_since_us IS NULL
), done AS (
    UPDATE job SET state = 1003, changed_us = allowed.now, lease_expires_us = NULL, extra_s = 0
    FROM allowed
    WHERE job.seq = ANY (:seqs::bigint[]) AND job.lease = :leases::json ->> job.seq::text
    AND job.consumer_seq + 0 = :consumer_seq AND job.state + 0 = 1002
    AND job.ordering_key IS NULL AND job.retries < :failing
    RETURNING job.seq
), noted AS (
    INSERT INTO attempt (job_seq, number, kind, started_us, duration_us, status, error, excerpt)
    SELECT job_seq, number, kind, started_us, duration_us, status, error, excerpt
    FROM json_to_recordset(:items::json) AS item (
        job_seq bigint, number integer, kind text, started_us bigint, duration_us bigint,
        status integer, error text, excerpt text
    )
    JOIN done ON done.seq = item.job_seq
)
SELECT done.seq FROM done;
