"""Which server to try next. Pure: randomness is handed in."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from random import Random

from ...errors import (
    AuthorizationError,
    ConfigurationError,
    ConnectFailedError,
    ConnectionClosedError,
)
from .handshake import ServerAddress, parse_server


@dataclass(slots=True, eq=False)
class _ServerEntry:
    address: ServerAddress
    discovered: bool
    failures: int = 0


class ServerPool:
    """The servers given by the user and those learned from INFO, tried in turn.

    Args:
        addresses: as given; they stay in the pool whatever is discovered.
        max_attempts: failures in a row after which a server is left out; -1: never.
    """

    def __init__(
        self,
        addresses: Sequence[ServerAddress],
        *,
        randomize: bool,
        max_attempts: int,
        random: Random,
    ) -> None:
        order = list({address.key: address for address in addresses}.values())
        if randomize:
            random.shuffle(order)
        self._entries = [_ServerEntry(address, discovered=False) for address in order]
        self._given = self._entries[0].address
        self._max_attempts = max_attempts
        self._random = random
        self._next = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def addresses(self) -> list[ServerAddress]:
        return [entry.address for entry in self._entries]

    def next(self) -> ServerAddress | None:
        """The server to try now, or None when each has failed as often as allowed."""
        for _ in range(len(self._entries)):
            entry = self._entries[self._next % len(self._entries)]
            self._next += 1
            if self._max_attempts < 0 or entry.failures < self._max_attempts:
                return entry.address
        return None

    def failed(self, address: ServerAddress) -> None:
        """Note a failed attempt."""
        entry = self._find(address)
        if entry is not None:
            entry.failures += 1

    def succeeded(self, address: ServerAddress) -> None:
        """Note a connection: every server's failures are forgotten, the outage is over."""
        for entry in self._entries:
            entry.failures = 0
        for index, entry in enumerate(self._entries):
            if entry.address.key == address.key:
                self._next = index  # a lost server is tried first again, then the others

    def copy(self) -> ServerPool:
        """Another one that knows the same servers, and goes on with the same one."""
        other = copy(self)
        other._entries = [replace(entry) for entry in self._entries]
        return other

    def discover(self, urls: Sequence[str], teller: ServerAddress | None = None) -> None:
        """Take in the ``connect_urls`` of an INFO. Unreadable ones are skipped.

        A discovered server is like ``teller``, the one that told of it (or the first of the list given by
        the user): credentials, TLS, WebSocket; where it is told of by number, the name in its certificate,
        too. Discovered servers that are not told of any more are forgotten, ``teller`` excepted.
        """
        like = teller or self._given
        told = [address for address in map(_readable, urls) if address is not None]
        if not told:
            return
        self._forget_all_but({address.key for address in (*told, like)})
        for parsed in told:
            if self._find(parsed) is not None:
                continue
            name = (like.tls_name or like.host) if _is_number(parsed.host) else ""
            # The rest as the teller, TLS and WebSocket too.
            address = replace(like, host=parsed.host, port=parsed.port, tls_name=name)
            self._entries.append(_ServerEntry(address, discovered=True))

    def _forget_all_but(self, keys: set[tuple[str, int]]) -> None:
        """Drop discovered servers, and go on with the same next one."""
        at = self._next % len(self._entries)
        kept = [e for e in self._entries if not e.discovered or e.address.key in keys]
        self._next = sum(1 for entry in self._entries[:at] if entry in kept)
        self._entries = kept

    def _find(self, address: ServerAddress) -> _ServerEntry | None:
        return next((e for e in self._entries if e.address.key == address.key), None)


class Round:
    """One attempt at each server of a pool, and what to raise when none was of use. Iterate it.

    Args:
        none: what to say then, before each server's reason.
    """

    def __init__(self, pool: ServerPool, none: str = "no server could be reached") -> None:
        self._pool = pool
        self._none = none
        self._failures: list[Exception] = []

    def __iter__(self) -> Iterator[ServerAddress]:
        for _ in range(len(self._pool)):
            address = self._pool.next()
            if address is None:
                return
            yield address

    def failed(self, address: ServerAddress, reason: Exception) -> None:
        """Note a failed attempt; ``reason`` says which server it was."""
        self._pool.failed(address)
        self._failures.append(reason)

    def error(self) -> ConnectionClosedError:
        """AuthorizationError, if a server that answered refused the credentials; else ConnectFailedError
        with each one's reason."""
        for failure in self._failures:
            if isinstance(failure, AuthorizationError):
                return failure
        return ConnectFailedError("; ".join([self._none, *map(str, self._failures)]))


def _readable(url: str) -> ServerAddress | None:
    try:
        return parse_server(url)
    except ConfigurationError:
        return None  # another server's idea of a URL must not break this connection


def _is_number(host: str) -> bool:
    """Whether it is an IP address, which certificates seldom name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
