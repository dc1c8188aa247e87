"""Where keys and tokens are kept: a folder that nobody else can read.

::

    operator.jwt  operator.nk  operator-signing.nk
    accounts/NAME.jwt  NAME.nk  NAME-signing.nk
    users/ACCOUNT/NAME.creds

``….nk`` are seeds. The one of the operator, and those of accounts that have a signing key, are needed for
nothing but another signing key, and can be kept elsewhere.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from ..shared.errors import Failure
from ..shared.output import write_private
from . import tokens
from .tokens import Key, read_seed

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
VARIABLE: Final = "HEADRACE_AUTH_DIR"

dir_option = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    envvar=VARIABLE,
    default=None,
    help=f"where keys and tokens are kept; {VARIABLE} (~/.local/share/headrace/auth)",
)


class Folder:
    """The keys and tokens of one operator.

    Args:
        directory: None: the user's own.
    """

    def __init__(self, directory: Path | None) -> None:
        base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
        self.path = directory or base / "headrace" / "auth"

    # The operator

    def operator(self) -> dict[str, Any]:
        """The claims of the operator's token. Raises Failure: there is none."""
        text = self._text(self.path / "operator.jwt")
        if text is None:
            raise Failure(
                f"there is no operator in {self.path}",
                "headrace auth operator create NAME    makes one",
            )
        return tokens.read(text, (), "operator.jwt")

    def operator_token(self) -> str:
        """The token itself."""
        self.operator()
        return (self._text(self.path / "operator.jwt") or "").strip()

    def accounts_signer(self) -> Key:
        """The key that signs accounts: the operator's signing key, or its own."""
        return self._signer(self.path / "operator", "O", "operator")

    # Accounts

    def accounts(self) -> list[str]:
        """Their names."""
        return sorted(path.stem for path in (self.path / "accounts").glob("*.jwt"))

    def account(self, name: str) -> dict[str, Any]:
        """The claims of an account's token. Raises Failure."""
        text = self._text(self._account(name, ".jwt"))
        if text is None:
            there = ", ".join(self.accounts()) or "none"
            raise Failure(
                f"there is no account {name!r} in {self.path}; there are: {there}",
                f"headrace auth account create {name}    makes it",
            )
        operator = self.operator()
        issuers = (operator["sub"], *operator["nats"].get("signing_keys", ()))
        return tokens.read(text, issuers, f"accounts/{name}.jwt")

    def account_token(self, name: str) -> str:
        """The token itself."""
        self.account(name)
        return (self._text(self._account(name, ".jwt")) or "").strip()

    def users_signer(self, account: str) -> Key:
        """The key that signs the users of an account."""
        return self._signer(self._account(account, ""), "A", f"account {account}")

    # Users

    def users(self, account: str) -> list[str]:
        """Their names."""
        return sorted(path.stem for path in (self.path / "users" / account).glob("*.creds"))

    def user_file(self, account: str, name: str) -> Path:
        """The credentials file of a user."""
        return self.path / "users" / checked(account) / f"{checked(name)}.creds"

    def user(self, account: str, name: str) -> dict[str, Any]:
        """The claims of a user's token. Raises Failure."""
        claims = self.account(account)
        text = self._text(self.user_file(account, name))
        if text is None:
            there = ", ".join(self.users(account)) or "none"
            raise Failure(f"account {account!r} has no user {name!r}; there are: {there}")
        issuers = (claims["sub"], *claims["nats"].get("signing_keys", ()))
        found = re.search(r"BEGIN NATS USER JWT-+\s+(\S+)", text)
        return tokens.read(found[1] if found else "", issuers, f"users/{account}/{name}.creds")

    # Keys and files

    def make_key(self, front: str, kind: str) -> Key:
        """The key whose seed is in ``front`` + ``.nk``: the one that is there, or a new one."""
        path = self.path / f"{front}.nk"
        seed = self._text(path)
        if seed is not None:
            return read_seed(seed, kind, path.name)
        key = Key(kind, secrets.token_bytes(32))
        self.write(path, f"{key.seed}\n")
        return key

    def replace_key(self, front: str, kind: str) -> Key:
        """A new key in place of the one whose seed is in ``front`` + ``.nk``, which is kept beside it."""
        path = self.path / f"{front}.nk"
        seed = self._text(path)
        if seed is not None:
            former = read_seed(seed, kind, path.name)
            self.write(path.with_name(f"{path.stem}-{former.public[:12]}.nk"), seed)
        key = Key(kind, secrets.token_bytes(32))
        self.write(path, f"{key.seed}\n")
        return key

    def write(self, path: Path, text: str) -> None:
        """Write a file of the folder. Raises Failure."""
        self._make()
        write_private(path, text)

    def _make(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise Failure(f"{self.path}: {error.strerror}") from None

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Alone: two who change an account at the same time would undo each other's change."""
        import fcntl  # where there is none, as on Windows, what needs it says so

        self._make()
        try:
            descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Failure(f"{self.path}: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _account(self, name: str, end: str) -> Path:
        return self.path / "accounts" / f"{checked(name)}{end}"

    def _signer(self, front: Path, kind: str, what: str) -> Key:
        for path in (
            front.with_name(f"{front.name}-signing.nk"),
            front.with_name(f"{front.name}.nk"),
        ):
            seed = self._text(path)
            if seed is not None:
                return read_seed(seed, kind, path.name)
        raise Failure(f"no key of {what} is in {self.path}; one of its seeds is needed to sign")

    def _text(self, path: Path) -> str | None:
        """What a file says; None: there is none. Raises Failure."""
        try:
            return path.read_text()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise Failure(f"{path}: {getattr(error, 'strerror', None) or 'not text'}") from None


def checked(name: str) -> str:
    """A name that can be a file's. Raises Failure."""
    if not _NAME.fullmatch(name) or name.endswith("-signing"):
        raise Failure(
            f"{name!r} cannot be a name; accepted are up to 64 letters, digits, '_', '-' and '.', "
            "which do not end with '-signing'"
        )
    return name
