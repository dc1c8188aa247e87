"""Seals what is secret at rest with the first of several keys, and opens it with whichever sealed it.

A sealed text is ``sealed:<key>:<base64 of nonce and ciphertext>``, AES-256-GCM, with its place in the
database as associated data: whoever can write there cannot move it to another row or column. What has another
shape is plain: from before there were keys, or where there are none.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from ..errors import ConfigurationError
from .errors import JobsError, bad_request

__all__ = ["PLAIN", "Vault", "foreign", "read_keys", "sealed_with"]

_BEGIN: Final = "sealed:"
_SEALED: Final = re.compile(r"sealed:([0-9a-f]{8}):[A-Za-z0-9+/]+=*\Z")
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_PURPOSE: Final = "headrace jobs"
_OPENED_MAX: Final = 4096
_KEYS_MAX: Final = 16


class Vault:
    """Seals and opens. ``keys`` are base64 of 32 bytes each; none: what is sealed stays plain.

    A text is opened in its ``place`` alone, which is its table, row and column.

    Raises ConfigurationError for a text that is no key, and if the package is not installed.
    """

    def __init__(
        self, keys: Sequence[str] = (), *, random: Callable[[int], bytes] = os.urandom
    ) -> None:
        self._random = random
        self._ciphers: dict[str, Any] = {}
        if len(keys) > _KEYS_MAX:
            raise ConfigurationError(f"encryption keys: at most {_KEYS_MAX}, the first encrypts")
        for number, text in enumerate(keys, 1):
            raw = _raw(text, number)
            self._ciphers[hashlib.sha256(raw).hexdigest()[:8]] = _cipher(raw)
        self._first = next(iter(self._ciphers), None)
        # Opened for each claim of a worker: what is in use is in memory anyway.
        self.open = lru_cache(_OPENED_MAX)(self._open)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its keys: the beginnings of their hashes."""
        return tuple(self._ciphers)

    def is_current(self, stored: str | None) -> bool:
        """Whether the text is as :meth:`seal` would leave it now."""
        return stored is None or self._first is None or sealed_with(stored) == self._first

    def seal(self, text: str, place: str) -> str:
        """The text as it is stored. 400 for one that could not be told from a sealed one."""
        if self._first is None:
            if _SEALED.match(text):
                raise bad_request(
                    "invalid_token", "a token must not look like an encrypted one", "token"
                )
            return text
        nonce = self._random(_NONCE_BYTES)
        sealed = self._ciphers[self._first].encrypt(nonce, text.encode(), _bound(place))
        return f"{_BEGIN}{self._first}:{base64.b64encode(nonce + sealed).decode()}"

    def _open(self, stored: str, place: str) -> str:
        """The text that was stored. 503 if its key is not here, or if it was changed or moved since."""
        name = sealed_with(stored)
        if name is None:
            return stored
        cipher = self._ciphers.get(name)
        if cipher is None:
            raise _unreadable(f"it was encrypted with the key {name}, which is not here")
        from cryptography.exceptions import InvalidTag

        try:
            raw = base64.b64decode(stored.rpartition(":")[2], validate=True)
            opened: bytes = cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], _bound(place))
        except (InvalidTag, ValueError):
            raise _unreadable(
                "what is stored was changed since it was encrypted, or moved here from another row"
            ) from None
        return opened.decode()


PLAIN: Final = Vault()
"""Without keys."""


def _bound(place: str) -> bytes:
    return f"{_PURPOSE} {place}".encode()


def sealed_with(stored: str) -> str | None:
    """Name of the key that sealed a text; None: it is plain."""
    found = _SEALED.match(stored)
    return None if found is None else found[1]


def foreign(vault: Vault, counted: Mapping[str, int]) -> ConfigurationError | None:
    """Why a process with these keys must not begin: so many texts are sealed with keys that it has not."""
    missing = {name: n for name, n in counted.items() if name not in vault.names}
    if not missing:
        return None
    said = ", ".join(f"{name} ({count})" for name, count in sorted(missing.items()))
    return ConfigurationError(
        f"the database has secrets of consumers that were encrypted with keys which are not here: {said}; "
        "name these keys, too (encryption_keys_file, or HEADRACE_JOBS_ENCRYPTION_KEYS). Nothing was changed"
    )


def read_keys(path: Path) -> list[str]:
    """The keys of a file, one a line; empty lines and those that begin with # are left out."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise ConfigurationError(f"encryption_keys_file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"encryption_keys_file {path}: this is no text") from None
    keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not keys:
        raise ConfigurationError(f"encryption_keys_file {path}: there is no key in it")
    return keys


def _raw(text: str, number: int) -> bytes:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != _KEY_BYTES:
        raise ConfigurationError(
            f"encryption key {number}: accepted is the base64 of {_KEY_BYTES} random bytes, such as "
            "`openssl rand -base64 32` makes"
        )
    return raw


def _cipher(raw: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise ConfigurationError(
            f"encryption of secrets needs `pip install 'headrace[nkeys]'` ({error})"
        ) from error
    return AESGCM(raw)


def _unreadable(why: str) -> JobsError:
    return JobsError(503, "secret_unreadable", f"a secret of the consumer cannot be read: {why}")
