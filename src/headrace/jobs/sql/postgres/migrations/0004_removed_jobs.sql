-- Which jobs retention removed, and where they went, as ranges of numbers that were removed together.

CREATE TABLE removed_jobs (
    first_seq BIGINT PRIMARY KEY,
    last_seq BIGINT NOT NULL,
    removed_us BIGINT NOT NULL,
    folder TEXT
);
CREATE INDEX removed_jobs_by_age ON removed_jobs (removed_us);
