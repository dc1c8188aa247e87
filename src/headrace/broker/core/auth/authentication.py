"""Who may connect, and what they may do.

Secrets are compared in constant time, every known user is tried, and neither a ``repr`` nor an error
text shows one.

Comparing a bcrypt hash takes a tenth of a second of processor time on purpose, so it is a
``SlowDecision``: the session waits for it, the event loop does not.

An NKEY is written in base32 without padding: a byte (or two) for its kind, 32 bytes of Ed25519, and a
CRC-16 of both. Signatures are checked elsewhere; nothing of it is secret.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from ....errors import ConfigurationError
from ....field_docs import described
from ..peer import NOWHERE, ConnectOptions, Peer
from .permissions import Permissions

_PREFIX: Final = re.compile(r"\$2[abxy]\$")  # what nats-server takes for a hash
_HASH: Final = re.compile(r"\$2[abxy]\$(\d\d)\$[./A-Za-z0-9]{53}")
_COST_MIN: Final = 4
_COST_MAX: Final = 31
ACCOUNT: Final = "A"
OPERATOR: Final = "O"
USER: Final = "U"
_PREFIXES: Final = {"A": 0, "C": 2 << 3, "N": 13 << 3, "O": 14 << 3, "U": 20 << 3}
_KEY_BYTES: Final = 35  # prefix, key, checksum


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


def _check_hash(what: str, secret: str) -> None:
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


def public_key(text: str, kind: str) -> bytes:
    """The 32 bytes of a public key. Raises ConfigurationError if it is not one of this kind."""
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != _KEY_BYTES or _checksum(raw[:-2]) != raw[-2:]:
        raise ConfigurationError(f"{text[:64]!r} is not an nkey; accepted is a public key, {kind}…")
    if raw[0] != _PREFIXES[kind]:
        raise ConfigurationError(f"{text!r} is an nkey of another kind; accepted is {kind}…")
    return raw[1:-2]


def _checksum(raw: bytes) -> bytes:
    """CRC-16/XMODEM, the low byte first."""
    return binascii.crc_hqx(raw, 0).to_bytes(2, "little")


class Identity(msgspec.Struct, frozen=True):
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


@described
@dataclass(frozen=True, slots=True)
class User:
    """One entry of a list of users: with a password, or with a key (``U…``) in ``nkey``.

    Of an entry with a key the name is only shown.
    """

    name: str
    """The name to log in with; with an ``nkey`` it is only shown."""

    password: str = field(default="", repr=False)
    """The password, plain or as a bcrypt hash; "" by default."""

    permissions: Permissions | None = None
    """What it may publish and subscribe to; None, the default: everything."""

    account: str = ""
    """The account it belongs to; "", the default: the default one."""

    nkey: str = ""
    """The public key (``U…``) to log in with, instead of a password; "" by default."""


Verdict: TypeAlias = Identity | SlowDecision | None
"""Who is there, nobody who may be, or a decision that takes long."""


class Authenticator(Protocol):
    """Decides from a CONNECT who is there."""

    @property
    def required(self) -> bool:
        """Whether a connection must authenticate before anything else."""

    def new_nonce(self) -> str:
        """What a new connection is to sign; empty where nobody has a key."""

    def authenticate(self, options: ConnectOptions, peer: Peer = NOWHERE) -> Verdict:
        """Whom these credentials belong to. Before CONNECT they are ``UNSAID``, and decided at once."""


class KeyChecker(Protocol):
    """Checks Ed25519 signatures, and makes what is to be signed."""

    def new_nonce(self) -> str: ...

    def signed(self, key: str, signature: str, nonce: str) -> bool:
        """Whether ``signature``, as CONNECT has it, is that of the public key over the nonce."""


class NoAuthentication:
    """Everybody is welcome."""

    required = False

    def new_nonce(self) -> str:
        return ""

    def authenticate(self, options: ConnectOptions, peer: Peer = NOWHERE) -> Identity | None:
        return Identity()


class TokenAuthentication:
    """One shared token, as ``nats://<token>@host`` gives it, or its hash, which needs ``passwords``."""

    required = True

    def __init__(self, token: str, *, passwords: PasswordChecker | None = None) -> None:
        if not token:
            raise ConfigurationError("token: empty; accepted is any non-empty text")
        check_secret("token", token)
        if is_hash(token) and passwords is None:
            raise ConfigurationError("token: a hash needs something that compares passwords")
        self._token = token
        self._passwords = passwords if is_hash(token) else None

    def __repr__(self) -> str:
        return "TokenAuthentication(…)"

    def new_nonce(self) -> str:
        return ""

    def authenticate(self, options: ConnectOptions, peer: Peer = NOWHERE) -> Verdict:
        given = options.auth_token
        if self._passwords is not None:
            return _compared(self._passwords, self._token, given, Identity()) if given else None
        return Identity() if _same(self._token, given) else None


