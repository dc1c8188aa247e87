from __future__ import annotations

import asyncio
import socket
import struct

from headrace.broker.server.connections.connection import _say_no_more


async def test_who_fails_a_handshake_and_is_gone_already_is_told_nothing() -> None:
    """The reset is there, and the loop has not read it yet."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=accepted)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()  # with a reset
    assert not transport.is_closing(), "otherwise there is nothing to try"
    _say_no_more(transport)
    transport.abort()
    await asyncio.sleep(0)
