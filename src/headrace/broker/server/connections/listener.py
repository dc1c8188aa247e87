"""Sockets to listen on: bound with one clear sentence when that fails, and never to strangers by accident."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from typing import Any

from ....errors import ConfigurationError

_REASONS = {
    errno.EADDRINUSE: "another process is listening there; choose another port, or -1 for any free one",
    errno.EACCES: "this user may not; choose a port above 1023",
    errno.EADDRNOTAVAIL: "this machine does not have that address",
}
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - to recognise them


async def bind(host: str, port: int) -> socket.socket:
    """A socket bound to the first address of ``host``; ``port`` of 0 or -1 is any free one.

    Raises ConfigurationError when the name is unknown or the address cannot be had.
    """
    port = max(0, port)
    found = await _look_up(host, port)
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)  # IPv4 first, as clients try it
    family, kind, protocol, _name, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and host == "::":
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.setblocking(False)
        listener.bind(address)
    except OSError as error:
        listener.close()
        reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
        raise ConfigurationError(f"cannot listen on {shown_host(host)}:{port}: {reason}") from error
    return listener


async def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``. A name counts by every address it has."""
    found = await _look_up(host, 0)
    return all(ipaddress.ip_address(entry[4][0]).is_loopback for entry in found)


async def _look_up(host: str, port: int) -> list[Any]:
    try:
        # An address needs no resolver, and so no thread of the loop's executor.
        return socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST | socket.AI_PASSIVE
        )
    except OSError:
        pass  # a name
    loop = asyncio.get_running_loop()
    try:
        return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigurationError(f"host: cannot find {host!r}: {error.strerror}") from error


def shown_host(host: str) -> str:
    """The host as it stands before a port."""
    return f"[{host}]" if ":" in host else host


def url_of(scheme: str, host: str, port: int) -> str:
    """The URL at which this machine reaches a listener on ``host``."""
    return f"{scheme}://{shown_host(_WILDCARDS.get(host, host))}:{port}"