class UserAuthentication:
    """A list of users with passwords or keys.

    Args:
        default: whom a client without credentials acts for (``no_auth_user``); None: nobody.
        keys: checks signatures; needed for users with keys.
        passwords: compares hashes; needed for users whose password is one.
        map_certificates: who shows a certificate is the user its names name.
    """

    def __init__(
        self,
        users: Sequence[User],
        *,
        default: str | None = None,
        keys: KeyChecker | None = None,
        passwords: PasswordChecker | None = None,
        map_certificates: bool = False,
    ) -> None:
        check_users(users)
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
        self._hashed = tuple(user for user in self._users if is_hash(user.password))
        self._passwords = passwords
        if self._hashed and passwords is None:
            raise ConfigurationError("users: a hash needs something that compares passwords")
        self._map_certificates = map_certificates
        self.required = self._default is None

    def __repr__(self) -> str:
        names = [user.name for user in (*self._users, *self._by_key.values())]
        return f"UserAuthentication({names!r})"

    def new_nonce(self) -> str:
        return self._keys.new_nonce() if self._by_key and self._keys is not None else ""

    def authenticate(self, options: ConnectOptions, peer: Peer = NOWHERE) -> Verdict:
        if options.nkey:
            return self._with_key(options, peer)
        if self._map_certificates:
            return self._with_certificate(peer)
        if not (options.user or options.password or options.auth_token or options.jwt):
            return self._default
        return self._with_password(options.user, options.password)

    def _with_password(self, name: str, password: str) -> Verdict:
        named, found = None, None
        for user in self._users:  # no early exit: the time taken must not tell who exists
            name_fits = _same(user.name, name)
            password_fits = _same(user.password, password)
            if name_fits:
                named = user
            if name_fits & password_fits:
                found = _identity(user)
        if self._passwords is None or not self._hashed or not password:
            return found
        if named is None:  # takes as long as a wrong password, for the same reason
            return _compared(self._passwords, self._hashed[0].password, password, None)
        if named in self._hashed:
            return _compared(self._passwords, named.password, password, _identity(named))
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


def check_users(users: Sequence[User]) -> None:
    """Raise ConfigurationError for the first entry that could let in the wrong one.

    A user without a password is let in without one, as by nats-server.
    """
    if not users:
        raise ConfigurationError("users: empty; accepted is at least one user")
    seen: set[str] = set()
    for user in users:
        if not user.name:
            raise ConfigurationError("users: an entry without a name; each needs one, or an nkey")
        check_secret(f"users: the password of {user.name!r}", user.password)
        if user.nkey:
            public_key(user.nkey, USER)
        if user.name in seen:
            raise ConfigurationError(f"users: {user.name!r} is listed twice")
        seen.add(user.name)


def _identity(user: User) -> Identity:
    return Identity(user.name, user.permissions, user.account)


def check_secret(what: str, secret: str) -> None:
    """Raise ConfigurationError for what looks like a bcrypt hash and can not be matched."""
    if is_hash(secret):
        _check_hash(what, secret)


def _compared(
    passwords: PasswordChecker, hashed: str, given: str, identity: Identity | None
) -> Verdict:
    """``identity`` for whom the password is right: now if that is known, otherwise later."""
    if passwords.known(hashed, given):
        return identity
    return SlowDecision(lambda: identity if passwords.matches(hashed, given) else None)


def _same(expected: str, given: str) -> bool:
    return hmac.compare_digest(expected.encode(), given.encode(errors="surrogatepass"))
