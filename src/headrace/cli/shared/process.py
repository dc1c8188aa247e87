"""A process that serves: its garbage collector, and what its service manager is told."""

from __future__ import annotations

import gc
import logging
import os
import socket
from typing import Final

__all__ = ["tell_manager", "tune_collector"]


YOUNG: Final = 2_000
"""Objects more than there were, for a pass over the youngest."""
YOUNG_PASSES: Final = 2
"""After so many the next pass is over those that outlived them, too. One over 100,000 objects stops everybody
for 15 to 70 ms, one over 6,000 for a millisecond or two; it takes less for each, as they are in the cache."""
OLD_PASSES: Final = 125_000
"""After so many of those the next one is over all objects."""


def tune_collector() -> None:
    """Collect garbage in small passes: there are millions of messages, and what ends in a broker is no cycle.

    What is one, and outlives two passes, stays until the pass over all objects. The settings are the whole
    process's, so a broker within another program leaves them alone.
    """
    gc.freeze()
    gc.set_threshold(YOUNG, YOUNG_PASSES, OLD_PASSES)


logger = logging.getLogger("headrace.notify")


def tell_manager(*lines: str) -> None:
    """Send ``READY=1``, ``STOPPING=1``, ``STATUS=…`` and the like.

    Without ``NOTIFY_SOCKET`` nobody asks, and nothing is sent. A manager that does not listen is logged: we
    go on without it.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address or not hasattr(socket, "AF_UNIX"):
        return
    if address.startswith("@"):  # a name of the kernel's, not a file
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.sendto("\n".join(lines).encode(), address)
    except OSError as error:
        logger.warning("NOTIFY_SOCKET: the service manager was not told: %s", error)
