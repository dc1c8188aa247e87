"""Searching jobs by what their messages' payloads have at some paths. No index has that: so many of them
are looked into at a time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from ... import limits
from ...matching.payloads import Patterns, document_of, fitting_paths
from ...store import Row, Tx

__all__ = ["fitting"]

_WHOLE: Final = 2**31 - 1


def fitting(
    tx: Tx, rows: Sequence[Row], wanted: Patterns, n: int, window: int
) -> tuple[list[Row], int | None]:
    """Those of these jobs whose payloads fit, at most ``n``, in their order; and where to continue.

    ``None``: nothing is left, because they were fewer than the ``window`` that was asked for.
    """
    looked = list(rows) if not wanted else _within_bytes(tx, rows)
    found = list(looked) if not wanted else _chosen(tx, looked, wanted)
    if len(found) > n or (len(found) == n and (wanted or n == window)):
        return found[:n], found[n - 1]["seq"]
    over = len(rows) < window and len(looked) == len(rows)
    return found, None if over or not looked else looked[-1]["seq"]


def _within_bytes(tx: Tx, rows: Sequence[Row]) -> Sequence[Row]:
    """The first of them whose payloads may be looked into at once; one at least."""
    seqs = json.dumps(sorted({row["message_seq"] for row in rows}))
    sizes = {row["seq"]: int(row["size"]) for row in tx.all("sizes_of", seqs=seqs)}
    seen, total = set[int](), 0
    for count, row in enumerate(rows):
        if row["message_seq"] in seen:
            continue
        seen.add(row["message_seq"])
        total += sizes.get(row["message_seq"], 0)
        if total > limits.SEARCH_BYTES_MAX and count:
            return rows[:count]
    return rows


def _chosen(tx: Tx, rows: Sequence[Row], wanted: Patterns) -> list[Row]:
    fits = fitting_paths(wanted)
    seqs = json.dumps(sorted({row["message_seq"] for row in rows}))
    messages = tx.all("messages_of", seqs=seqs, bytes=_WHOLE)
    chosen = {row["seq"] for row in messages if fits(document_of(row["payload"]))}
    return [row for row in rows if row["message_seq"] in chosen]
