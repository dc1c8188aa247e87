-- Producers, channels, consumers.

-- name: get_producer
SELECT * FROM producer WHERE producer_id = :producer_id AND removed_us IS NULL;

-- name: get_channel
SELECT * FROM channel WHERE channel_id = :channel_id AND removed_us IS NULL;

-- name: get_consumer
-- One row for an existing channel; the consumer's columns are null when there is no such consumer.
SELECT
    channel.seq AS channel_seq, channel.channel_id, channel.token_hash AS channel_token_hash,
    consumer.seq, consumer.consumer_id, consumer.name, consumer.token, consumer.callback_url,
    consumer.kind, consumer.max_retries, consumer.settings, consumer.secrets, consumer.paused,
    consumer.previous_token,
    consumer.disabled_us, consumer.disabled_reason, consumer.failing_since_us, consumer.created_us,
    consumer.updated_us
FROM channel
LEFT JOIN consumer ON consumer.channel_seq = channel.seq AND consumer.consumer_id = :consumer_id
    AND consumer.removed_us IS NULL
WHERE channel.channel_id = :channel_id AND channel.removed_us IS NULL;

-- name: get_publisher
-- One row for an existing channel; the producer's columns are null when there is no such producer.
SELECT
    channel.seq AS channel_seq, channel.token_hash AS channel_token_hash, channel.draining,
    channel.filtered, channel.channel_id,
    producer.seq AS producer_seq, producer.token_hash AS producer_token_hash
FROM channel
LEFT JOIN producer ON producer.producer_id = :producer_id AND producer.removed_us IS NULL
WHERE channel.channel_id = :channel_id AND channel.removed_us IS NULL;

-- name: insert_producer
INSERT INTO producer (producer_id, name, token_hash, created_us, updated_us)
VALUES (:producer_id, :name, :token_hash, :now, :now)
ON CONFLICT DO NOTHING RETURNING seq;

-- name: update_producer
UPDATE producer SET name = :name, token_hash = :token_hash, updated_us = :updated WHERE seq = :seq;

-- name: insert_channel
INSERT INTO channel (channel_id, name, token_hash, created_us, updated_us)
VALUES (:channel_id, :name, :token_hash, :now, :now)
ON CONFLICT DO NOTHING RETURNING seq;

-- name: update_channel
UPDATE channel SET name = :name, token_hash = :token_hash, updated_us = :updated WHERE seq = :seq;

-- name: insert_consumer
-- Its secrets follow, in the same transaction: they are sealed for the number of the row.
INSERT INTO consumer (
    channel_seq, consumer_id, name, token, callback_url, kind, max_retries, settings, secrets,
    created_us, updated_us
) VALUES (
    :channel_seq, :consumer_id, :name, '', :callback_url, :kind, :max_retries, :settings, '[]',
    :now, :now
)
ON CONFLICT DO NOTHING RETURNING seq;

-- name: put_secrets
UPDATE consumer SET token = :token, previous_token = :previous_token, secrets = :secrets WHERE seq = :seq;

-- name: update_consumer
UPDATE consumer SET
    name = :name, token = :token, previous_token = :previous_token, callback_url = :callback_url,
    kind = :kind,
    max_retries = :max_retries, settings = :settings, secrets = :secrets, paused = :paused,
    disabled_us = :disabled_us, disabled_reason = :disabled_reason,
    failing_since_us = :failing_since_us, updated_us = :updated
WHERE seq = :seq;

-- name: hide_consumer
-- It cannot be found any more, and its id is free: no id has such a character.
UPDATE consumer SET removed_us = :now, updated_us = :updated, consumer_id = consumer_id || '~' || seq,
    moves_to = :moves_to
WHERE seq = :seq;

-- name: hide_channel
UPDATE channel SET removed_us = :now, channel_id = channel_id || '~' || seq WHERE seq = :seq;

-- name: hide_producer
UPDATE producer SET removed_us = :now, producer_id = producer_id || '~' || seq WHERE seq = :seq;

-- name: forget_moves
-- Their target goes, too.
UPDATE consumer SET moves_to = NULL WHERE channel_seq = :channel_seq AND removed_us IS NOT NULL;

-- name: moved_to
-- Deleted consumers whose jobs are on their way to this one.
SELECT seq FROM consumer WHERE removed_us IS NOT NULL AND moves_to = :seq;

-- name: drain_channel
UPDATE channel SET draining = :draining, updated_us = :updated WHERE seq = :seq;

-- name: set_events_channel
UPDATE channel SET events_seq = :events_seq, updated_us = :updated WHERE seq = :seq;

-- name: events_channel_of
SELECT target.seq, target.channel_id FROM channel
JOIN channel AS target ON target.seq = channel.events_seq AND target.removed_us IS NULL
WHERE channel.seq = :seq;

-- name: told_by
-- A channel that tells this one.
SELECT channel_id FROM channel WHERE events_seq = :seq AND removed_us IS NULL LIMIT 1;

-- name: notices_of_consumer
SELECT consumer.consumer_id, channel.channel_id, target.seq AS target_seq,
    target.filtered AS target_filtered
