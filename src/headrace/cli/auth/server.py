"""``headrace auth config`` and ``headrace auth nkey``."""

from __future__ import annotations

import secrets
from pathlib import Path

import click

from ..shared.errors import Failure
from ..shared.output import Output
from ..shared.private_files import write_private
from ..shared.verbs import offline
from .folder import Folder, dir_option
from .keys import KINDS, Key


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
