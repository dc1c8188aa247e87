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
from .nkeys import USER, public_key
from .peer import NOWHERE, Peer
from .session_connect import ConnectOptions

__all__ = [
    "Authenticator",
    "Identity",
    "KeyChecker",
    "NoAuthentication",
    "Permissions",
    "ResponsePermission",
    "TokenAuthentication",
    "User",
    "UserAuthentication",
    "check_secret",
    "check_users",
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
    account: str = ""
    """Empty: the default account."""
    until_ns: int = 0
    """When it ends, in nanoseconds since the epoch; 0: never."""
    ends_with_account: bool = False
    """Whether it is the account that ends then, not the user."""
    subscriptions_max: int = -1
    """How many subscriptions a connection of it may have; -1: what the server allows."""
    payload_max: int = -1


@dataclass(frozen=True, slots=True)
class User:
    """One entry of a list of users: with a password, or with a key (``U…``) in ``nkey``.

    Of an entry with a key the name is only shown.
    """

    name: str
    password: str = field(default="", repr=False)
    permissions: Permissions | None = None
    account: str = ""
    nkey: str = ""


class Authenticator(Protocol):
    """Decides from a CONNECT who is there."""

    @property
    def required(self) -> bool:
        """Whether a connection must authenticate before anything else."""
        ...

    def new_nonce(self) -> str:
        """What a new connection is to sign; empty where nobody has a key."""
        ...

    def authenticate(self, options: ConnectOptions, peer: Peer = NOWHERE) -> Identity | None:
        """Whom these credentials belong to, or None. Before CONNECT they are ``UNSAID``."""
        ...


class KeyChecker(Protocol):
    """Checks Ed25519 signatures, and makes what is to be signed."""

    def new_nonce(self) -> str: ...

    def signed(self, key: str, signature: str, nonce: str) -> bool:
        """Whether ``signature``, as CONNECT has it, is that of the public key over the nonce."""
        ...


class NoAuthentication:
    """Everybody is welcome."""

    required = False

    def new_nonce(self) -> str:
        return ""

    def authenticate(self, options: ConnectOptions, peer: Peer = NOWHERE) -> Identity | None:
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

    def new_nonce(self) -> str:
        return ""

    def authenticate(self, options: ConnectOptions, peer: Peer = NOWHERE) -> Identity | None:
        return Identity() if _same(self._token, options.auth_token) else None


class UserAuthentication:
    """A list of users with passwords or keys.

    Args:
        default: whom a client without credentials acts for (``no_auth_user``); None: nobody.
        keys: checks signatures; needed for users with keys.
        map_certificates: who shows a certificate is the user its names name.
    """

    def __init__(
        self,
        users: Sequence[User],
        *,
        default: str | None = None,
        keys: KeyChecker | None = None,
        map_certificates: bool = False,
    ) -> None:
        check_users(users, default, need_secret=not map_certificates)
        names = {user.name: user for user in users}
        if default is not None and default not in names:
            raise ConfigurationError(
                f"no_auth_user: there is no user {default!r}; accepted is one of {sorted(names)}"
            )
        self._default = None if default is None else _identity(names[default])
        self._users = tuple(user for user in users if not user.nkey)
        self._by_key = {user.nkey: user for user in users if user.nkey}
        self._keys = keys
        if self._by_key and keys is None:
            raise ConfigurationError("users: nkey needs something that checks signatures")
        self._map_certificates = map_certificates
        self.required = self._default is None

    def __repr__(self) -> str:
        names = [user.name for user in (*self._users, *self._by_key.values())]
        return f"UserAuthentication({names!r})"

    def new_nonce(self) -> str:
        return self._keys.new_nonce() if self._by_key and self._keys is not None else ""

    def authenticate(self, options: ConnectOptions, peer: Peer = NOWHERE) -> Identity | None:
        if options.nkey:
            return self._with_key(options, peer)
        if self._map_certificates:
            return self._with_certificate(peer)
        if not (options.user or options.password or options.auth_token or options.jwt):
            return self._default
        found = None
        for user in self._users:  # no early exit: the time taken must not tell who exists
            name_fits = _same(user.name, options.user)
            password_fits = _same(user.password, options.password)
            if name_fits & password_fits:
                found = _identity(user)
        return found

    def _with_key(self, options: ConnectOptions, peer: Peer) -> Identity | None:
        user = self._by_key.get(options.nkey)
        if user is None or self._keys is None:
            return None
        return _identity(user) if self._keys.signed(options.nkey, options.sig, peer.nonce) else None

    def _with_certificate(self, peer: Peer) -> Identity | None:
        by_name = {user.name: user for user in self._users}
        for name in peer.certificate:
            if name in by_name:
                return _identity(by_name[name])
        return None


def check_users(
    users: Sequence[User], default: str | None = None, *, need_secret: bool = True
) -> None:
    """Raise ConfigurationError for the first entry that could let in the wrong one."""
    if not users:
        raise ConfigurationError("users: empty; accepted is at least one user")
    seen: set[str] = set()
    for user in users:
        secret = user.password or user.nkey or user.name == default
        if not user.name or (need_secret and not secret):
            raise ConfigurationError(
                f"users: {user.name!r}: each needs a name and a password, or an nkey"
            )
        check_secret(f"users: the password of {user.name!r}", user.password)
        if user.nkey:
            public_key(user.nkey, USER)
        if user.name in seen:
            raise ConfigurationError(f"users: {user.name!r} is listed twice")
        seen.add(user.name)


def _identity(user: User) -> Identity:
    return Identity(user.name, user.permissions, user.account)


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
