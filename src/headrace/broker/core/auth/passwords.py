"""Passwords and tokens that are kept as bcrypt hashes.

Comparing one takes a tenth of a second of processor time on purpose, so it is a slow decision: the session
waits for it, the event loop does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ....errors import ConfigurationError

if TYPE_CHECKING:
    from .authentication import Identity

_PREFIX: Final = re.compile(r"\$2[abxy]\$")  # what nats-server takes for a hash
_HASH: Final = re.compile(r"\$2[abxy]\$(\d\d)\$[./A-Za-z0-9]{53}")
_COST_MIN: Final = 4
_COST_MAX: Final = 31


class SlowDecision(NamedTuple):
    """Who is there depends on ``decide()``, which takes long and may be called in any thread."""

    decide: Callable[[], Identity | None]


class PasswordChecker(Protocol):
    """Compares passwords with bcrypt hashes."""

    def known(self, hashed: str, password: str) -> bool:
        """Whether the two were found to belong together before; quick."""

    def matches(self, hashed: str, password: str) -> bool:
        """Whether the two belong together; slow, for any thread."""


class SlowDecisions(Protocol):
    """Where slow decisions are made."""

    def begin(
        self,
        session: Any,
        decide: Callable[[], Identity | None],
        decided: Callable[[Identity | None], None],
    ) -> None:
        """Call ``decide``, and with what it returns ``decided``, in the hub's thread, a tick after it.

        If ``decide`` raises, nobody is let in.
        """


class AtOnce:
    """Makes slow decisions at once, where there is no thread for them."""

    def begin(
        self,
        session: Any,
        decide: Callable[[], Identity | None],
        decided: Callable[[Identity | None], None],
    ) -> None:
        decided(decide())


def is_hash(secret: str) -> bool:
    """Whether a configured secret is a hash, as nats-server tells."""
    return _PREFIX.match(secret) is not None


def check_hash(what: str, secret: str) -> None:
    """Raise ConfigurationError for a hash that nothing can match."""
    found = _HASH.fullmatch(secret)
    if found is None:
        raise ConfigurationError(
            f"{what}: begins like a bcrypt hash, but is not a whole one; give all of its 60 characters"
        )
    if not _COST_MIN <= int(found[1]) <= _COST_MAX:
        raise ConfigurationError(
            f"{what}: a bcrypt hash of cost {found[1]}; accepted is {_COST_MIN} to {_COST_MAX}"
        )
