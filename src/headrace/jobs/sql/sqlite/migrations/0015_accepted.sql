-- Messages that were stored and wait for their jobs, which are made some at a time: status 101, without scheduled_us.

CREATE INDEX message_accepted ON message (channel_seq, seq) WHERE status = 101 AND scheduled_us IS NULL;
