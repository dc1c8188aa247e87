"""The time without a connection, in words: for errors, and for the log.

An outage is logged as it begins, once while it lasts, and as it ends.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .handshake import ServerAddress
    from .link import Link
    from .options import Options
    from .reconnect import Dial

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
