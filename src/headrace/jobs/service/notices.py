"""Notices of what happens to the jobs of a channel, as messages of another: the one ``events_seq`` names.

A notice is stored in the transaction of what it tells, so that it is told once, if that has happened. A
channel that gets notices has no such channel itself: no notice is about the jobs of notices.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from ..matching.filters import SUBJECT
from ..models import NewMessage, rfc3339
from ..store import Row, Tx
from .storing import Fresh, store_messages

__all__ = ["FAILING_FROM", "tell_of_consumer", "tell_of_jobs"]

FAILING_FROM: Final = 4
"""A job is failing from this failure in a row on, and has recovered if it is delivered after that."""


def tell_of_jobs(tx: Tx, kinds: Mapping[int, str], now: int) -> None:
    """Tell that these jobs, by number, are ``failing``, ``dead``, or have ``recovered``."""
    if not kinds:
        return
    rows = tx.all("notices_of_jobs", seqs=json.dumps(sorted(kinds)))
    _store(
        tx,
        rows,
        [
            (
                f"job.{kinds[row['seq']]}",
                {
                    "channel": row["channel_id"],
                    "consumer": row["consumer_id"],
                    "job": str(row["seq"]),
                    "message": row["message_id"],
                    "retries": row["retries"],
                    "error": row["last_error"],
                },
            )
            for row in rows
        ],
        now,
    )


def tell_of_consumer(tx: Tx, consumer_seq: int, kind: str, reason: str | None, now: int) -> None:
    """Tell that a consumer was ``disabled``, or ``enabled`` again."""
    rows = tx.all("notices_of_consumer", seq=consumer_seq)
    _store(
        tx,
        rows,
        [
            (
                f"consumer.{kind}",
                {"channel": row["channel_id"], "consumer": row["consumer_id"], "error": reason},
            )
            for row in rows
        ],
        now,
    )


def _store(
    tx: Tx, rows: Sequence[Row], told: Sequence[tuple[str, dict[str, Any]]], now: int
) -> None:
    """Store one message for each row, in the channel ``target_seq``."""
    if not rows:
        return
    store_messages(
        tx,
        [
            Fresh(row["target_seq"], None, _message(kind, what, now), bool(row["target_filtered"]))
            for row, (kind, what) in zip(rows, told, strict=True)
        ],
        now,
    )


def _message(kind: str, what: dict[str, Any], now: int) -> NewMessage:
    document = {"event": kind, "at": rfc3339(now), **what}
    return NewMessage(
        payload=msgspec.json.encode(document),
        content_type="application/json",
        headers={
            SUBJECT: kind,
            "X-Headrace-Channel": what["channel"],
            "X-Headrace-Consumer": what["consumer"],
        },
    )
