-- A pull consumer's token before this one is accepted, too, until the next change of tokens.

ALTER TABLE consumer ADD COLUMN previous_token TEXT;

-- The jobs of a consumer that was deleted go to this one of the same channel.
ALTER TABLE consumer ADD COLUMN moves_to INTEGER;

-- A channel that is drained takes no more messages; one that was deleted is out of sight at once, and its
-- messages are removed in slices. A producer that was deleted stays for as long as it has messages.
ALTER TABLE channel ADD COLUMN draining INTEGER NOT NULL DEFAULT 0;
ALTER TABLE channel ADD COLUMN removed_us INTEGER;
CREATE INDEX channel_removed ON channel (seq) WHERE removed_us IS NOT NULL;
ALTER TABLE producer ADD COLUMN removed_us INTEGER;
CREATE INDEX producer_removed ON producer (seq) WHERE removed_us IS NOT NULL;

CREATE TRIGGER job_handed AFTER UPDATE OF consumer_seq ON job
WHEN OLD.consumer_seq <> NEW.consumer_seq AND OLD.state = NEW.state BEGIN
    INSERT INTO counter VALUES ('job', OLD.consumer_seq, OLD.state, -1)
    ON CONFLICT DO UPDATE SET n = n - 1;
    INSERT INTO counter VALUES ('job', NEW.consumer_seq, NEW.state, 1)
    ON CONFLICT DO UPDATE SET n = n + 1;
END;
