-- Whether a consumer of the channel may have a filter; if not, every message is for each of them.

ALTER TABLE channel ADD COLUMN filtered INTEGER NOT NULL DEFAULT 0;
