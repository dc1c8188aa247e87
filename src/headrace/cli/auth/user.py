"""The verbs of ``headrace auth user``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from ...errors import InvalidSubjectError
from ...subjects import check_pattern
from ..shared.asking import may_go_on
from ..shared.errors import Failure
from ..shared.output import Output, Sheet, Table, write_private
from ..shared.units import DURATION
from ..shared.verbs import offline
from .account import change_account
from .folder import Folder, dir_option
from .tokens import Key, credentials, signed, user_claims

_ACCOUNT: Final = click.argument("account")
_NAME: Final = click.argument("name")
_RULES: Final = {
    "pub_allow": "subjects it may publish to, alone",
    "pub_deny": "subjects it may not publish to",
    "sub_allow": "subjects it may subscribe to, alone",
    "sub_deny": "subjects it may not subscribe to",
}


def make_user(
    folder: Folder,
    account: str,
    name: str,
    permissions: Mapping[str, Sequence[str]],
    *,
    expires: int = 0,
    bearer: bool = False,
    output: Path | None = None,
) -> tuple[Path, str]:
    """Write the credentials file of a new user; where it is, and the user's public key."""
    import secrets

    owner = folder.account(account)["sub"]
    signer = folder.users_signer(account)
    key = Key("U", secrets.token_bytes(32))
    issuer_account = "" if signer.public == owner else owner
    content = user_claims(issuer_account, permissions, bearer=bearer)
    now = int(time.time())
    token = signed(signer, key.public, name, "user", content, now, expires=expires)
    file = folder.user_file(account, name)
    folder.write(file, credentials(token, key))
    if output is not None:
        try:
            write_private(output.expanduser().absolute(), credentials(token, key))
        except Failure:
            file.unlink(
                missing_ok=True
            )  # nobody has the credentials: the command can be given again
            raise
    return output or file, key.public


@offline(_ACCOUNT, dir_option)
def ls(output: Output, account: str, directory: Path | None) -> None:
    """List the users of an account."""
    folder = Folder(directory)
    folder.account(account)
    table = Table(
        ("NAME", "KEY", "VALID UNTIL"),
        empty=f"no users; `headrace auth user create {account} NAME` makes one",
    )
    rows = []
    for name in folder.users(account):
        found = folder.user(account, name)
        table.add(name, found["sub"], _until(found))
        rows.append({"name": name, "key": found["sub"], "expires": found.get("exp", 0)})
    output.show(rows, table)


def _until(found: Mapping[str, Any]) -> str:
    end = found.get("exp", 0)
    return f"{datetime.fromtimestamp(end, UTC):%Y-%m-%dT%H:%M:%SZ}" if end else "it does not end"


@offline(
    _ACCOUNT,
    _NAME,
    *(
        click.option(
            f"--{name.replace('_', '-')}",
            multiple=True,
            metavar="PATTERN",
            help=f"{text}; repeatable",
        )
        for name, text in _RULES.items()
    ),
    click.option("--expires", type=DURATION, default=None, help="how long it is valid; for ever"),
    click.option("--bearer", is_flag=True, help="the token alone is enough, without the key"),
    click.option(
        "--output",
        "file",
        type=click.Path(dir_okay=False, path_type=Path),
        default=None,
        help="write the credentials there, too",
    ),
    dir_option,
)
def create(
    output: Output,
    account: str,
    name: str,
    expires: float | None,
    bearer: bool,
    file: Path | None,
    directory: Path | None,
    **rules: tuple[str, ...],
) -> None:
    """Make a user of an account and its credentials file, which nobody else can read.

    Servers need not be told. Connect with `--creds FILE`, or `headrace context create`.
    """
    _check_rules(rules)
    folder = Folder(directory)
    with folder.changing():
        if folder.user_file(account, name).exists():
            raise Failure(
                f"account {account!r} has a user {name!r} already",
                f"headrace auth user revoke {account} {name}    ends its credentials",
            )
        if file is not None and file.exists():
            raise Failure(f"{file} is there already; name another file")
        until = int(time.time() + expires) if expires else 0
        made, key = make_user(
            folder, account, name, rules, expires=until, bearer=bearer, output=file
        )
    output.show(
        {"name": name, "account": account, "key": key, "file": str(made), "expires": until},
        f"made user {name} of account {account}: {made}",
        f"  headrace context create {name} --server URL --creds {made}    remembers how to connect",
    )


def _check_rules(rules: Mapping[str, Sequence[str]]) -> None:
    for name, patterns in rules.items():
        for each in patterns:
            try:
                check_pattern(each.encode())
            except InvalidSubjectError as error:
                raise Failure(f"--{name.replace('_', '-')} {each}: {error}") from None


@offline(_ACCOUNT, _NAME, dir_option)
def info(output: Output, account: str, name: str, directory: Path | None) -> None:
    """Show what a user may do. No secret is shown."""
    folder = Folder(directory)
    found = folder.user(account, name)
    content = found["nats"]
    may = {
        rule: content.get(rule[:3], {}).get(rule[4:], [])
        for rule in _RULES
    }  # fmt: skip
    file = folder.user_file(account, name)
    document = {
        "name": name,
        "account": account,
        "key": found["sub"],
        "expires": found.get("exp", 0),
        **may,
        "file": str(file),
    }
    sheet = Sheet(f"User {name} of account {account}")
    sheet.section("", [("key", found["sub"]), ("valid until", _until(found)), ("file", file)])
    sheet.section("", [(rule.replace("_", " "), ", ".join(each)) for rule, each in may.items()])
    output.show(document, sheet)


@offline(_ACCOUNT, _NAME, dir_option, destroys=True)
def revoke(output: Output, account: str, name: str, directory: Path | None) -> None:
    """Accept the credentials of a user no longer, and remove the file. Asks first.

    Servers have to be told: see `headrace auth config`.
    """
    folder = Folder(directory)
    with folder.changing():
        key = folder.user(account, name)["sub"]
        if not may_go_on(output, f"revoke the credentials of user {name} of account {account}"):
            return
        content = folder.account(account)["nats"]
        revocations = {**content.get("revocations", {}), key: int(time.time())}
        change_account(folder, account, {**content, "revocations": revocations})
        folder.user_file(account, name).unlink(missing_ok=True)
    output.show(
        {"revoked": key},
        f"revoked the credentials of user {name}",
        "  headrace auth config    writes what servers have to be told; reload them then",
    )
