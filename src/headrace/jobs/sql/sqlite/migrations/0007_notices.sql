-- The channel that is told what happens to the jobs of this one.

ALTER TABLE channel ADD COLUMN events_seq INTEGER;
CREATE INDEX channel_told ON channel (events_seq) WHERE events_seq IS NOT NULL;