FROM consumer
JOIN channel ON channel.seq = consumer.channel_seq
JOIN channel AS target ON target.seq = channel.events_seq AND target.removed_us IS NULL
    AND target.draining = 0
WHERE consumer.seq = :seq;

-- name: hold_channel
-- Whoever else changes it waits; publishers do not.
UPDATE channel SET filtered = filtered WHERE seq = :seq;

-- name: note_filtered
UPDATE channel SET filtered = :filtered WHERE seq = :seq;

-- name: filters_of_channel
SELECT seq, settings FROM consumer WHERE channel_seq = :channel_seq AND removed_us IS NULL ORDER BY seq;

-- name: next_hidden_channel
SELECT seq FROM channel
WHERE removed_us IS NOT NULL AND NOT EXISTS (SELECT 1 FROM consumer WHERE channel_seq = channel.seq)
ORDER BY seq LIMIT 1;

-- name: delete_hidden_channel
DELETE FROM channel
WHERE seq = :seq AND NOT EXISTS (SELECT 1 FROM message WHERE channel_seq = :seq);

-- name: delete_hidden_producers
DELETE FROM producer
WHERE removed_us IS NOT NULL AND NOT EXISTS (SELECT 1 FROM message WHERE producer_seq = producer.seq);

-- name: delete_hidden_consumer
DELETE FROM consumer WHERE seq = :seq AND NOT EXISTS (SELECT 1 FROM job WHERE consumer_seq = :seq);

-- name: hidden_consumers
SELECT seq, moves_to FROM consumer WHERE removed_us IS NOT NULL ORDER BY seq;

-- name: mark_consumer_failing
-- The first failure after a success.
UPDATE consumer SET failing_since_us = :now WHERE seq = :seq AND failing_since_us IS NULL;

-- name: failing_since
SELECT failing_since_us FROM consumer WHERE seq = :seq;

-- name: disable_consumer
UPDATE consumer SET disabled_us = :now, disabled_reason = :reason
WHERE seq = :seq AND disabled_us IS NULL;

-- name: list_push_consumers
SELECT consumer.*, channel.channel_id
FROM consumer JOIN channel ON channel.seq = consumer.channel_seq
WHERE consumer.kind = 'push' AND consumer.paused = 0 AND consumer.disabled_us IS NULL
AND consumer.removed_us IS NULL;

-- name: definitions_stamp, by any plan
-- Any change of a consumer makes another row: what push lanes go by has to be read again.
SELECT count(*) AS consumers, max(updated_us) AS newest_us, sum(updated_us & 1073741823) AS versions,
    count(disabled_us) AS disabled, count(failing_since_us) AS failing, count(removed_us) AS removed,
    sum(paused) AS paused
FROM consumer;

-- name: list_all_consumers
SELECT consumer.seq, consumer.consumer_id, consumer.name, consumer.kind, consumer.paused,
    consumer.disabled_us, consumer.disabled_reason, consumer.failing_since_us,
    channel.channel_id, channel.name AS channel_name
FROM consumer JOIN channel ON channel.seq = consumer.channel_seq
WHERE consumer.removed_us IS NULL
ORDER BY channel.channel_id, consumer.consumer_id;

-- name: consumers_behind, by any plan
SELECT consumer.seq, consumer.consumer_id, channel.channel_id
FROM consumer JOIN channel ON channel.seq = consumer.channel_seq
WHERE consumer.removed_us IS NULL
    AND (channel.channel_id, consumer.consumer_id) > (:channel_id, :consumer_id)
ORDER BY channel.channel_id, consumer.consumer_id LIMIT :n;

-- name: count_consumers
SELECT count(*) AS n FROM consumer WHERE removed_us IS NULL;

-- name: page_producers_after
SELECT seq, producer_id FROM producer WHERE seq < :at AND removed_us IS NULL ORDER BY seq DESC LIMIT :n;

-- name: page_producers_before
SELECT seq, producer_id FROM producer WHERE seq > :at AND removed_us IS NULL ORDER BY seq LIMIT :n;

-- name: page_channels_after
SELECT seq, channel_id FROM channel WHERE seq < :at AND removed_us IS NULL ORDER BY seq DESC LIMIT :n;

-- name: page_channels_before
SELECT seq, channel_id FROM channel WHERE seq > :at AND removed_us IS NULL ORDER BY seq LIMIT :n;

-- name: page_consumers_after
SELECT seq, consumer_id FROM consumer
WHERE channel_seq = :channel_seq AND seq < :at AND removed_us IS NULL ORDER BY seq DESC LIMIT :n;

-- name: page_consumers_before
SELECT seq, consumer_id FROM consumer
WHERE channel_seq = :channel_seq AND seq > :at AND removed_us IS NULL ORDER BY seq LIMIT :n;

-- name: page_secrets
-- What is secret of consumers, also of those whose jobs are still being removed.
SELECT seq, token, previous_token, secrets FROM consumer WHERE seq > :after ORDER BY seq LIMIT :n;

-- name: reseal_consumer
UPDATE consumer SET token = :token, previous_token = :previous_token, secrets = :secrets
WHERE seq = :seq AND token = :was_token AND coalesce(previous_token, '') = :was_previous
    AND secrets = :was_secrets;
