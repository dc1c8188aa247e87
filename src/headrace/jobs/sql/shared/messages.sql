-- Messages and their fan-out.

-- name: insert_message
INSERT INTO message (
    channel_seq, producer_seq, message_id, payload, content_type, priority, ordering_key, headers,
    digest, status, received_us, dispatched_us, scheduled_us
) VALUES (
    :channel_seq, :producer_seq, :message_id, :payload, :content_type, :priority, :ordering_key, :headers,
    :digest, :status, :now, :dispatched_us, :scheduled_us
)
ON CONFLICT DO NOTHING RETURNING seq;

-- name: get_message
SELECT message.*, producer.producer_id, producer.name AS producer_name
FROM message LEFT JOIN producer ON producer.seq = message.producer_seq
WHERE message.channel_seq = :channel_seq AND message.message_id = :message_id;

-- name: get_digest
SELECT seq, digest, scheduled_us FROM message WHERE channel_seq = :channel_seq AND message_id = :message_id;

-- name: fan_out
-- One job for every consumer of the channel, in the transaction of the message.
INSERT INTO job (
    message_seq, consumer_seq, state, hold, priority, ordering_key, due_us, changed_us, created_us
)
SELECT :message_seq, consumer.seq, 1001, 0, :priority, NULL, :now, :now, :now
FROM consumer WHERE consumer.channel_seq = :channel_seq AND consumer.removed_us IS NULL
ORDER BY consumer.seq
RETURNING consumer_seq;

-- name: fan_out_keyed
-- The same with an ordering key: a job waits behind any unfinished one of its key.
INSERT INTO job (
    message_seq, consumer_seq, state, hold, priority, ordering_key, due_us, changed_us, created_us
)
SELECT
    :message_seq, consumer.seq, 1001,
    CASE WHEN EXISTS (
        SELECT 1 FROM job AS other
        WHERE other.consumer_seq = consumer.seq AND other.ordering_key = :ordering_key
        AND other.state IN (1001, 1002)
    ) THEN 2 ELSE 0 END,
    :priority, :ordering_key, :now, :now, :now
FROM consumer WHERE consumer.channel_seq = :channel_seq AND consumer.removed_us IS NULL
ORDER BY consumer.seq
RETURNING consumer_seq;

-- name: dispatch_message
UPDATE message SET status = 102, dispatched_us = :now WHERE seq = :seq AND status = 101;

-- name: cancel_message
DELETE FROM message WHERE channel_seq = :channel_seq AND message_id = :message_id AND status = 101;

-- name: next_scheduled_of_channel_us
SELECT min(scheduled_us) AS at_us FROM message WHERE channel_seq = :channel_seq AND status = 101;

-- name: page_messages_after
SELECT seq, message_id FROM message
WHERE channel_seq = :channel_seq AND status = 102 AND seq < :at ORDER BY seq DESC LIMIT :n;

-- name: page_messages_before
SELECT seq, message_id FROM message
WHERE channel_seq = :channel_seq AND status = 102 AND seq > :at ORDER BY seq LIMIT :n;

-- name: page_scheduled_after
SELECT seq, message_id FROM message
WHERE channel_seq = :channel_seq AND scheduled_us IS NOT NULL
AND (:status = 0 OR status = :status) AND seq < :at ORDER BY seq DESC LIMIT :n;

-- name: page_scheduled_before
SELECT seq, message_id FROM message
WHERE channel_seq = :channel_seq AND scheduled_us IS NOT NULL
AND (:status = 0 OR status = :status) AND seq > :at ORDER BY seq LIMIT :n;

-- name: jobs_of_message
SELECT job.seq, job.state, job.changed_us, consumer.name, consumer.callback_url, consumer.consumer_id
FROM job JOIN consumer ON consumer.seq = job.consumer_seq
WHERE job.message_seq = :message_seq AND consumer.removed_us IS NULL ORDER BY job.consumer_seq LIMIT :n;
