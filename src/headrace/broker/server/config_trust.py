"""Operators and the accounts they signed, as nats-server's files say it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..core.jwt_auth import TokenTrust
from .config_fields import Fields, refuse
from .config_syntax import ConfigMap, ConfigValue

__all__ = ["read_trust"]

_TOKEN: Final = "eyJ"  # noqa: S105 - how every token starts: the base64 of {"

Read = Callable[[str], str]
"""Gives the text of a file named in the configuration; raises OSError."""


def read_trust(top: Fields, read: Read) -> TokenTrust | None:
    """``operator``, ``resolver: MEMORY`` and ``resolver_preload``; None without an operator.

    An operator is a token, or the name of the file with it. Raises ConfigurationError with the place.
    """
    operator = top.take("operator", "operators", "roots", "root")
    resolver, preload = top.take("resolver"), top.take("resolver_preload")
    if operator is None:
        for name, value in (("resolver", resolver), ("resolver_preload", preload)):
            if value is not None:
                refuse(value, name, "of no use without an operator")
        return None
    if resolver is not None and str(resolver.content).upper() not in ("MEM", "MEMORY"):
        refuse(resolver, "resolver", "not supported; accepted is MEMORY, with resolver_preload")
    if preload is None:
        refuse(operator, "operator", "needs accounts: resolver: MEMORY and resolver_preload")
    if not isinstance(preload.content, ConfigMap):
        refuse(preload, "resolver_preload", "must be a map of tokens by the keys of accounts")
    accounts = {name: _token(value, name, None) for name, value in preload.content.items()}
    listed = operator.content if isinstance(operator.content, list) else [operator]
    return TokenTrust(tuple(_token(value, "operator", read) for value in listed), accounts)


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
