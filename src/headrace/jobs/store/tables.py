"""The tables that hold what users have, and the queries that carry them whole from one database to another.

Counts are kept by triggers, leads and shares of processes end by themselves, and calls of endpoints are
counted for a day only, so none of them is carried.
"""

from __future__ import annotations

from typing import Final

__all__ = ["BYTES", "FROZEN", "SETTINGS", "WHOLE", "whole_queries"]

_NAMED: Final = ("name", "token_hash", "created_us", "updated_us", "removed_us")

WHOLE: Final[dict[str, tuple[str, ...]]] = {
    "producer": ("seq", "producer_id", *_NAMED),
    "channel": ("seq", "channel_id", *_NAMED, "draining", "filtered", "events_seq"),
    "schedule": (
        *("seq", "channel_seq", "schedule_id", "cron", "time_zone", "missed", "paused", "payload"),
        *("content_type", "priority", "ordering_key", "headers", "next_us", "last_us"),
        *("created_us", "updated_us"),
    ),
    "consumer": (
        *("seq", "channel_seq", "consumer_id", "name", "token", "previous_token", "callback_url"),
        *("kind", "max_retries", "settings", "secrets", "paused", "disabled_us"),
        *("disabled_reason", "failing_since_us", "created_us", "updated_us", "removed_us"),
        "moves_to",
    ),
    "message": (
        *("seq", "channel_seq", "producer_seq", "message_id", "payload", "content_type"),
        *("priority", "ordering_key", "headers", "digest", "status", "received_us"),
        *("dispatched_us", "scheduled_us"),
    ),
    "unique_keys": ("message_seq", "channel_seq", "digest"),
    "job": (
        *("seq", "message_seq", "consumer_seq", "state", "hold", "priority", "ordering_key"),
        *("retries", "claims", "due_us", "lease", "lease_started_us", "lease_expires_us"),
        *("extra_s", "last_error", "changed_us", "created_us", "cancelled_us"),
        "progress",
    ),
    "attempt": (
        *("seq", "job_seq", "number", "kind", "started_us", "duration_us", "status", "error"),
        "excerpt",
    ),
    "event": ("seq", "at_us", "kind", "channel_id", "consumer_id", "detail"),
    "outcome": (
        *("seq", "at_us", "channel_id", "consumer_id", "message_id", "job_seq", "state"),
        *("retries", "error"),
    ),
    "api_key": (
        *("seq", "key_id", "name", "key_hash", "scopes", "channels", "created_us", "expires_us"),
        *("revoked_us", "last_used_us"),
    ),
    "audit": (
        *("seq", "at_us", "who", "key_id", "action", "object", "channel_id", "address"),
        *("request_id", "result", "detail"),
    ),
    "feed": (
        *("seq", "channel_id", "feed_id", "stream", "sequence", "stored_ns", "marks", "again"),
        *("again_until", "standing", "seen_us"),
    ),
    "removed_jobs": ("first_seq", "last_seq", "removed_us", "folder"),
}
"""Every table with its columns. Each refers to earlier ones only; the first column orders its rows."""

BYTES: Final = frozenset({"payload"})
"""The columns that hold bytes."""

SETTINGS: Final = (
    *("cursor_key", "database_id", "seed_digest", "seeded_consumers", "left_consumers"),
)
"""The keys of ``meta`` that belong to what users have."""

_FROZEN: Final = (*WHOLE, "meta", "leader")
FROZEN: Final = (
    "the database is read-only since it was exported (`headrace jobs unfreeze` ends that)"
)
"""Refusal of a change while it is frozen."""


# ruff: noqa: S608 - every name is one of the above


def whole_queries(dialect: str) -> dict[str, str]:
    """The queries, by name, in ``dialect``."""
    found: dict[str, str] = {}
    for table, columns in WHOLE.items():
        key, names = columns[0], ", ".join(columns)
        values = ", ".join(f":{column}" for column in columns)
        over = " OVERRIDING SYSTEM VALUE" if dialect == "postgres" and key == "seq" else ""
        found[f"whole_page_{table}"] = (
            f"SELECT * FROM {table} WHERE {key} > :after ORDER BY {key} LIMIT :n"
        )
        found[f"whole_insert_{table}"] = f"INSERT INTO {table} ({names}){over} VALUES ({values})"
        found[f"whole_count_{table}"] = f"SELECT count(*) AS n FROM {table}"
        if key == "seq":
            found |= _lasts(dialect, table)
    found["whole_states"] = "SELECT state, count(*) AS n FROM job GROUP BY state"
    for table in _FROZEN:
        found |= _freezing(dialect, table)
    return found


def _lasts(dialect: str, table: str) -> dict[str, str]:
    """The number that was given last: none is used twice, also if its row is gone."""
    if dialect == "sqlite":
        return {
            f"whole_last_{table}": "SELECT coalesce(max(seq), 0) AS last FROM sqlite_sequence "
            f"WHERE name = '{table}'",
            f"whole_forget_{table}": f"DELETE FROM sqlite_sequence WHERE name = '{table}'",
            f"whole_resume_{table}": f"INSERT INTO sqlite_sequence VALUES ('{table}', :last)",
        }
    return {
        f"whole_last_{table}": "SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS last "
        f"FROM {table}_seq_seq",
        f"whole_forget_{table}": "SELECT 1 WHERE false",
        f"whole_resume_{table}": f"SELECT setval('{table}_seq_seq', :last)",
    }


def _freezing(dialect: str, table: str) -> dict[str, str]:
    """Triggers that refuse every change, from whichever process."""
    changes = ("insert", "update", "delete")
    found = {}
    for change in changes:
        trigger = f"frozen_{table}_{change}"
        event = f"BEFORE {change.upper()} ON {table}"
        if dialect == "sqlite":
            # A step of the machine's clock is noted also then: whoever ends this notes it first.
            row = "OLD" if change == "delete" else "NEW"
            when = f" WHEN {row}.key <> 'clock'" if table == "meta" else ""
            made = (
                f"CREATE TRIGGER IF NOT EXISTS {trigger} {event}{when} "
                f"BEGIN SELECT RAISE(ABORT, '{FROZEN}'); END"
            )
            ended = f"DROP TRIGGER IF EXISTS {trigger}"
        else:
            made = (
                f"CREATE OR REPLACE TRIGGER {trigger} {event} FOR EACH STATEMENT "
                f"EXECUTE FUNCTION headrace_jobs_frozen('{FROZEN}')"
            )
            ended = f"DROP TRIGGER IF EXISTS {trigger} ON {table}"
        found[f"whole_freeze_{table}_{change}"] = made
        found[f"whole_thaw_{table}_{change}"] = ended
    return found
