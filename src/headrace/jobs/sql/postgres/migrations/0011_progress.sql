-- How far a job is, as its worker said last: JSON with done, note and at_us.

ALTER TABLE job ADD COLUMN progress TEXT;
