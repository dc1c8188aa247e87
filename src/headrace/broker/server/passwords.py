"""Comparing passwords with bcrypt hashes, by the library of the extra ``bcrypt``, beside the event loop."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...errors import ConfigurationError
from ..core.auth.authentication import Identity
from ..core.net.session import Session

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

logger = logging.getLogger("headrace.broker")

THREADS_MAX: Final = 2
KNOWN_MAX: Final = 10_000  # hashes and passwords that are not compared with each other again
PASSWORD_BYTES_MAX: Final = 72  # bcrypt looks at no more; the library refuses what others cut off


@functools.cache  # one for all: a reload must not forget who was recognised
def password_checker() -> Passwords:
    """What compares passwords with hashes. Raises ConfigurationError if the extra is not installed."""
    try:
        import bcrypt  # noqa: F401
    except ImportError:
        raise ConfigurationError(
            "bcrypt hashes of passwords and tokens need the extra bcrypt: pip install 'headrace[bcrypt]'"
        ) from None
    return Passwords()


class Passwords:
    """Implements ``PasswordChecker``. Made by ``password_checker``.

    A password that was right is recognised by a keyed digest, which is kept in memory only: so a thousand
    clients of one user that connect again cost one comparison.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._known: dict[bytes, None] = {}

    def known(self, hashed: str, password: str) -> bool:
        return self._digest(hashed, password) in self._known

    def matches(self, hashed: str, password: str) -> bool:
        import bcrypt

        if self.known(hashed, password):  # by now: others were ahead in the queue
            return True
        said = password.encode(errors="surrogatepass")[:PASSWORD_BYTES_MAX]
        if not bcrypt.checkpw(said, hashed.encode()):
            return False
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[self._digest(hashed, password)] = None
        return True

    def _digest(self, hashed: str, password: str) -> bytes:
        text = f"{hashed}\0{password}".encode(errors="surrogatepass")
        return hmac.digest(self._key, text, hashlib.sha256)


class DecisionThreads:
    """Implements ``SlowDecisions``: a few threads, which start when they are needed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        """``wake`` is called in ``loop`` after each decision."""
        self._loop = loop
        self._wake = wake
        self._threads: ThreadPoolExecutor | None = None
        self._stopped = False

    def begin(
        self,
        session: Session,
        decide: Callable[[], Identity | None],
        decided: Callable[[Identity | None], None],
    ) -> None:
        if self._threads is None:
            from concurrent.futures import ThreadPoolExecutor

            self._threads = ThreadPoolExecutor(THREADS_MAX, "headrace-passwords")
        loop, wake = self._loop, self._wake

        def finish(identity: Identity | None) -> None:
            try:
                decided(identity)
            except Exception:
                # A fault of ours, so of any kind: what the client said meanwhile is handled in here. As in
                # Connection._handle, it is hung up on, and nobody else notices.
                logger.exception("cid:%d - failed after a login", session.client_id)
                session.close("Internal Error")
            wake()

        def over(future: Future[Identity | None]) -> None:
            if future.cancelled() or self._stopped or loop.is_closed():
                return  # nobody waits for it any more
            error = future.exception()
            if error is not None:
                logger.error("failed to check a password", exc_info=error)
            loop.call_soon_threadsafe(finish, None if error is not None else future.result())

        self._threads.submit(decide).add_done_callback(over)

    def stop(self) -> None:
        """Make no more decisions; one that is being made is not waited for."""
        self._stopped = True
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
