"""Locks and leaders on a key-value bucket: one holder at a time, renewed, fenced, told when it is lost.

``Lock`` is held in an ``async with`` block; ``lead`` has something run in one process of many. Begin reading
at ``lock``; ``tenure`` decides, without I/O, until when a lock is surely ours.
"""

from __future__ import annotations

from .lock import Held, Lock, LockLostError, lead

__all__ = ["Held", "Lock", "LockLostError", "lead"]
