"""Connections: to hosts that have several addresses, those that go over to TLS, servers that listen no more.

Of several addresses it is the first that answers, not the first of the list. As RFC 8305 ("Happy Eyeballs")
has it: the families take turns, beginning with the one that the resolver prefers, and when one has not
answered within 250 ms, the next is asked, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from itertools import chain, zip_longest
from typing import Any, Final, TypeAlias, cast

__all__ = ["Target", "connect_first", "connect_to", "start_tls", "stop_listening"]

Target: TypeAlias = tuple[socket.AddressFamily, Any]
"""A family and an address in it, as sockets take it."""

_STAGGER_S: Final = 0.25
_TURNS_OF_ACCEPTING: Final = 4
"""asyncio accepts in one turn of the loop, makes a transport in the next, and tells the protocol of it in a
third, which may close it in a fourth."""


async def stop_listening(*servers: asyncio.Server) -> None:
    """Close servers once whatever they have accepted is a connection; at once where that is cancelled.

    asyncio has a task for each that it accepts. Where the server is closed before that has run, or the loop,
    the task ends without a word and leaves the socket open: the client waits for somebody who is not there.
    """
    for server in servers:
        for listener in server.sockets:
            with contextlib.suppress(NotImplementedError):  # a loop that does not accept by readers
                server.get_loop().remove_reader(listener.fileno())
    try:
        for _ in range(_TURNS_OF_ACCEPTING):
            await asyncio.sleep(0)
    finally:
        for server in servers:
            server.close()
    await asyncio.sleep(0)  # uvloop accepts to the end, and tells of the last ones now


async def connect_to(host: str, port: int) -> socket.socket:
    """A connected TCP socket, which blocks nobody. Raises OSError, also for a name that has no address."""
    if (numeric := _numeric(host, port)) is not None:
        return await _connect(numeric)
    found = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
    )
    targets = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
    return await connect_first(targets)


async def connect_first(
    targets: Sequence[Target],
    begin: Callable[[], bool] = lambda: True,
    end: Callable[[], None] = lambda: None,
) -> socket.socket:
    """A socket connected to the first of ``targets`` that answers. Raises OSError: the last one's.

    Before another one is tried beside the first, ``begin`` says whether there is room for it, and ``end``
    gives that room back.
    """
    if len(targets) == 1:
        return await _connect(targets[0])
    waiting = _taking_turns(targets)
    trying: set[asyncio.Task[socket.socket]] = set()
    problem = OSError("there is no address")
    try:
        while waiting or trying:
            is_first = not trying
            if waiting and (is_first or begin()):
                task = asyncio.create_task(_connect(waiting.pop(0)))
                if not is_first:
                    task.add_done_callback(lambda _: end())
                trying.add(task)
            done, _ = await asyncio.wait(
                trying,
                timeout=_STAGGER_S if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in done:
                error = task.exception()
                if error is None:
                    trying.discard(task)
                    return task.result()
                if not isinstance(error, OSError):
                    raise error
                trying.discard(task)
                problem = error
        raise problem
    finally:
        for task in trying:
            task.cancel()
        for late in await asyncio.gather(*trying, return_exceptions=True):
            if isinstance(late, socket.socket):
                late.close()


def _numeric(host: str, port: int) -> Target | None:
    """An address that is given as such, for which no thread need ask the resolver."""
    try:
        address = ip_address(host)
    except ValueError:
        return None
    if address.version == 4:
        return socket.AF_INET, (host, port)
    return None if "%" in host else (socket.AF_INET6, (host, port))


def _taking_turns(targets: Sequence[Target]) -> list[Target]:
    """The targets with one of each family in turn, each family's in the order given."""
    families: dict[socket.AddressFamily, list[Target]] = {}
    for target in targets:
        families.setdefault(target[0], []).append(target)
    turns = chain.from_iterable(zip_longest(*families.values()))
    return [target for target in turns if target is not None]


async def _connect(target: Target) -> socket.socket:
    family, address = target
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, address)
    except BaseException:
        made.close()
        raise
    return made


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
