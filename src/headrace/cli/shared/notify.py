"""Tells the service manager how we are, where it asks to be told (``sd_notify`` of systemd)."""

from __future__ import annotations

import logging
import os
import socket

__all__ = ["tell_manager"]

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
