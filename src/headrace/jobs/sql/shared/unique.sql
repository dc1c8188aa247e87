-- Messages that a publisher wants once.

-- name: find_unique
SELECT message.seq, message.message_id, message.scheduled_us, message.status, message.received_us
FROM unique_keys JOIN message ON message.seq = unique_keys.message_seq
WHERE unique_keys.channel_seq = :channel_seq AND unique_keys.digest = :digest;

-- name: states_of_message
SELECT DISTINCT state FROM job WHERE message_seq = :message_seq;

-- name: put_unique
INSERT INTO unique_keys (message_seq, channel_seq, digest) VALUES (:message_seq, :channel_seq, :digest)
ON CONFLICT (channel_seq, digest) DO UPDATE SET message_seq = excluded.message_seq;
