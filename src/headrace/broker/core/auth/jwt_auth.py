"""Authentication by tokens: an operator signs accounts, an account signs users, a user signs the nonce.

The accounts are those the configuration has (``resolver_preload``). Whatever is wrong with a token of a
client ends in the same refusal; whatever is wrong with an account's is told when the broker starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from ....clock import Clock
from ....errors import ConfigurationError
from ..options import COMPATIBLE_VERSION, AccountOptions
from ..peer import NOWHERE, ConnectOptions, Peer
from .authentication import ACCOUNT, OPERATOR, Identity, KeyChecker, public_key
from .jwt import (
    Claims,
    TokenError,
    Verify,
    account_options,
    check_grants_nothing,
    check_origin,
    decode_token,
    permissions_of,
)

_NS: Final = 1_000_000_000


class _TrustedAccount(msgspec.Struct, frozen=True):
    """An account whose token was found good."""

    claims: Claims
    options: AccountOptions
    keys: Mapping[str, Mapping[str, Any] | None]
    """Who may sign its users; a key with a template gives them its permissions, and no others."""


class TokenTrust(msgspec.Struct, frozen=True):
    """What a configuration trusts: tokens of operators, and of accounts by their public key.

    ``keys`` are public keys that sign accounts, of operators whose tokens are not at hand.
    """

    operators: tuple[str, ...]
    accounts: Mapping[str, str] = msgspec.field(default_factory=dict)
    keys: tuple[str, ...] = ()


class TrustedTokens:
    """Implements ``Authenticator``. Raises ConfigurationError for the first token that is not good."""

    required = True

    def __init__(self, trust: TokenTrust, keys: KeyChecker, verify: Verify, clock: Clock) -> None:
        self._keys = keys
        self._verify = verify
        self._clock = clock
        signers = self._operators(trust.operators)
        for key in trust.keys:
            public_key(key, OPERATOR)
            signers[key] = False
        self._accounts = {
            name: self._account(name, token, signers) for name, token in trust.accounts.items()
        }

    def __repr__(self) -> str:
        return f"TrustedTokens({list(self._accounts)!r})"

    @property
    def accounts(self) -> list[AccountOptions]:
        return [account.options for account in self._accounts.values()]

    def new_nonce(self) -> str:
        return self._keys.new_nonce()

    def authenticate(self, options: ConnectOptions, peer: Peer = NOWHERE) -> Identity | None:
        if not options.jwt:
            return None
        try:
            return self._identity(options, peer)
        except TokenError:
            return None  # why is not told to a stranger

    def _identity(self, options: ConnectOptions, peer: Peer) -> Identity:
        now_s = self._clock.now_ns() / _NS
        user = decode_token(options.jwt, "user", self._verify)
        user.check_time(now_s)
        content = user.nats
        account = self._accounts.get(str(content.get("issuer_account") or user.iss))
        if account is None or user.iss not in account.keys:
            raise TokenError("it is not signed by an account there is")
        account.claims.check_time(now_s)
        _check_not_revoked(account.claims, user)
        template = account.keys[user.iss]
        if template is not None:
            check_grants_nothing(content)
            content = dict(template)
        check_origin(content, peer)
        if content.get("bearer_token", False):
            if (account.claims.nats.get("limits") or {}).get("disallow_bearer"):
                raise TokenError("the account does not take bearer tokens")
        elif not self._keys.signed(user.sub, options.sig, peer.nonce):
            raise TokenError("the nonce is not signed by its user")
        granted = permissions_of(content)
        if granted is None:
            granted = permissions_of(account.claims.nats.get("default_permissions") or {})
        ends = [claims.exp for claims in (user, account.claims) if claims.exp]
        return Identity(
            name=user.sub,
            permissions=granted,
            account=account.claims.sub,
            until_ns=min(ends) * _NS if ends else 0,
            ends_with_account=bool(ends) and min(ends) != user.exp,
            subscriptions_max=_most(content.get("subs", -1)),
            payload_max=_most(content.get("payload", -1)),
        )

    def _operators(self, tokens: Sequence[str]) -> dict[str, bool]:
        """Every key that may sign accounts, and whether their users must be signed by signing keys."""
        signers: dict[str, bool] = {}
        for token in tokens:
            try:
                claims = decode_token(token, "operator", self._verify)
                claims.check_time(self._clock.now_ns() / _NS)
                keys = [claims.sub, *(claims.nats.get("signing_keys") or ())]
                for key in keys:
                    public_key(str(key), OPERATOR)
            except (TokenError, ConfigurationError) as error:
                raise ConfigurationError(f"operator: the token is not good: {error}") from None
            if claims.iss not in keys:
                raise ConfigurationError("operator: the token is not signed by its operator")
            _check_version(str(claims.nats.get("assert_server_version", "")))
            strict = claims.nats.get("strict_signing_key_usage", False)
            signers.update((str(key), strict) for key in (keys[1:] if strict else keys))
        return signers

    def _account(self, name: str, token: str, signers: Mapping[str, bool]) -> _TrustedAccount:
        try:
            claims = decode_token(token, "account", self._verify)
            options = account_options(claims)
            keys = _signing_keys(claims)
        except (TokenError, ConfigurationError) as error:
            raise ConfigurationError(f"resolver_preload: {name}: {error}") from None
        if claims.sub != name:
            raise ConfigurationError(
                f"resolver_preload: {name}: the token is about another account"
            )
        if claims.iss not in signers:
            raise ConfigurationError(f"resolver_preload: {name}: the operator did not sign it")
        if signers[claims.iss]:
            keys = {key: template for key, template in keys.items() if key != claims.sub}
        return _TrustedAccount(claims, options, keys)


def _check_version(wanted: str) -> None:
    """Raise ConfigurationError if an operator asks for a later server than the one we stand for."""
    try:
        asked = tuple(map(int, wanted.split("."))) if wanted else (0, 0, 0)
    except ValueError:
        asked = ()
    if len(asked) != 3:
        raise ConfigurationError(f"assert_server_version {wanted!r} is no version, like 2.10.0")
    if asked > tuple(map(int, COMPATIBLE_VERSION.split("."))):
        text = f"it asserts a server of version {wanted}; this one is as {COMPATIBLE_VERSION}"
        raise ConfigurationError(text)


def _signing_keys(claims: Claims) -> dict[str, Mapping[str, Any] | None]:
    """The account's own key and its signing keys. Raises TokenError, ConfigurationError."""
    keys: dict[str, Mapping[str, Any] | None] = {claims.sub: None}
    for entry in claims.nats.get("signing_keys") or ():
        if isinstance(entry, str):
            keys[entry] = None
        elif isinstance(entry, dict) and entry.get("kind") == "user_scope":
            template = entry.get("template") or {}
            permissions_of(template)
            keys[str(entry.get("key"))] = template
        else:
            raise TokenError("a signing key is neither a key nor a scope of users")
    for key in keys:
        public_key(key, ACCOUNT)
    return keys


def _check_not_revoked(account: Claims, user: Claims) -> None:
    revoked = account.nats.get("revocations") or {}
    for whose in (user.sub, "*"):
        if user.iat <= _number(revoked.get(whose, -1)):
            raise TokenError("it was revoked")


def _most(value: object) -> int:
    """A limit of a user: -1 for none, and what is less allows nothing."""
    number = _number(value)
    return number if number >= -1 else 0


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TokenError("a limit is not a whole number")
    return value
