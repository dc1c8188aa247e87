-- API keys, and who changed what, from where, with which result.

CREATE TABLE api_key (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    key_id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    key_hash TEXT NOT NULL,
    scopes TEXT NOT NULL,
    channels TEXT NOT NULL,
    created_us INTEGER NOT NULL,
    expires_us INTEGER,
    revoked_us INTEGER,
    last_used_us INTEGER
) STRICT;

CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at_us INTEGER NOT NULL,
    who TEXT NOT NULL,
    key_id TEXT,
    action TEXT NOT NULL,
    object TEXT NOT NULL,
    channel_id TEXT,
    address TEXT NOT NULL,
    request_id TEXT NOT NULL,
    result TEXT NOT NULL,
    detail TEXT
) STRICT;
CREATE INDEX audit_age ON audit (at_us);
CREATE INDEX audit_of_key ON audit (key_id, seq) WHERE key_id IS NOT NULL;
CREATE INDEX audit_of_channel ON audit (channel_id, seq) WHERE channel_id IS NOT NULL;
