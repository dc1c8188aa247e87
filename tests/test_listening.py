"""What a server of a test has accepted ends with it."""

from __future__ import annotations

import asyncio
import socket

import pytest

from chaos import ChaosProxy
from late_comers import TURNS, is_hung_up_on
from listening import HOST, Listening


async def waits(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


@pytest.mark.usefixtures("no_leaks")
@pytest.mark.parametrize("turns", TURNS)
async def test_whoever_is_accepted_while_it_ends_is_hung_up_on(turns: int) -> None:
    server = await Listening(waits).listen()
    assert await is_hung_up_on(server.port, turns, server.close)
    with socket.create_server((HOST, 0)) as target:
        proxy = ChaosProxy(*target.getsockname())
        await proxy.come_back()
        assert await is_hung_up_on(proxy.port, turns, proxy.go_away)


async def test_a_connection_is_closed_behind_what_was_written() -> None:
    async def greets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")

    async with Listening(greets) as server:
        reader, writer = await asyncio.open_connection(HOST, server.port)
        assert await reader.read() == b"hello"
        writer.close()


async def test_what_a_connection_fails_with_is_raised_at_the_end() -> None:
    async def fails(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        async with Listening(fails) as server:
            reader, writer = await asyncio.open_connection(HOST, server.port)
            await reader.read()
            writer.close()
