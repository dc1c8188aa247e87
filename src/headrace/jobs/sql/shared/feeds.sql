-- Channels fed by a stream, and up to where.

-- name: begin_feed
INSERT INTO feed (channel_id, feed_id, stream) VALUES (:channel_id, :feed_id, :stream)
ON CONFLICT (channel_id, feed_id) DO UPDATE SET stream = excluded.stream
RETURNING *;

-- name: get_feed
SELECT * FROM feed WHERE channel_id = :channel_id AND feed_id = :feed_id;

-- name: list_feeds
SELECT * FROM feed ORDER BY channel_id, feed_id;

-- name: move_feed
-- Nothing if it was moved by another one, or has been asked to go back since it was read.
UPDATE feed SET sequence = :sequence, stored_ns = :stored_ns, marks = :marks
WHERE seq = :seq AND sequence = :was AND stored_ns = :was_ns AND again IS NULL;

-- name: place_feed
UPDATE feed SET sequence = :sequence, stored_ns = :stored_ns, marks = :marks, again_until = :again_until
WHERE seq = :seq;

-- name: ask_feed_again
UPDATE feed SET again = :again WHERE seq = :seq;

-- name: end_feed_again
-- Unless another one was asked for meanwhile.
UPDATE feed SET again = NULL WHERE seq = :seq AND again = :again;

-- name: note_feed
UPDATE feed SET standing = :standing, seen_us = :now WHERE seq = :seq;

-- name: forget_feeds
DELETE FROM feed WHERE channel_id = :channel_id;

-- name: unfinished_of_channel
SELECT coalesce(sum(counter.n), 0) AS n FROM consumer
JOIN counter ON counter.scope = 'job' AND counter.ref = consumer.seq AND counter.kind IN (1001, 1002)
WHERE consumer.channel_seq = :channel_seq AND consumer.removed_us IS NULL;
