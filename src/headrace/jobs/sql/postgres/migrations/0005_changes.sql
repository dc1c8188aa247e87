-- A pull consumer's token before this one is accepted, too, until the next change of tokens.

ALTER TABLE consumer ADD COLUMN previous_token TEXT;

-- The jobs of a consumer that was deleted go to this one of the same channel.
ALTER TABLE consumer ADD COLUMN moves_to BIGINT;

-- A channel that is drained takes no more messages; one that was deleted is out of sight at once, and its
-- messages are removed in slices. A producer that was deleted stays for as long as it has messages.
ALTER TABLE channel ADD COLUMN draining INTEGER NOT NULL DEFAULT 0;
ALTER TABLE channel ADD COLUMN removed_us BIGINT;
CREATE INDEX channel_removed ON channel (seq) WHERE removed_us IS NOT NULL;
ALTER TABLE producer ADD COLUMN removed_us BIGINT;
CREATE INDEX producer_removed ON producer (seq) WHERE removed_us IS NOT NULL;

-- Refuses a change, in the words of the trigger, with the code of a transaction that is read-only.
CREATE FUNCTION headrace_jobs_frozen() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = '25006';
END $$;
