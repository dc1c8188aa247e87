-- API keys, and who changed what, from where, with which result.

CREATE TABLE api_key (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key_id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    key_hash TEXT NOT NULL,
    scopes TEXT NOT NULL,
    channels TEXT NOT NULL,
    created_us BIGINT NOT NULL,
    expires_us BIGINT,
    revoked_us BIGINT,
    last_used_us BIGINT
);

CREATE TABLE audit (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at_us BIGINT NOT NULL,
    who TEXT NOT NULL,
    key_id TEXT,
    action TEXT NOT NULL,
    object TEXT NOT NULL,
    channel_id TEXT,
    address TEXT NOT NULL,
    request_id TEXT NOT NULL,
    result TEXT NOT NULL,
    detail TEXT
);
CREATE INDEX audit_age ON audit (at_us);
CREATE INDEX audit_of_key ON audit (key_id, seq) WHERE key_id IS NOT NULL;
CREATE INDEX audit_of_channel ON audit (channel_id, seq) WHERE channel_id IS NOT NULL;
