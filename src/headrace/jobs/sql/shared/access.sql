-- API keys and the audit log.

-- name: insert_key
INSERT INTO api_key (key_id, name, key_hash, scopes, channels, created_us, expires_us)
VALUES (:key_id, :name, :key_hash, :scopes, :channels, :now, :expires_us)
RETURNING *;

-- name: get_key
SELECT * FROM api_key WHERE key_id = :key_id;

-- name: count_keys
SELECT count(*) AS n FROM api_key;

-- name: page_keys_after
SELECT * FROM api_key WHERE seq < :at ORDER BY seq DESC LIMIT :n;

-- name: page_keys_before
SELECT * FROM api_key WHERE seq > :at ORDER BY seq LIMIT :n;

-- name: revoke_key
UPDATE api_key SET revoked_us = :now WHERE seq = :seq AND revoked_us IS NULL;

-- name: note_key_used
UPDATE api_key SET last_used_us = :now WHERE seq = :seq AND (last_used_us IS NULL OR last_used_us < :now);

-- name: prune_keys
DELETE FROM api_key WHERE revoked_us < :before OR expires_us < :before;

-- name: insert_audit
INSERT INTO audit (at_us, who, key_id, action, object, channel_id, address, request_id, result, detail)
VALUES (:now, :who, :key_id, :action, :object, :channel_id, :address, :request_id, :result, :detail);

-- name: page_audit_after
SELECT * FROM audit WHERE seq < :at ORDER BY seq DESC LIMIT :n;

-- name: page_audit_before
SELECT * FROM audit WHERE seq > :at ORDER BY seq LIMIT :n;

-- name: page_audit_of_key_after
SELECT * FROM audit WHERE key_id = :key_id AND seq < :at ORDER BY seq DESC LIMIT :n;

-- name: page_audit_of_key_before
SELECT * FROM audit WHERE key_id = :key_id AND seq > :at ORDER BY seq LIMIT :n;

-- name: page_audit_of_channel_after
SELECT * FROM audit WHERE channel_id = :channel_id AND seq < :at ORDER BY seq DESC LIMIT :n;

-- name: page_audit_of_channel_before
SELECT * FROM audit WHERE channel_id = :channel_id AND seq > :at ORDER BY seq LIMIT :n;

-- name: prune_audit, by any plan
DELETE FROM audit WHERE seq IN (SELECT seq FROM audit WHERE at_us < :before ORDER BY at_us LIMIT :n);
