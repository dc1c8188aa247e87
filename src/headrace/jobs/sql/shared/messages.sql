-- Messages and their fan-out.

-- name: get_message
SELECT message.*, producer.producer_id, producer.name AS producer_name
FROM message LEFT JOIN producer ON producer.seq = message.producer_seq
WHERE message.channel_seq = :channel_seq AND message.message_id = :message_id;

-- name: get_digest
SELECT seq, digest, scheduled_us FROM message WHERE channel_seq = :channel_seq AND message_id = :message_id;

-- name: cancel_message
DELETE FROM message WHERE channel_seq = :channel_seq AND message_id = :message_id AND status = 101
AND scheduled_us IS NOT NULL;

-- name: last_accepted
-- The last one of a channel that waits for its jobs.
SELECT max(seq) AS seq FROM message
WHERE channel_seq = :channel_seq AND status = 101 AND scheduled_us IS NULL;

-- name: waiting_channels, by any plan
SELECT seq FROM channel WHERE EXISTS (
    SELECT 1 FROM message
    WHERE channel_seq = channel.seq AND status = 101 AND scheduled_us IS NULL
) ORDER BY seq;

-- name: page_accepted_after
SELECT seq, message_id FROM message
WHERE channel_seq = :channel_seq AND status = 101 AND scheduled_us IS NULL AND seq < :at
ORDER BY seq DESC LIMIT :n;

-- name: page_accepted_before
SELECT seq, message_id FROM message
WHERE channel_seq = :channel_seq AND status = 101 AND scheduled_us IS NULL AND seq > :at
ORDER BY seq LIMIT :n;

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
