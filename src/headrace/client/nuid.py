"""Identifiers that do not repeat: 22 characters of base 62, a random prefix and a stepping count."""

from __future__ import annotations

import random
from typing import Final

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PREFIX_CHARS: Final = 12
_COUNT_CHARS: Final = 10
_COUNT_MAX: Final = 62**_COUNT_CHARS
_STEP_MIN, _STEP_MAX = 33, 333


class Nuid:
    """A generator of identifiers, one per connection. Prefixes come from the system's randomness."""

    def __init__(self, source: random.Random | None = None) -> None:
        self._random = source or random.SystemRandom()
        self._restart()

    def _restart(self) -> None:
        self._prefix = base62(self._random.randrange(0, 62**_PREFIX_CHARS), _PREFIX_CHARS)
        self._count = self._random.randrange(0, _COUNT_MAX // 2)
        self._step = self._random.randrange(_STEP_MIN, _STEP_MAX)

    def next(self) -> str:
        """A new identifier."""
        self._count += self._step
        if self._count >= _COUNT_MAX:
            self._restart()
        return self._prefix + base62(self._count, _COUNT_CHARS)


def base62(value: int, width: int) -> str:
    """``value`` in base 62, padded with zeros to ``width`` characters."""
    digits = []
    for _ in range(width):
        value, digit = divmod(value, 62)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
