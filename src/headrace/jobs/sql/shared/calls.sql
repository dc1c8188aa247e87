-- How long calls of endpoints took, and how many failed.

-- name: calls_of_consumer
SELECT at_us, bucket, n FROM push_calls
WHERE consumer_seq = :consumer_seq AND at_us >= :since ORDER BY at_us, bucket;

-- name: prune_calls, by any plan
DELETE FROM push_calls WHERE (consumer_seq, at_us, bucket) IN (
    SELECT consumer_seq, at_us, bucket FROM push_calls WHERE at_us < :before ORDER BY at_us LIMIT :n
);
