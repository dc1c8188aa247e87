"""Handling a message exactly once, without ``async``: see ``headrace.groups.exactly_once``."""

from __future__ import annotations

from ...groups.blocking.exactly_once import Transaction, exactly_once, was_acknowledged

__all__ = ["Transaction", "exactly_once", "was_acknowledged"]
