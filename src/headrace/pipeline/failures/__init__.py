"""What becomes of a query that fails: its cause, whether it is begun again, and which message was to blame.

``causes`` tells accidents from mistakes by what Spark says, ``restarts`` decides; both are pure. ``servers``
watches whether the servers of a pipeline are there, on a thread of its own.
"""

from __future__ import annotations
