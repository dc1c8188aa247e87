"""Who has given the password. Tokens live in memory: a restart asks for the password again."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import Final

COOKIE: Final = "headrace_console"
LOGIN_S: Final = 12 * 3600.0
LOGINS_MAX: Final = 1_000
FAILURES_MAX: Final = 10  # in FAILURES_S, from everybody together
FAILURES_S: Final = 60.0


class TooManyFailuresError(Exception):
    """The password was wrong too often; ``wait_s`` says how long nobody is listened to."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"too many wrong passwords; try again in {wait_s:.0f} s")
        self.wait_s = wait_s


class Logins:
    """Compares passwords, and remembers the tokens it gave.

    Args:
        password: the right one.
        clock: monotonic seconds.
    """

    def __init__(self, password: str, clock: Callable[[], float]) -> None:
        self._digest = _digest(password)
        self._clock = clock
        self._tokens: dict[str, float] = {}
        self._failures: list[float] = []

    def log_in(self, password: str) -> str | None:
        """A new token, or None for a wrong password. Raises TooManyFailuresError."""
        if not self.is_right(password):
            return None
        if len(self._tokens) >= LOGINS_MAX:
            del self._tokens[next(iter(self._tokens))]
        token = secrets.token_urlsafe(32)
        self._tokens[token] = self._clock() + LOGIN_S
        return token

    def is_right(self, password: str) -> bool:
        """Whether it is the password, without a token. Raises TooManyFailuresError."""
        now = self._clock()
        self._failures = [each for each in self._failures if now - each < FAILURES_S]
        if len(self._failures) >= FAILURES_MAX:
            raise TooManyFailuresError(FAILURES_S - (now - self._failures[0]))
        if hmac.compare_digest(_digest(password), self._digest):
            return True
        self._failures.append(now)
        return False

    def knows(self, token: str) -> bool:
        """Whether a token is one of ours, and still valid."""
        until = self._tokens.get(token)
        if until is None:
            return False
        if self._clock() >= until:
            del self._tokens[token]
            return False
        return True

    def log_out(self, token: str) -> None:
        """Forget a token."""
        self._tokens.pop(token, None)


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode()).digest()
