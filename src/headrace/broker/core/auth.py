"""Who may connect, and what they may do.

Secrets are compared in constant time, every known user is tried, and neither a ``repr`` nor an error
text shows one.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ...errors import ConfigurationError
from ...subjects import SubjectFilter, is_subset, overlaps
from .session_connect import ConnectOptions

__all__ = [
    "Authenticator",
    "Identity",
    "NoAuthentication",
    "Permissions",
    "ResponsePermission",
    "TokenAuthentication",
    "User",
    "UserAuthentication",
    "check_secret",
]

_BCRYPT = re.compile(r"\$2[abxy]\$\d{2}\$")


@dataclass(frozen=True, slots=True)
class ResponsePermission:
    """How often, and for how long, one may answer a request one was sent, whatever else is denied."""

    messages_max: int
    expires_ns: int


@dataclass(frozen=True, slots=True)
class Permissions:
    """What an identity may publish and subscribe to; ``None`` allows everything.

    ``responses`` additionally permits answers to the requests an identity receives.
    """

    publish_allow: SubjectFilter | None = None
    publish_deny: SubjectFilter | None = None
    subscribe_allow: SubjectFilter | None = None
    subscribe_deny: SubjectFilter | None = None
    responses: ResponsePermission | None = None

    def may_publish(self, subject: bytes) -> bool:
        return _allowed(subject, self.publish_allow, self.publish_deny)

    def may_subscribe(self, pattern: bytes) -> bool:
        """Whether ``pattern`` may be subscribed to: all of it is allowed, and not all of it denied."""
        allow, deny = self.subscribe_allow, self.subscribe_deny
        if deny is not None and any(is_subset(pattern, denied) for denied in deny.patterns):
            return False
        return allow is None or any(is_subset(pattern, allowed) for allowed in allow.patterns)

    def denied_within(self, pattern: bytes) -> SubjectFilter | None:
        """What is to be kept from a subscription that is permitted; None if nothing."""
        deny = self.subscribe_deny
        if deny is None or not any(overlaps(pattern, denied) for denied in deny.patterns):
            return None
        return deny


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom a connection acts for; an empty name is everybody."""

    name: str = ""
    permissions: Permissions | None = None


@dataclass(frozen=True, slots=True)
class User:
    """One entry of a list of users."""

    name: str
    password: str = field(repr=False)
    permissions: Permissions | None = None


class Authenticator(Protocol):
    """Decides from a CONNECT who is there."""

    @property
    def required(self) -> bool:
        """Whether a connection must authenticate before anything else."""
        ...

    def authenticate(self, options: ConnectOptions) -> Identity | None:
        """Whom these credentials belong to, or None."""
        ...


class NoAuthentication:
    """Everybody is welcome."""

    required = False

    def authenticate(self, options: ConnectOptions) -> Identity | None:
        return Identity()


class TokenAuthentication:
    """One shared token, as ``nats://<token>@host`` gives it."""

    required = True

    def __init__(self, token: str) -> None:
        if not token:
            raise ConfigurationError("token: empty; accepted is any non-empty text")
        check_secret("token", token)
        self._token = token

    def __repr__(self) -> str:
        return "TokenAuthentication(…)"

    def authenticate(self, options: ConnectOptions) -> Identity | None:
        return Identity() if _same(self._token, options.auth_token) else None


class UserAuthentication:
    """A list of users with passwords."""

    required = True

    def __init__(self, users: Sequence[User]) -> None:
        names = [user.name for user in users]
        if not names:
            raise ConfigurationError("users: empty; accepted is at least one user")
        for user in users:
            if not user.name or not user.password:
                raise ConfigurationError("users: each needs a name and a password")
            check_secret(f"users: the password of {user.name!r}", user.password)
            if names.count(user.name) > 1:
                raise ConfigurationError(f"users: {user.name!r} is listed twice")
        self._users = tuple(users)

    def __repr__(self) -> str:
        return f"UserAuthentication({[user.name for user in self._users]!r})"

    def authenticate(self, options: ConnectOptions) -> Identity | None:
        found = None
        for user in self._users:  # no early exit: the time taken must not tell who exists
            name_fits = _same(user.name, options.user)
            password_fits = _same(user.password, options.password)
            if name_fits & password_fits:
                found = Identity(user.name, user.permissions)
        return found


def check_secret(what: str, secret: str) -> None:
    """Raise ConfigurationError for a bcrypt hash: compared as text, the hash would be the password."""
    if _BCRYPT.match(secret):
        raise ConfigurationError(
            f"{what}: a bcrypt hash, which Python's standard library cannot check; "
            "accepted is the secret itself (a configuration file may take it from $VARIABLE)"
        )


def _same(expected: str, given: str) -> bool:
    return hmac.compare_digest(expected.encode(), given.encode(errors="surrogatepass"))


def _allowed(subject: bytes, allow: SubjectFilter | None, deny: SubjectFilter | None) -> bool:
    if deny is not None and deny.matches(subject):
        return False
    return allow is None or allow.matches(subject)
