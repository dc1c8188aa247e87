-- Which jobs retention removed, and where they went, as ranges of numbers that were removed together.

CREATE TABLE removed_jobs (
    first_seq INTEGER PRIMARY KEY,
    last_seq INTEGER NOT NULL,
    removed_us INTEGER NOT NULL,
    folder TEXT
) STRICT;
CREATE INDEX removed_jobs_by_age ON removed_jobs (removed_us);
