"""Which server to try next, and how long to wait before it. Pure: randomness is handed in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from ..errors import ConfigurationError
from .handshake import ServerAddress, parse_server

__all__ = ["ServerPool", "backoff"]

_JITTER: Final = 0.5


class RandomSource(Protocol):
    """``random.Random`` matches."""

    def random(self) -> float: ...
    def shuffle(self, x: list[ServerAddress], /) -> None: ...


def backoff(failures: int, first: float, most: float, random: RandomSource) -> float:
    """Seconds to wait after the ``failures``-th failure in a row (from 1): doubling, capped, jittered.

    The random part takes away up to half, so clients that lost a server together return apart.
    """
    pause = min(most, first * 2.0 ** min(failures - 1, 63))
    return pause * (1.0 - _JITTER * random.random())


@dataclass(slots=True)
class _Entry:
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
        random: RandomSource,
    ) -> None:
        order = list({address.key: address for address in addresses}.values())
        if randomize:
            random.shuffle(order)
        self._entries = [_Entry(address, discovered=False) for address in order]
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

    def failed(self, address: ServerAddress) -> int:
        """Note a failed attempt; returns how many of this server failed in a row."""
        entry = self._find(address)
        if entry is None:
            return 1
        entry.failures += 1
        return entry.failures

    def succeeded(self, address: ServerAddress) -> None:
        """Note a connection: every server's failures are forgotten, the outage is over."""
        for entry in self._entries:
            entry.failures = 0
        for index, entry in enumerate(self._entries):
            if entry.address.key == address.key:
                self._next = index  # a lost server is tried first again, then the others

    def discover(self, urls: Iterable[str]) -> list[ServerAddress]:
        """Take in the ``connect_urls`` of an INFO; returns what was new. Unreadable ones are skipped.

        A discovered server inherits from the list given by the user: credentials, TLS, WebSocket.
        """
        new = []
        for url in urls:
            try:
                parsed = parse_server(url)
            except ConfigurationError:
                continue  # another server's idea of a URL must not break this connection
            if self._find(parsed) is not None:
                continue
            address = replace(
                self._given, host=parsed.host, port=parsed.port
            )  # the rest as the first one given, TLS and WebSocket too
            self._entries.append(_Entry(address, discovered=True))
            new.append(address)
        return new

    def _find(self, address: ServerAddress) -> _Entry | None:
        return next((e for e in self._entries if e.address.key == address.key), None)
