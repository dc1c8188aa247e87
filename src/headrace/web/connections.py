"""Connections of an HTTP server: who waits, for how long, and who has to go when there are too many.

A connection *waits* while it has no complete request: an unfinished handshake, nothing yet, half a head, half
a body, or nothing since the last answer. Waiting costs its client nothing, so it is limited: in time, in
bytes of the head, and in number, for the server and for each address. Where there is no room for one more,
the connection that has waited longest is closed.

Pure: the clock is handed in, and what closes a connection is called.
"""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

__all__ = ["HEAD_BYTES_MAX", "ConnectionLimits", "Stage", "Waiting", "address_of"]

HEAD_BYTES_MAX: Final = 64 * 1024  # a longer request head: 431, closed

SWEEP_S: Final = 1.0
"""Seconds between looks for connections that have waited too long."""

C = TypeVar("C", bound=Hashable)


class Stage(enum.Enum):
    """Stage at which a connection waits."""

    HANDSHAKE = "handshake"
    HEAD = "head"
    BODY = "body"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one HTTP server.

    Attributes:
        connections_max: one more closes the connection that has waited longest; if none waits, the
            newcomer is refused.
        address_share: the part of them that one address may have, but for this machine's own (a reverse
            proxy on it speaks for everybody); one more closes the longest waiter of that address.
        head_bytes_max: of a request's line and headers; more are answered 431.
        handshake_s, head_s, body_s: how long a TLS handshake, a request's head and then its body may take
            to arrive.
    """

    connections_max: int
    address_share: float = 0.5
    head_bytes_max: int = HEAD_BYTES_MAX
    handshake_s: float = 5.0
    head_s: float = 10.0
    body_s: float = 60.0

    @property
    def address_max(self) -> int:
        """Connections that one address may have."""
        return max(1, int(self.connections_max * self.address_share))


class Waiting(Generic[C]):
    """The connections of one server.

    Args:
        limits: how many, and how long each may wait.
        now: seconds of a clock that never goes back.
        drop: closes a connection at once.
    """

    def __init__(
        self, limits: ConnectionLimits, now: Callable[[], float], drop: Callable[[C], None]
    ) -> None:
        self.limits = limits
        self._now = now
        self._drop = drop
        self._is_over = False
        self._addresses: dict[C, str] = {}
        self._counts: dict[str, int] = {}
        # Of each stage the connection that has waited longest comes first.
        self._stages: dict[Stage, dict[C, float]] = {stage: {} for stage in Stage}
        self._patience_s: Final = {
            Stage.HANDSHAKE: limits.handshake_s,
            Stage.HEAD: limits.head_s,
            Stage.BODY: limits.body_s,
        }

    def __len__(self) -> int:
        return len(self._addresses)

    def opened(self, connection: C, address: str, stage: Stage = Stage.HEAD) -> bool:
        """Take in a connection that waits for ``stage``; False: there is no room, nor anybody to make it.

        ``address`` "" is not counted.
        """
        room = not self._is_over
        if room and address and self._counts.get(address, 0) >= self.limits.address_max:
            room = self._make_room(address)
        if room and len(self._addresses) >= self.limits.connections_max:
            room = self._make_room("")
        if not room:
            return False
        self._addresses[connection] = address
        self._counts[address] = self._counts.get(address, 0) + 1
        self.wait(connection, stage)
        return True

    def wait(self, connection: C, stage: Stage) -> None:
        """Note that ``connection`` waits for ``stage`` from now on."""
        self.answer(connection)
        if connection in self._addresses:
            self._stages[stage][connection] = self._now()

    def answer(self, connection: C) -> None:
        """Note that ``connection`` has its request: it waits no longer."""
        for waiting in self._stages.values():
            waiting.pop(connection, None)

    def closed(self, connection: C) -> None:
        """Forget ``connection``."""
        self.answer(connection)
        address = self._addresses.pop(connection, None)
        if address is not None:
            self._counts[address] -= 1
            if not self._counts[address]:
                del self._counts[address]

    def sweep(self) -> int:
        """Drop the connections that have waited too long; how many these were."""
        now, dropped = self._now(), 0
        for stage, waiting in self._stages.items():
            while waiting:
                connection, since = next(iter(waiting.items()))
                if now - since < self._patience_s[stage]:
                    break
                self._end(connection)
                dropped += 1
        return dropped

    def end(self) -> None:
        """Take in no more: the server ends, and the loop may have accepted some that it does not have yet."""
        self._is_over = True

    def drop_all(self, stage: Stage | None = None) -> None:
        """Drop every connection, or those that wait for ``stage``."""
        for connection in list(self._addresses if stage is None else self._stages[stage]):
            self._end(connection)

    def _make_room(self, address: str) -> bool:
        oldest, since = None, 0.0
        for waiting in self._stages.values():
            for connection, began in waiting.items():
                if address and self._addresses[connection] != address:
                    continue
                if oldest is None or began < since:
                    oldest, since = connection, began
                break
        if oldest is not None:
            self._end(oldest)
        return oldest is not None

    def _end(self, connection: C) -> None:
        self.closed(connection)
        self._drop(connection)


def address_of(peer: object) -> str:
    """The address of a peer, as a transport tells it, to count by; "" for this machine's own and for none.

    Addresses of one IPv6 network (64 bits) count as one: they belong to one client.
    """
    if not isinstance(peer, tuple) or not peer:
        return ""
    try:
        address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            network = ipaddress.ip_network((address, 64), strict=False)
            return "" if address.is_loopback else str(network)
        return "" if address.ipv4_mapped.is_loopback else str(address.ipv4_mapped)
    return "" if address.is_loopback else str(address)
