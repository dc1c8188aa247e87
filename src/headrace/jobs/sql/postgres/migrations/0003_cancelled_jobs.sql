-- A job that was cancelled is dead; one that runs is, as soon as its claim ends without being completed.

ALTER TABLE job ADD COLUMN cancelled_us BIGINT;
