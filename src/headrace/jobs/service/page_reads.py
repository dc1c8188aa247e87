"""Reading without changes: pages, messages, jobs, counts."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .. import limits
from ..errors import bad_request, not_found
from ..states import State
from ..store import Row, Tx
from .removed_jobs import missing

__all__ = [
    "Cursors",
    "Depth",
    "Page",
    "Paging",
    "consumer_counts",
    "counts_of",
    "depth_totals",
    "depths_behind",
    "get_job",
    "get_message",
    "message_counts",
    "not_there",
    "page",
    "page_of",
    "page_until",
]


_NEWEST: Final = 2**62


@dataclass(frozen=True, slots=True)
class Paging:
    """The requested page: the one after or before a cursor, or the first one."""

    at: int = _NEWEST
    backwards: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """Rows, newest first, and the cursors of the adjacent pages (empty if the page is empty)."""

    rows: Sequence[Row]
    next: str = ""
    previous: str = ""


class Cursors:
    """Creates and verifies opaque cursors: a position in one list, sealed with a key of this database."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def seal(self, scope: str, seq: int) -> str:
        body = seq.to_bytes(8, "big")
        return base64.urlsafe_b64encode(body + self._mac(scope, body)).decode()

    def open(self, scope: str, cursor: str, field: str) -> int:
        """The position; 400 if the cursor was not created here for this list."""
        try:
            raw = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
        except ValueError:
            raw = b""
        body, mac = raw[:8], raw[8:]
        if len(raw) != 24 or not hmac.compare_digest(mac, self._mac(scope, body)):
            raise bad_request(
                "invalid_cursor",
                "use `next` and `previous` exactly as a page of this list gave them",
                field,
            )
        return int.from_bytes(body, "big")

    def paging(self, scope: str, following: str | None, preceding: str | None) -> Paging:
        """The page that the two query parameters request; 400 for both at once."""
        if following is not None and preceding is not None:
            raise bad_request("two_cursors", "either `next` or `previous` is accepted", "previous")
        if following is not None:
            return Paging(self.open(scope, following, "next"))
        if preceding is not None:
            return Paging(self.open(scope, preceding, "previous"), backwards=True)
        return Paging()

    def _mac(self, scope: str, body: bytes) -> bytes:
        return hmac.digest(self._key, scope.encode() + b"\0" + body, hashlib.sha256)[:16]


def page(
    tx: Tx, cursors: Cursors, scope: str, query: str, paging: Paging, size: int, **values: Any
) -> Page:
    """One page of a list. Going back returns the adjacent rows, not the newest."""
    if paging.backwards:
        rows = list(tx.all(f"page_{query}_before", at=paging.at, n=size, **values))[::-1]
    else:
        rows = list(tx.all(f"page_{query}_after", at=paging.at, n=size, **values))
    return page_of(cursors, scope, rows)


def page_of(cursors: Cursors, scope: str, rows: Sequence[Row]) -> Page:
    """A page of rows that were read already, newest first."""
    if not rows:
        return Page(rows)
    return Page(rows, cursors.seal(scope, rows[-1]["seq"]), cursors.seal(scope, rows[0]["seq"]))


def page_until(
    cursors: Cursors, scope: str, rows: Sequence[Row], asked: Paging, at: int | None
) -> Page:
    """A page of a list that was looked through as far as ``at``, or to its end: it may have no rows."""
    onwards = "" if at is None else cursors.seal(scope, at)
    if asked.backwards:
        return Page(rows, cursors.seal(scope, asked.at + 1), onwards)
    back = asked.at - 1 if asked.at != _NEWEST else rows[0]["seq"] if rows else None
    return Page(rows, onwards, "" if back is None else cursors.seal(scope, back))


def get_message(tx: Tx, channel_seq: int, message_id: str) -> tuple[Row, Sequence[Row]]:
    """A message and (the first of) its jobs; 404 if it does not exist."""
    row = tx.one("get_message", channel_seq=channel_seq, message_id=message_id)
    if row is None:
        raise not_found("message", "messageId")
    return row, tx.all("jobs_of_message", message_seq=row["seq"], n=limits.JOBS_OF_MESSAGE_MAX + 1)


def get_job(tx: Tx, seq: int) -> tuple[Row, Sequence[Row]]:
    """A job and its recorded attempts; 404 if it does not exist, 410 if it was removed."""
    row = tx.one("get_job", seq=seq)
    if row is None:
        raise missing(tx, seq)
    return row, tx.all("list_attempts", job_seq=seq, n=limits.MAX_RETRIES_MAX)


def consumer_counts(tx: Tx) -> list[tuple[Row, dict[State, int]]]:
    """List every consumer with the number of its jobs in each state."""
    counts: dict[int, dict[State, int]] = {}
    for row in tx.all("job_counts"):
        counts.setdefault(row["consumer_seq"], {})[State(row["state"])] = int(row["n"])
    return [(row, counts.get(row["seq"], {})) for row in tx.all("list_all_consumers")]


def not_there(tx: Tx, names: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """Find which of these channels and consumers ("": the channel itself) are not there, or no more."""
    gone = set()
    for channel_id, consumer_id in names:
        row = tx.one("get_consumer", channel_id=channel_id, consumer_id=consumer_id)
        if row is None or (consumer_id and row["seq"] is None):
            gone.add((channel_id, consumer_id))
    return gone


def counts_of(tx: Tx, consumer_seq: int) -> dict[State, int]:
    """The number of a consumer's jobs in each state that any has."""
    rows = tx.all("job_counts_of", consumer_seq=consumer_seq)
    return {State(row["state"]): int(row["n"]) for row in rows}


@dataclass(frozen=True, slots=True)
class Depth:
    """A consumer's jobs by state, and for how long the oldest one that is ready waits."""

    channel_id: str
    consumer_id: str
    counts: Mapping[State, int]
    age_us: int


def depths_behind(tx: Tx, channel_id: str, consumer_id: str, n: int) -> list[Depth]:
    """The next consumers in the order of their names, behind this one."""
    found = []
    now = tx.now_us()
    for row in tx.all("consumers_behind", channel_id=channel_id, consumer_id=consumer_id, n=n):
        oldest = tx.one("oldest_ready_us", consumer_seq=row["seq"])
        since = None if oldest is None else oldest["created_us"]
        age_us = 0 if since is None else max(0, now - since)
        counts = counts_of(tx, row["seq"])
        found.append(Depth(row["channel_id"], row["consumer_id"], counts, age_us))
    return found


def depth_totals(tx: Tx) -> tuple[int, dict[State, int]]:
    """Count the consumers, and the jobs of all of them by state."""
    counted = tx.one("count_consumers")
    counts = {State(row["state"]): int(row["n"]) for row in tx.all("job_totals")}
    return 0 if counted is None else int(counted["n"]), counts


def message_counts(tx: Tx, channel_seq: int) -> dict[int, int]:
    """The number of messages of a channel.

    101: accepted, 102: dispatched, 201: scheduled, 202: scheduled and dispatched.
    """
    return {row["kind"]: int(row["n"]) for row in tx.all("message_counts", channel_seq=channel_seq)}
