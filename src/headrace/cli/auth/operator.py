"""``headrace auth operator``, ``config`` and ``nkey``: who signs accounts, what a server needs to know."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Any

import click

from ..shared.errors import Failure
from ..shared.output import Output, Sheet, write_private
from ..shared.verbs import offline
from .folder import Folder, checked, dir_option
from .tokens import KINDS, Key, account_claims, signed

SYSTEM = "SYS"


@offline(click.argument("name"), dir_option)
def create(output: Output, name: str, directory: Path | None) -> None:
    """Make an operator, with a key that signs accounts, and the system account SYS with a user sys.

    \b
    headrace auth operator create ACME
    headrace auth account create SHOP
    headrace auth user create SHOP web
    headrace auth config --output auth.conf

    Called again after a failure it goes on with the keys that are there.
    """
    from .account import make_account
    from .user import make_user

    folder = Folder(directory)
    with folder.changing():
        token = folder.path / "operator.jwt"
        is_begun = token.exists()
        if is_begun and (folder.path / "accounts" / f"{SYSTEM}.jwt").exists():
            there = folder.operator()["name"]
            raise Failure(
                f"there is an operator {there} in {folder.path} already",
                "headrace auth operator create NAME --dir ELSEWHERE    makes another one",
            )
        own = folder.make_key("operator", "O")
        signing = folder.make_key("operator-signing", "O")
        system = folder.make_key(f"accounts/{SYSTEM}", "A")
        now = int(time.time())
        content = {"system_account": system.public, "signing_keys": [signing.public]}
        if is_begun:
            name = folder.operator()["name"]
        else:
            text = signed(own, own.public, checked(name), "operator", content, now)
            folder.write(token, text + "\n")
        make_account(folder, SYSTEM, account_claims({}, jetstream=False))
        file, _ = make_user(folder, SYSTEM, "sys", {})
    document = {"name": name, "key": own.public, "directory": str(folder.path)}
    output.show(
        document,
        f"made operator {name} in {folder.path}, and the user sys of its system account: {file}",
        f"  {folder.path / 'operator.nk'}    is needed for new signing keys alone; keep it elsewhere",
        "  headrace auth account create NAME    makes an account",
    )


@offline(dir_option)
def info(output: Output, directory: Path | None) -> None:
    """Show the operator and its accounts. No secret is shown."""
    folder = Folder(directory)
    found = folder.operator()
    keys: list[str] = found["nats"].get("signing_keys", [])
    document: dict[str, Any] = {
        "name": found["name"],
        "key": found["sub"],
        "signing_keys": keys,
        "system_account": found["nats"].get("system_account", ""),
        "accounts": folder.accounts(),
        "directory": str(folder.path),
    }
    sheet = Sheet(f"Operator {found['name']}")
    sheet.section("", [("key", found["sub"]), *(("signing key", key) for key in keys)])
    sheet.section(
        "",
        [
            ("system account", document["system_account"]),
            ("accounts", ", ".join(document["accounts"])),
            ("directory", folder.path),
        ],
    )
    output.show(document, sheet)


@offline(dir_option)
def key(output: Output, directory: Path | None) -> None:
    """Make another signing key, which signs accounts from now on; those signed before stay valid.

    It needs the operator's own seed, operator.nk. Servers have to be told: see `auth config`.
    """
    folder = Folder(directory)
    with folder.changing():
        found = folder.operator()
        if not (folder.path / "operator.nk").exists():
            raise Failure(
                f"{folder.path / 'operator.nk'} is not there, which alone signs the operator"
            )
        own = folder.make_key("operator", "O")
        signing = folder.replace_key("operator-signing", "O")
        content = {**found["nats"]}
        content["signing_keys"] = [*content.get("signing_keys", ()), signing.public]
        token = signed(own, own.public, found["name"], "operator", content, int(time.time()))
        folder.write(folder.path / "operator.jwt", token + "\n")
    output.show(
        {"signing_key": signing.public},
        f"made the signing key {signing.public}",
        "  headrace auth config    writes what servers have to be told",
    )


@offline(
    click.option(
        "--output",
        "file",
        type=click.Path(dir_okay=False, path_type=Path),
        default=None,
        help="write it there, instead of showing it",
    ),
    dir_option,
)
def config(output: Output, file: Path | None, directory: Path | None) -> None:
    """Write what a server needs to know: the operator and its accounts. There is no secret in it.

    It is a file for `headrace serve -c FILE` and nats-server, or for an `include` in theirs. After a change
    of accounts write it again and reload the server.
    """
    folder = Folder(directory)
    operator = folder.operator()
    found = {folder.account(name)["sub"]: folder.account_token(name) for name in folder.accounts()}
    lines = [
        f"# operator {operator['name']}",
        f"operator: {folder.operator_token()}",
        f"system_account: {operator['nats']['system_account']}",
        "resolver: MEMORY",
        "resolver_preload {",
        *(f"  {key}: {token}" for key, token in found.items()),
        "}",
    ]
    if file is None:
        output.show({"config": "\n".join(lines) + "\n"}, "\n".join(lines))
        return
    write_private(file.expanduser().absolute(), "\n".join(lines) + "\n")
    output.show({"file": str(file), "accounts": len(found)}, f"wrote {file}")


@offline(
    click.argument("kind", type=click.Choice(list(KINDS))),
    click.option(
        "--output",
        "file",
        type=click.Path(dir_okay=False, path_type=Path),
        required=True,
        help="the file for its seed, which nobody else can read",
    ),
)
def nkey(output: Output, kind: str, file: Path) -> None:
    """Make a key pair: the seed goes to a file, the public key is shown.

    A user's is for `users: [{nkey: U…}]` of a server's file, and `--nkey FILE`.
    """
    if file.exists():
        raise Failure(f"{file} is there already; name another file")
    key = Key(KINDS[kind], secrets.token_bytes(32))
    write_private(file.expanduser().absolute(), f"{key.seed}\n")
    output.show({"public": key.public, "file": str(file)}, key.public)
