"""Getting a connection: the first one, and every later one, over the list of servers."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from ...errors import (
    AuthorizationError,
    ConfigurationError,
    ConnectFailedError,
    ConnectionClosedError,
)
from ...retries import backoff_s
from .handshake import ServerAddress
from .link import Link
from .options import Options
from .servers import Round, ServerPool

STILL_WAITING_S: Final = 10.0

_log = logging.getLogger("headrace.client")


class Outage:
    """One outage: of the connection to which server, since when, and why.

    Args:
        name: the connection's own, or "".
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, server: str, name: str, cause: Exception
    ) -> None:
        self._loop = loop
        self._since = loop.time()
        self._server = server
        self._of = f"connection {name!r} to {server}" if name else f"connection to {server}"
        self._cause = cause
        self._timer = loop.call_later(STILL_WAITING_S, self._still)
        # Records are kept by who handles them, so they hold no error, whose traceback holds the link.
        _log.warning("the %s was lost, and is being restored: %s", self._of, str(cause))

    @property
    def seconds(self) -> float:
        """How long it has lasted."""
        return self._loop.time() - self._since

    def __str__(self) -> str:
        return f"disconnected from {self._server} for {self.seconds:.1f} s ({self._cause})"

    def noting(self, dial: Dial) -> Dial:
        """As ``dial``; why the last attempt failed is known here."""

        async def noted(address: ServerAddress, options: Options) -> Link:
            try:
                return await dial(address, options)
            except Exception as error:
                self._cause = error
                raise

        return noted

    def _still(self) -> None:
        _log.warning(
            "the %s has been lost for %.0f s, and is still being restored: %s",
            self._of,
            self.seconds,
            str(self._cause),
        )

    def over(self, server: str = "", attempts: int = 0) -> None:
        """The connection stands again, with this server; or it is over for good."""
        self._timer.cancel()
        if server:
            _log.info(
                "connected to %s again after %.1f s, at attempt %d", server, self.seconds, attempts
            )


EAGER_S: Final = 2.0
EAGER_PAUSE_S: Final = 0.25
"""For so long after a loss pauses grow to no more than this: most servers that restart are back by then."""

_REFUSALS_MAX = 2  # the same server refusing the credentials again will not change its mind


class ServerGoneError(ConnectionClosedError):
    """There will never be a server at this address again: no use in trying."""


class ReadyLink(NamedTuple):
    """A link that is ready, to which server, and how many attempts it took."""

    link: Link
    address: ServerAddress
    attempts: int


Dial = Callable[[ServerAddress, Options], Awaitable[Link]]
"""``open_link``, or what stands for it where there are no sockets."""


async def first_connection(
    pool: ServerPool, options: Options, source: random.Random, dial: Dial
) -> ReadyLink:
    """Try each server once; with ``retry_first_connect``, as long as ``restore`` does.

    Raises:
        AuthorizationError: every server that answered refused the credentials.
        ConnectFailedError: no server could be reached; the text has each one's reason.
    """
    if options.retry_first_connect:
        return await restore(pool, options, source, dial)
    attempts = Round(pool)
    for attempt, address in enumerate(attempts, 1):
        try:
            return ReadyLink(await dial(address, options), address, attempt)
        except ConnectionClosedError as error:
            attempts.failed(address, error)
    raise attempts.error()


async def restore(
    pool: ServerPool, options: Options, source: random.Random, dial: Dial
) -> ReadyLink:
    """Try the servers in turn, pausing longer after each round, until one answers.

    Raises:
        ServerGoneError: the one server there was is gone for good.
        AuthorizationError: a server refused the credentials twice in this outage.
        ConnectFailedError: each server failed ``max_reconnect_attempts`` times.
    """
    refusals: Counter[tuple[str, int]] = Counter()
    last: dict[tuple[str, int], Exception] = {}
    attempts = rounds = 0
    loop = asyncio.get_running_loop()
    begun = loop.time()
    pause = options.reconnect_wait * source.random()  # clients that lost a server together
    while True:
        await asyncio.sleep(pause)
        pause = 0.0
        address = pool.next()
        if address is None:
            raise ConnectFailedError(
                "; ".join([f"given up after {attempts} attempts", *map(str, last.values())])
            )
        attempts += 1
        try:
            return ReadyLink(await dial(address, options), address, attempts)
        except (ConnectionClosedError, ConfigurationError) as error:
            if isinstance(error, ServerGoneError):
                raise
            # Also a credentials file that cannot be read just now: it may be about to be replaced.
            last[address.key] = error
            pool.failed(address)
            if isinstance(error, AuthorizationError):
                refusals[address.key] += 1
                if refusals[address.key] >= _REFUSALS_MAX:
                    raise
        if attempts % len(pool) == 0:
            longer = options.reconnect_wait * 2.0**rounds
            if rounds == 0 or longer <= EAGER_PAUSE_S or loop.time() - begun >= EAGER_S:
                rounds += 1
            pause = backoff_s(
                rounds, options.reconnect_wait, options.reconnect_wait_max, source.random
            )
