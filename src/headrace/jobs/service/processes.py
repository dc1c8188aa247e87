"""Agreement of the processes on one database: values that are made once, and who leads a task."""

from __future__ import annotations

from ..store import Tx

__all__ = ["make_once", "take_lead"]


def make_once(tx: Tx, key: str, value: str) -> str:
    """The value that all processes on this database share under ``key``: the stored one, otherwise
    ``value``.
    """
    (row,) = tx.all("add_meta", key=key, value=value)
    return str(row["value"])


def take_lead(tx: Tx, task: str, holder: str, seconds: float, now: int) -> bool:
    """Whether ``holder`` may do ``task`` for the next ``seconds``; no other process does it meanwhile."""
    row = tx.one("take_lead", task=task, holder=holder, expires=now + round(seconds * 1e6), now=now)
    return row is not None and row["holder"] == holder
