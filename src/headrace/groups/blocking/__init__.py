"""The groups for threads: the asyncio ones on the connection's background thread. Users import
``headrace.sync.groups``.

Functions and methods are made of the asyncio ones (``verb``, ``client/blocking/methods.py``). Written by
hand is what depends on the thread that calls it. The room is handed the JetStream context of a blocking
connection.
"""

from __future__ import annotations

from . import elastic, static
from .membership import GroupMessage, Membership

__all__ = ["GroupMessage", "Membership", "elastic", "static"]
