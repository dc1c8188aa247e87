"""``headrace jobs filter``: which messages of its channel a consumer gets."""

from __future__ import annotations

from typing import Any, Final

import click

from ...jobs.client import JobsClient
from ..shared.errors import Failure
from ..shared.verbs import Declare
from .commands import Args, Call


def _filter(client: JobsClient, args: Args) -> Any:
    given = bool(args.subject or args.header or args.payload)
    if args.everything and given:
        raise Failure("--everything goes without --subject, --header and --payload")
    if given or args.everything:
        wanted = {
            "subjects": args.subject,
            "headers": patterns_of(
                args.header, "--header is", "NAME=PATTERN, such as X-Kind=paid*"
            ),
            "payload": paths_of(args.payload),
        }
        answer = client.patch_consumer(args.channel, args.consumer, settings={"filter": wanted})
    else:
        answer = client.consumer(args.channel, args.consumer)
    found = answer["settings"]["filter"]
    return found if args.json else _sentence(f"{args.channel}/{args.consumer}", found)


def patterns_of(given: tuple[str, ...], what: str, accepted: str) -> dict[str, list[str]]:
    """The patterns of each name; Failure for a text without both."""
    found: dict[str, list[str]] = {}
    for text in given:
        name, is_there, pattern = text.partition("=")
        if not is_there or not name:
            raise Failure(f"{what} {text!r}; accepted is {accepted}")
        found.setdefault(name, []).append(pattern)
    return found


def paths_of(given: tuple[str, ...]) -> dict[str, list[str]]:
    """The patterns of each path into a payload."""
    return patterns_of(given, "--payload is", "PATH=PATTERN, such as '$.order.id=7'")


def _sentence(name: str, found: dict[str, Any]) -> str:
    lines = [f"subject: {' or '.join(found['subjects'])}"] if found["subjects"] else []
    lines += [f"{header}: {' or '.join(each)}" for header, each in found["headers"].items()]
    lines += [f"{path}: {' or '.join(each)}" for path, each in found["payload"].items()]
    if not lines:
        return f"{name} gets every message of its channel"
    return "\n".join([f"{name} gets messages with", *(f"  {line}" for line in lines)])


_DECLARE: Final[tuple[Declare, ...]] = (
    click.argument("channel"),
    click.argument("consumer"),
    click.option(
        "--subject",
        multiple=True,
        metavar="PATTERN",
        help="of this subject, such as 'orders.eu.>'; repeatable: one has to fit",
    ),
    click.option(
        "--header",
        multiple=True,
        metavar="NAME=PATTERN",
        help="with this header, such as X-Kind=paid*; repeatable: each name has to fit",
    ),
    click.option(
        "--payload",
        multiple=True,
        metavar="PATH=PATTERN",
        help="with this value in its JSON, such as '$.order.country=D*'; repeatable: each path has to fit",
    ),
    click.option("--everything", is_flag=True, help="every message, from now on"),
)

FILTER: Final[tuple[str, str, Call, tuple[Declare, ...]]] = (
    "filter",
    "which messages of its channel a consumer gets: shown, or set by options",
    _filter,
    _DECLARE,
)
