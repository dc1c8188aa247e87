-- A consumer that was deleted is out of sight at once; its jobs are removed in slices, then its row.

ALTER TABLE consumer ADD COLUMN removed_us INTEGER;
CREATE INDEX consumer_removed ON consumer (seq) WHERE removed_us IS NOT NULL;
