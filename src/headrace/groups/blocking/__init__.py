"""The groups for threads: the asyncio ones on the connection's background thread. Users import
``headrace.sync.groups``.

The functions of ``static`` and ``elastic`` are made of the asyncio ones (``verbs``). ``membership``,
``message`` and ``exactly_once`` are written by hand; ``workers`` are the threads on which handlers run. The
room is handed the JetStream context of a blocking connection.
"""

from __future__ import annotations

from . import elastic, static
from .membership import Membership
from .message import GroupMessage

__all__ = ["GroupMessage", "Membership", "elastic", "static"]
