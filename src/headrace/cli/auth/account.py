"""The verbs of ``headrace auth account``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from ..shared.errors import Failure
from ..shared.output import Output, Sheet, Table
from ..shared.units import SIZE, bytes_text
from ..shared.verbs import Declare, offline
from .folder import Folder, checked, dir_option
from .tokens import JETSTREAM, LIMITS, NO_LIMIT, NONE, account_claims, limited, signed

_LIMITS: Final[tuple[Declare, ...]] = (
    click.option("--storage", type=SIZE, default=None, help="streams on disk, together"),
    click.option("--memory", type=SIZE, default=None, help="streams in memory, together"),
    click.option("--streams", type=int, default=None, metavar="N"),
    click.option("--consumers", type=int, default=None, metavar="N"),
    click.option("--connections", type=int, default=None, metavar="N"),
    click.option("--subscriptions", type=int, default=None, metavar="N"),
    click.option("--payload", type=SIZE, default=None, help="a message"),
)
_NAME: Final = click.argument("name")
_RELOAD: Final = "  headrace auth config    writes what servers have to be told; reload them then"


def make_account(folder: Folder, name: str, content: Mapping[str, Any]) -> str:
    """Sign an account that is not there; its public key."""
    own = folder.make_key(f"accounts/{checked(name)}", "A")
    _sign(folder, name, own.public, content)
    return own.public


def change_account(folder: Folder, name: str, changed: Mapping[str, Any]) -> None:
    """Sign an account again, with other content."""
    _sign(folder, name, folder.account(name)["sub"], changed)


def _sign(folder: Folder, name: str, key: str, content: Mapping[str, Any]) -> None:
    signer = folder.accounts_signer()
    token = signed(signer, key, name, "account", content, int(time.time()))
    folder.write(folder.path / "accounts" / f"{name}.jwt", token + "\n")


@offline(dir_option)
def ls(output: Output, directory: Path | None) -> None:
    """List the accounts and how many users each has."""
    folder = Folder(directory)
    folder.operator()
    table = Table(
        ("NAME", "KEY", "USERS", "JETSTREAM"),
        right=frozenset({"USERS"}),
        empty="no accounts; `headrace auth account create NAME` makes one",
    )
    rows = []
    for name in folder.accounts():
        found, users = folder.account(name), folder.users(name)
        has_streams = any(found["nats"]["limits"].get(each) for each in JETSTREAM[:2])
        table.add(name, found["sub"], len(users), "yes" if has_streams else "no")
        rows.append({"name": name, "key": found["sub"], "users": users, "jetstream": has_streams})
    output.show(rows, table)


@offline(
    _NAME,
    click.option(
        "--jetstream/--no-jetstream", default=True, help="whether it has streams at all (yes)"
    ),
    *_LIMITS,
    dir_option,
)
def create(
    output: Output, name: str, jetstream: bool, directory: Path | None, **limits: Any
) -> None:
    """Make an account; what is not limited has no limit, -1."""
    folder = Folder(directory)
    with folder.changing():
        folder.operator()
        if checked(name) in folder.accounts():
            raise Failure(
                f"there is an account {name} in {folder.path} already",
                f"headrace auth account edit {name} …    changes its limits",
            )
        key = make_account(folder, name, account_claims(limits, jetstream=jetstream))
    output.show(
        {"name": name, "key": key},
        f"made account {name}: {key}",
        f"  headrace auth user create {name} USER    makes a user of it",
        _RELOAD,
    )


@offline(_NAME, dir_option)
def info(output: Output, name: str, directory: Path | None) -> None:
    """Show an account: its keys, its limits, its users. No secret is shown."""
    folder = Folder(directory)
    found = folder.account(name)
    content = found["nats"]
    revoked = content.get("revocations", {})
    limits = {typed: content["limits"].get(field) for typed, field in LIMITS.items()}
    document = {
        "name": name,
        "key": found["sub"],
        "signing_keys": content.get("signing_keys", []),
        "limits": limits,
        "users": folder.users(name),
        "revoked": len(revoked),
    }
    sheet = Sheet(f"Account {name}")
    sheet.section(
        "", [("key", found["sub"]), *(("signing key", key) for key in document["signing_keys"])]
    )
    sheet.section("Limits", [(typed, _limit_text(typed, value)) for typed, value in limits.items()])
    sheet.section("", [("users", ", ".join(document["users"])), ("revoked", len(revoked) or "")])
    output.show(document, sheet)


def _limit_text(name: str, value: Any) -> str:
    if value == NO_LIMIT:
        return "no limit"
    if value == NONE and name in ("storage", "memory", "streams", "consumers"):
        return "none"
    return bytes_text(value) if name in ("storage", "memory", "payload") else str(value)


@offline(_NAME, *_LIMITS, dir_option)
def edit(output: Output, name: str, directory: Path | None, **limits: Any) -> None:
    """Change the limits of an account that are named; -1 is no limit."""
    if all(value is None for value in limits.values()):
        options = ", ".join(f"--{each}" for each in LIMITS)
        raise Failure(f"nothing to change; give one of {options}")
    folder = Folder(directory)
    with folder.changing():
        content = folder.account(name)["nats"]
        changed = {**content, "limits": limited(content["limits"], limits)}
        change_account(folder, name, changed)
    output.show({"name": name, "limits": changed["limits"]}, f"changed account {name}", _RELOAD)


@offline(_NAME, dir_option)
def key(output: Output, name: str, directory: Path | None) -> None:
    """Make another signing key, which signs users from now on; those signed before stay valid."""
    folder = Folder(directory)
    with folder.changing():
        content = folder.account(name)["nats"]
        signing = folder.replace_key(f"accounts/{name}-signing", "A")
        keys = [*content.get("signing_keys", ()), signing.public]
        change_account(folder, name, {**content, "signing_keys": keys})
    output.show({"signing_key": signing.public}, f"made the signing key {signing.public}", _RELOAD)
