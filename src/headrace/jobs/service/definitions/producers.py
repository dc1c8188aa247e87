"""Producers: read, and written under a precondition."""

from __future__ import annotations

from ...errors import not_found
from ...store import Tx
from .definitions import Change, Definition, Precondition, definition_of, put_definition

__all__ = ["find_producer", "put_producer"]


def find_producer(tx: Tx, producer_id: str) -> Definition:
    """The producer; 404 if it does not exist."""
    row = tx.one("get_producer", producer_id=producer_id)
    if row is None:
        raise not_found("producer", "producerId")
    return definition_of(row, "producer_id")


def put_producer(
    tx: Tx, producer_id: str, change: Change, precondition: Precondition, now: int
) -> Definition:
    """Create, or change if the precondition holds. Fields that are not given keep their values, also the
    token.
    """
    return put_definition(tx, "producer", producer_id, change, precondition, now)
