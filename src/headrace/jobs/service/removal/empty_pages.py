"""The disk space that removed rows leave empty."""

from __future__ import annotations

from ... import limits
from ...store import Tx

__all__ = ["give_back"]


def give_back(tx: Tx) -> int:
    """Give a limited number of the database's empty pages back to the disk. Returns how many."""
    row = tx.one("empty_pages")
    count = 0 if row is None else min(int(row["n"]), limits.PAGES_GIVEN_BACK)
    for _ in range(count):
        tx.run("give_back_page")
    return count
