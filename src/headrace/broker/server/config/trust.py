"""Operators, or their keys, and the accounts they signed, as nats-server's files say it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ....errors import ConfigurationError
from ...core.auth.authentication import OPERATOR, public_key
from ...core.auth.jwt_auth import TokenTrust
from .fields import Fields, refuse
from .syntax import ConfigMap, ConfigValue

_TOKEN: Final = "eyJ"  # noqa: S105 - how every token starts: the base64 of {"

Read = Callable[[str], str]
"""Gives the text of a file named in the configuration; raises OSError."""


def read_trust(top: Fields, read: Read) -> TokenTrust | None:
    """``operator`` or ``trusted_keys``, ``resolver: MEMORY`` and ``resolver_preload``; None without.

    An operator is a token, or the name of the file with it; trusted keys are those that sign accounts.
    Raises ConfigurationError with the place.
    """
    operator = top.take("operator", "operators", "roots", "root")
    trusted = top.take("trusted_keys", "trusted")
    if operator is not None and trusted is not None:
        refuse(trusted, "trusted_keys", "given beside an operator; accepted is one of them")
    operator, what = (operator, "operator") if trusted is None else (trusted, "trusted_keys")
    resolver, preload = top.take("resolver"), top.take("resolver_preload")
    if operator is None:
        for name, value in (("resolver", resolver), ("resolver_preload", preload)):
            if value is not None:
                refuse(value, name, "of no use without an operator")
        return None
    if resolver is not None and str(resolver.content).upper() not in ("MEM", "MEMORY"):
        refuse(resolver, "resolver", "not supported; accepted is MEMORY, with resolver_preload")
    if preload is None:
        refuse(operator, what, "needs accounts: resolver: MEMORY and resolver_preload")
    if not isinstance(preload.content, ConfigMap):
        refuse(preload, "resolver_preload", "must be a map of tokens by the keys of accounts")
    accounts = {name: _token(value, name, None) for name, value in preload.content.items()}
    listed = operator.content if isinstance(operator.content, list) else [operator]
    if trusted is not None:
        return TokenTrust((), accounts, tuple(_key(value) for value in listed))
    return TokenTrust(tuple(_token(value, "operator", read) for value in listed), accounts)


def _key(value: ConfigValue) -> str:
    text = value.content
    try:
        public_key(text if isinstance(text, str) else "", OPERATOR)
    except ConfigurationError as error:
        refuse(value, "trusted_keys", f"not accepted; each must be an operator's key: {error}")
    return str(text)


def _token(value: ConfigValue, name: str, read: Read | None) -> str:
    text = value.content
    if not isinstance(text, str) or not text:
        refuse(value, name, "not accepted; it must be a token")
    if text.startswith(_TOKEN) or read is None:
        return text
    try:
        return _armoured(read(text))
    except (OSError, UnicodeDecodeError) as error:
        refuse(value, name, f"cannot read the file {text!r}: {error}")


def _armoured(text: str) -> str:
    """The token in a file, which may stand between lines of dashes."""
    lines = [line.strip() for line in text.splitlines()]
    return next((line for line in lines if line.startswith(_TOKEN)), "")
