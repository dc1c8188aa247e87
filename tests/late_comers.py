"""Clients that a server accepts just before it ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Final

TURNS: Final = range(6)
"""Before the first the loop has not seen the client; after the last the server has it."""


async def is_hung_up_on(port: int, turns: int, end: Callable[[], Awaitable[object]]) -> bool:
    """Whether a client that came so many turns of the loop before ``end`` is hung up on when that is over."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        for _ in range(turns):
            await asyncio.sleep(0)
        await end()
        client.setblocking(False)
        try:
            while client.recv(1 << 16):
                pass
        except BlockingIOError:
            return False
        except OSError:
            pass  # reset
        return True
