"""``headrace jobs key`` and its like: who may do what, and who did."""

from __future__ import annotations

import itertools
from typing import Any, Final

import click

from ...jobs.client import JobsClient
from ..shared.asking import may_go_on
from ..shared.output import Table
from ..shared.units import DURATION
from ..shared.verbs import Declare
from .commands import Args, Call

__all__ = ["ACCESS", "REVOKE"]

_SCOPES: Final = ("publish", "consume", "operate", "admin")


def _key(client: JobsClient, args: Args) -> Any:
    made = client.create_key(
        args.name, args.scope, channels=args.channel or ("*",), expires_in_s=args.expires
    )
    if args.json:
        return made
    until = f", until {made['expires_at']}" if made["expires_at"] else ""
    args.output.note(
        f"{made['id']} ({made['name']}): {', '.join(made['scopes'])} in "
        f"{', '.join(made['channels'])}{until}; the key is shown this once"
    )
    return str(made["key"])


def _keys(client: JobsClient, args: Args) -> Any:
    found = list(client.api_keys())
    if args.json:
        return found
    table = Table(
        ("KEY", "NAME", "SCOPES", "CHANNELS", "LAST USED", "ENDS"),
        empty="no keys; `headrace jobs key NAME --scope publish` makes one",
    )
    for one in found:
        ends = f"revoked {one['revoked_at']}" if one["revoked_at"] else one["expires_at"] or ""
        table.add(
            one["id"],
            one["name"],
            " ".join(one["scopes"]),
            " ".join(one["channels"]),
            one["last_used_at"] or "never",
            ends,
        )
    return table


def _revoke(client: JobsClient, args: Args) -> Any:
    args.output.dry_run, args.output.force = args.dry_run, args.force
    if not may_go_on(args.output, f"revoke the key {args.key}"):
        return None
    client.revoke_key(args.key)
    return {"revoked": True} if args.json else f"{args.key} is revoked"


def _audit(client: JobsClient, args: Args) -> Any:
    entries = client.audit(key=args.key, channel=args.channel)
    found = list(itertools.islice(entries, args.limit))
    if args.json:
        return found
    table = Table(
        ("TIME", "WHO", "FROM", "WHAT", "OBJECT", "RESULT", "DETAIL"), empty="nothing was changed"
    )
    for one in found:
        what = one["action"].partition(" ")[0] if "/" in one["action"] else one["action"]
        table.add(
            one["at"],
            one["who"],
            one["address"],
            what,
            one["object"],
            one["result"],
            one["detail"] or "",
        )
    return table


_KEY: Final[tuple[Declare, ...]] = (
    click.argument("name"),
    click.option(
        "--scope",
        multiple=True,
        required=True,
        type=click.Choice(_SCOPES),
        help="what it may: publish, take jobs, operate (look, pause, cancel, replay), all; repeatable",
    ),
    click.option(
        "--channel",
        multiple=True,
        metavar="NAME",
        help="for this channel, or 'orders.*' and the like; repeatable; every one, if not given",
    ),
    click.option("--expires", type=DURATION, metavar="TIME", help="valid so long, such as 90d"),
)

ACCESS: Final[tuple[tuple[str, str, Call, tuple[Declare, ...]], ...]] = (
    ("key", "make an API key with scopes, for channels; it is shown once", _key, _KEY),
    ("keys", "the API keys, with their last use", _keys, ()),
    (
        "audit",
        "who changed what, from where, with which result; newest first",
        _audit,
        (
            click.option("--key", metavar="ID", help="what this API key did"),
            click.option("--channel", help="what was done in this channel"),
            click.option(
                "--limit", type=click.IntRange(1), default=100, show_default=True, help="so many"
            ),
        ),
    ),
)
REVOKE: Final[tuple[str, str, Call, tuple[Declare, ...]]] = (
    "revoke",
    "revoke an API key",
    _revoke,
    (click.argument("key"),),
)
