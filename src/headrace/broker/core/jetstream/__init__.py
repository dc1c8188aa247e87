"""The JetStream brain: streams, consumers and their API. Deterministic: time and disk are handed in.

Rooms, each knowing only those below it:

``engine``
    owns the streams and consumers of an account, journals and recovers them, works through a tick
``api``
    answers requests on ``$JS.API.>``
``consumer``, ``sourcing``
    who reads a stream: consumers, which deliver; sources and mirrors, which copy
``stream``
    one stream: messages in, limits, removal, waking who waits
``publish``
    whether a message may be stored, alone, in an atomic batch, or in a fast one
``schedules``
    messages that fire later
``tick``
    what waits for the disk, and what is done a slice at a time
``headers``, ``config``
    pure: header blocks and reply subjects, read and written; what a configuration may say

``ports`` is what streams and consumers know of each other, ``context`` what every part is handed.
"""

from __future__ import annotations

from .config.options import JetStreamOptions
from .engine.engine import JetStream

__all__ = ["JetStream", "JetStreamOptions"]
