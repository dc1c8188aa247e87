"""Turning a connection into TLS after INFO went out in clear."""

from __future__ import annotations

import asyncio
import ssl
from typing import cast

__all__ = ["start_tls"]


async def start_tls(
    transport: asyncio.Transport,
    protocol: asyncio.Protocol,
    context: ssl.SSLContext,
    *,
    timeout_s: float,
    early: list[bytes],
) -> asyncio.Transport | None:
    """``loop.start_tls`` as a server, for a client that may have begun its handshake already.

    uvloop reads whatever is there once ``connection_made`` is over, so the first bytes of the handshake
    may reach ``protocol``, which adds them to ``early``; they are handed on to TLS before anything else.
    None: the client left. Raises what ``loop.start_tls`` raises.
    """
    loop = asyncio.get_running_loop()
    upgrading = loop.create_task(
        loop.start_tls(
            transport, protocol, context, server_side=True, ssl_handshake_timeout=timeout_s
        )
    )

    def hand_on() -> None:
        data = b"".join(early)
        early.clear()
        upper = cast("asyncio.BufferedProtocol | None", transport.get_protocol())
        if data and upper is not None and not upgrading.done():  # None: closed meanwhile
            _feed(upper, data)

    # The task's first step comes before this, and puts TLS in the way with callbacks that come before
    # ``hand_on``; nothing is read in between.
    loop.call_soon(loop.call_soon, hand_on)
    return await upgrading


def _feed(protocol: asyncio.BufferedProtocol, data: bytes) -> None:
    view = memoryview(data)
    while view:
        buffer = memoryview(protocol.get_buffer(len(view)))
        size = min(len(buffer), len(view))
        buffer[:size] = view[:size]
        protocol.buffer_updated(size)
        view = view[size:]
