-- Schedules.

-- name: put_schedule
INSERT INTO schedule (
    channel_seq, schedule_id, cron, time_zone, missed, paused, payload, content_type, priority,
    ordering_key, headers, next_us, created_us, updated_us
) VALUES (
    :channel_seq, :schedule_id, :cron, :time_zone, :missed, :paused, :payload, :content_type, :priority,
    :ordering_key, :headers, :next_us, :now, :now
)
ON CONFLICT (channel_seq, schedule_id) DO UPDATE SET
    cron = excluded.cron, time_zone = excluded.time_zone, missed = excluded.missed,
    paused = excluded.paused, payload = excluded.payload, content_type = excluded.content_type,
    priority = excluded.priority, ordering_key = excluded.ordering_key, headers = excluded.headers,
    next_us = excluded.next_us, updated_us = excluded.updated_us;

-- name: get_schedule
SELECT * FROM schedule WHERE channel_seq = :channel_seq AND schedule_id = :schedule_id;

-- name: list_schedules
SELECT schedule_id, cron, time_zone, missed, paused, next_us, last_us FROM schedule
WHERE channel_seq = :channel_seq ORDER BY schedule_id LIMIT :n;

-- name: delete_schedule
DELETE FROM schedule WHERE channel_seq = :channel_seq AND schedule_id = :schedule_id;

-- name: move_schedule
UPDATE schedule SET next_us = :next_us, last_us = :last_us WHERE seq = :seq;

-- name: stop_schedule
UPDATE schedule SET paused = 1 WHERE seq = :seq;
