"""Addresses that may be called. A callback URL comes from outside and must not reach the inside network.

A name is resolved once. If *any* of its addresses is not public, the call is rejected. Otherwise the
connection goes to a checked address, not to the name. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final
from urllib.parse import SplitResult

from ...errors import ConfigurationError, HeadraceError
from ..ids import ascii_host

__all__ = [
    "Guard",
    "OwnMachineError",
    "RefusedAddressError",
    "ResolveError",
    "check_name_service",
    "own_fault",
    "system_resolve",
]

_LOG: Final = logging.getLogger("headrace.jobs.push")

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

# From the IANA registries of special-purpose addresses; globally reachable ones are not listed.
_REFUSED: Final = tuple(
    (ip_network(network), what)
    for network, what in (
        ("0.0.0.0/8", "this network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared by carriers"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local (cloud metadata)"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "protocol assignments"),
        ("192.0.2.0/24", "documentation"),
        ("192.31.196.0/24", "AS112"),
        ("192.52.193.0/24", "AMT"),
        ("192.88.99.0/24", "6to4 relays"),
        ("192.168.0.0/16", "private"),
        ("192.175.48.0/24", "AS112"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
        ("::/96", "unspecified, loopback or IPv4-compatible"),
        ("::ffff:0:0/96", "IPv4-mapped"),
        ("64:ff9b::/96", "NAT64"),
        ("64:ff9b:1::/48", "NAT64"),
        ("100::/64", "discard"),
        ("2001::/23", "protocol assignments, Teredo"),
        ("2001:db8::/32", "documentation"),
        ("2002::/16", "6to4"),
        ("2620:4f:8000::/48", "AS112"),
        ("3fff::/20", "documentation"),
        ("5f00::/16", "segment routing"),
        ("fc00::/7", "unique local"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
)
_GLOBAL_V6: Final = ip_network("2000::/3")
_OWN: Final = frozenset(
    {
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ENOSPC, errno.EDQUOT),
        *(errno.EIO, errno.EROFS, errno.ENETDOWN),
    }
)
"""Errors of a socket or file that say that this machine has run out of something, or is broken."""
_NOT_THERE: Final = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})
_NO_NAME: Final = "invalid."
"""A name that does not exist, which every name service that works can tell (RFC 6761)."""
_NO_NAME_S: Final = 2.0


class RefusedAddressError(HeadraceError):
    """The address may not be called."""


class ResolveError(HeadraceError):
    """The name has no address, or its own name servers did not answer."""


class OwnMachineError(HeadraceError):
    """Failure of this machine to make the call: no descriptors, no memory, no name service, a full disk.

    It says nothing about the endpoint.
    """


class Guard:
    """Checks addresses; ``allow`` are networks that are accepted although they are not public."""

    def __init__(
        self, allow: Sequence[str] = (), *, https_only: bool = False, resolve: Resolve | None = None
    ) -> None:
        try:
            self._allow: tuple[IPv4Network | IPv6Network, ...] = tuple(map(ip_network, allow))
        except ValueError as error:
            raise ConfigurationError(f"allowed network: {error}") from None
        self._https_only = https_only
        self._resolve = resolve or system_resolve

    def refusal(self, text: str) -> str | None:
        """Why the address ``text`` may not be called, or ``None``."""
        try:
            address = ip_address(text)
        except ValueError:
            return "not an address"
        if isinstance(address, IPv6Address):
            if address.ipv4_mapped is not None:
                address = address.ipv4_mapped
            elif address.scope_id is not None:
                return "scoped to an interface"
        if any(address in network for network in self._allow):
            return None
        for network, what in _REFUSED:
            if address in network:
                return what
        if isinstance(address, IPv6Address) and address not in _GLOBAL_V6:
            return "not global"
        return None

    def check_url(self, parts: SplitResult) -> None:
        """Reject what can be rejected without resolving: schemes, and literal addresses."""
        if parts.scheme != "https" and (self._https_only or parts.scheme != "http"):
            raise RefusedAddressError(
                "only https is allowed" if self._https_only else "not http or https"
            )
        try:
            host = ascii_host(parts.hostname or "")
        except ValueError as error:
            raise RefusedAddressError(f"not a name: {error}") from None
        try:
            ip_address(host)
        except ValueError:
            return
        if reason := self.refusal(host):
            raise RefusedAddressError(f"{host}: {reason}")

    async def vet(self, host: str, port: int) -> list[str]:
        """The addresses of ``host`` to connect to, all of them checked.

        Raises :class:`RefusedAddressError` if one of them may not be called, :class:`ResolveError` if there
        is none.
        """
        addresses = list(dict.fromkeys(await self._resolve(host, port)))
        if not addresses:
            raise ResolveError(f"{host} has no address")
        for address in addresses:
            if reason := self.refusal(address):
                # Whoever defined the URL need not know what names are inside.
                _LOG.debug("%s is %s, which must not be called: %s", host, address, reason)
                raise RefusedAddressError(f"{host} has an address that must not be called")
        return addresses


def own_fault(error: BaseException) -> OwnMachineError | None:
    """Find what of this machine made a call fail with ``error``; None if nothing did.

    The errors of resolvers and of TLS do not say that a file could not be opened, so this tries to open one.
    """
    if isinstance(error, OwnMachineError):
        return error
    if isinstance(error, MemoryError):
        return OwnMachineError("this machine has no memory left")
    if not isinstance(error, OSError):
        return None
    number = error.errno
    if number not in _OWN:
        try:
            os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as other:
            number = other.errno
        else:
            return None
    return OwnMachineError(f"this machine cannot make calls: {os.strerror(number or 0)}")


async def system_resolve(host: str, port: int) -> list[str]:
    """The answer of the system's resolver.

    Raises :class:`ResolveError` for a name without addresses, :class:`OwnMachineError` if the name service
    of this machine answers nothing at all.
    """
    try:
        return await _addresses(host, port)
    except (socket.gaierror, UnicodeError) as error:
        if isinstance(error, socket.gaierror) and error.errno not in _NOT_THERE:
            await check_name_service()
        if (own := own_fault(error)) is not None:
            raise own from None
        reason = error.strerror if isinstance(error, OSError) else error
        raise ResolveError(f"{host}: {reason}") from None
    except (OSError, RuntimeError) as error:
        # No thread, or no socket, to ask with.
        raise own_fault(error) or OwnMachineError(f"no name can be looked up: {error}") from None


async def _addresses(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
    )
    return [str(entry[4][0]) for entry in found]


async def check_name_service() -> None:
    """Raise :class:`OwnMachineError` if no name can be looked up, not even one that does not exist."""
    try:
        async with asyncio.timeout(_NO_NAME_S):
            await _addresses(_NO_NAME, 0)
    except socket.gaierror as error:
        if error.errno in _NOT_THERE:
            return
        raise OwnMachineError(f"the name service of this machine fails: {error.strerror}") from None
    except TimeoutError:
        raise OwnMachineError("the name service of this machine does not answer") from None
