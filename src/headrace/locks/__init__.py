"""Locks and leaders: one holder at a time, renewed, fenced, told when it is lost.

``Lock`` is held in an ``async with`` block; ``lead`` has something run in one process of many. There are two
kinds underneath, which runners of pipelines use as well: ``key`` keeps it in a bucket, ``pinned`` by the pin
of a consumer. Begin reading at ``lock``; ``tenure`` decides, without I/O, until when a lock is surely ours.
"""

from __future__ import annotations

from .lock import Held, Lock, LockLostError, lead

__all__ = ["Held", "Lock", "LockLostError", "lead"]
