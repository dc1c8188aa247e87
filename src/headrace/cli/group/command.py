"""Administer partitioned consumer groups, and take part in them.

`headrace group static …` and `headrace group elastic …` speak to any server with JetStream.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import wraps
from typing import Any, Final

import click

from ..commands import CommandEntry
from ..shared.connection_options import connection_options, given_above, where
from ..shared.names import GROUPS, STREAMS
from ..shared.output import output_options
from ..shared.units import Parsed
from ..shared.verbs import (
    Declare,
    LazyGroup,
    command_of,
    connected,
    output_above,
    own_values,
    run_loop,
)
from . import verbs
from .arguments import mapping, partitioning_filter, start
from .autoscale import AUTOSCALE_OPTIONS, autoscale_command
from .consume import CONSUME_OPTIONS, consume
from .metrics import METRICS_OPTIONS, metrics_command
from .verbs import Args, Carried, carry_out, give_back
from .watch import WATCH_OPTIONS, watch_command

_MAPPING: Final = Parsed("mapping", mapping)
_FILTER: Final = Parsed("filter", partitioning_filter)

_START: Final = click.option(
    "--start",
    type=Parsed("where", lambda text: start(text, datetime.now(UTC))),
    default="all",
    metavar="WHERE",
    help="where it begins: all, now, a sequence, a time, 1h ago, or where another one is: consumer:NAME, "
    "group:NAME (all)",
)
_STREAM: Final = click.argument("stream", shell_complete=STREAMS)
_GROUP: Final = click.argument("group", metavar="NAME", shell_complete=GROUPS)
_MEMBER: Final = click.argument("member")
_ONE_MEMBER: Final = (_STREAM, _GROUP, _MEMBER)
_MEMBERS: Final = click.argument("members", nargs=-1, required=True, metavar="MEMBER…")
_MAPPINGS: Final = click.argument(
    "mappings", nargs=-1, required=True, type=_MAPPING, metavar="MEMBER:PARTITIONS…"
)
_PARTITIONS: Final = click.argument("max_members", type=int, metavar="MAX-MEMBERS")
_LAYOUT: Final = click.option(
    "--layout",
    type=click.Choice(["interoperable", "per_partition"]),
    default="interoperable",
    help="one consumer for each member, as others have it (the default), or for each partition",
)
_STATIC_FILTER: Final = click.option(
    "--filter",
    multiple=True,
    metavar="PATTERN",
    help="what it takes of the stream, without the partition; repeatable",
)


def _buffered(default: int | None) -> tuple[Declare, ...]:
    return tuple(
        click.option(
            name,
            type=int,
            default=default,
            metavar="N",
            help=f"{unit} in the work queue; 0: no limit",
        )
        for name, unit in (("--max-buffered-msgs", "messages"), ("--max-buffered-bytes", "bytes"))
    )


_ELASTIC_FILTER: Final = click.option(
    "--filter",
    multiple=True,
    type=_FILTER,
    metavar="PATTERN:INDEXES",
    help="such as 'orders.*.*:1,2': the first and second * are the key; without indexes the whole "
    "subject is; repeatable",
)


_CHANGE_OPTIONS: Final[tuple[Declare, ...]] = (
    click.option(
        "--partitions", type=int, metavar="N", help="so many from now on, and as many members"
    ),
    _ELASTIC_FILTER,
    click.option(
        "--mapping",
        multiple=True,
        type=_MAPPING,
        metavar="MEMBER:PARTITIONS",
        help="who has which of the new partitions, where the group has mappings; repeatable",
    ),
    click.option(
        "--undo", is_flag=True, help="take back a change that has not passed its boundary"
    ),
)


def _verb(
    kind: str, name: str, text: str, carried: Carried, *declare: Declare, destroys: bool = False
) -> click.Command:
    """The command of one verb, for one kind of group."""

    @click.pass_context
    @wraps(carried)
    def callback(context: click.Context, /, **values: Any) -> int:
        output = output_above(context)
        given: dict[str, Any] = {"group": "", **own_values(values)}
        if destroys:
            output.force, output.dry_run = given.pop("force"), given.pop("dry_run")
        args = Args(kind=kind, output=output, form=output.form, **given)

        async def run() -> int:
            async with connected(where(given_above(context)), output) as session:
                return await carry_out(carried, session, args)

        return run_loop(run())

    options = [*output_options(), *connection_options()]
    command = command_of(carried, callback, name, declare, options, destroys)
    command.help = text
    return command


def _kind(kind: str, create: click.Command) -> dict[str, CommandEntry]:
    """The verbs that both kinds of groups have."""
    table: tuple[tuple[str, str, Carried, tuple[Declare, ...], tuple[str, ...]], ...] = (
        ("ls", "list the groups of a stream", verbs.ls, (_STREAM,), ("list",)),
        ("info", "show a group and its members", verbs.info, (_STREAM, _GROUP), ()),
        ("delete", "delete a group", verbs.delete, (_STREAM, _GROUP), ("rm",)),
        ("member-info", "show a member", verbs.member_info, _ONE_MEMBER, ("memberinfo", "minfo")),
        (
            "step-down",
            "let another instance take over",
            verbs.step_down,
            _ONE_MEMBER,
            ("stepdown", "sd"),
        ),
        (
            "give-back",
            "let instances have what a stopped Spark query holds as a member",
            give_back,
            _ONE_MEMBER,
            (),
        ),
        (
            "watch",
            "watch who owns what, and what waits",
            watch_command,
            (_STREAM, _GROUP, *WATCH_OPTIONS),
            (),
        ),
        (
            "consume",
            "take part as a member, and print messages",
            consume,
            (*_ONE_MEMBER, *CONSUME_OPTIONS),
            ("join",),
        ),
    )
    found = {
        name: CommandEntry(
            text,
            _verb(kind, name, text, carried, *declare, destroys=name in ("delete", "give-back")),
            other,
        )
        for name, text, carried, declare, other in table
    }
    first = {name: found.pop(name) for name in ("ls", "info")}
    return {**first, "create": CommandEntry("create a group", create), **found}


def _elastic_only() -> dict[str, CommandEntry]:
    table: tuple[tuple[str, str, Carried, tuple[Declare, ...]], ...] = (
        ("add", "add members", verbs.add, (_STREAM, _GROUP, _MEMBERS)),
        ("drop", "drop members", verbs.drop, (_STREAM, _GROUP, _MEMBERS)),
        (
            "edit",
            "change how much may wait in the work queue; what is there stays",
            verbs.edit,
            (_STREAM, _GROUP, *_buffered(None)),
        ),
        (
            "change",
            "change partitions, key or filters while members work: nothing is lost or handled again",
            verbs.change,
            (_STREAM, _GROUP, *_CHANGE_OPTIONS, *_buffered(None)),
        ),
        (
            "create-mapping",
            "give members their partitions",
            verbs.create_mapping,
            (_STREAM, _GROUP, _MAPPINGS),
        ),
        ("delete-mapping", "delete the mappings", verbs.delete_mapping, (_STREAM, _GROUP)),
    )
    aliases = {"create-mapping": ("cm",), "delete-mapping": ("dm",)}
    return {
        name: CommandEntry(
            text,
            _verb("elastic", name, text, carried, *declare, destroys=name.startswith("del")),
            aliases.get(name, ()),
        )
        for name, text, carried, declare in table
    }


def _way(name: str, text: str, members: Declare) -> CommandEntry:
    """A way to create a static group."""
    declare = (_STREAM, _GROUP, _PARTITIONS, members, _LAYOUT, _STATIC_FILTER, _START)
    return CommandEntry(text, _verb("static", name, text, verbs.create_static, *declare))


_create_static = LazyGroup(
    "create",
    {
        "balanced": _way(
            "balanced",
            "the partitions are distributed evenly among the members",
            click.argument("members", nargs=-1, metavar="[MEMBER]…"),
        ),
        "mapped": _way("mapped", "each member is given its partitions", _MAPPINGS),
    },
    "Create a group: balanced, or mapped.",
    "way",
)
_create_elastic = _verb(
    "elastic",
    "create",
    "create a group",
    verbs.create_elastic,
    *(_STREAM, _GROUP, _PARTITIONS, _LAYOUT, _ELASTIC_FILTER, _START, *_buffered(0)),
)
_AUTOSCALE: Final = "keep the number of an elastic group's members right for what comes"
_METRICS: Final = "serve the numbers of groups to Prometheus"
_FIXED: Final = "groups whose members are fixed when they are created"
_COMING: Final = "groups whose members come and go"

group = LazyGroup(
    "group",
    {
        "static": CommandEntry(
            _FIXED,
            LazyGroup(
                "static",
                _kind("static", _create_static),
                f"{_FIXED.capitalize()}.",
            ),
        ),
        "elastic": CommandEntry(
            _COMING,
            LazyGroup(
                "elastic",
                {**_kind("elastic", _create_elastic), **_elastic_only()},
                f"{_COMING.capitalize()}.",
            ),
        ),
        "autoscale": CommandEntry(
            _AUTOSCALE,
            _verb(
                "elastic",
                "autoscale",
                _AUTOSCALE,
                autoscale_command,
                *(_STREAM, _GROUP, *AUTOSCALE_OPTIONS),
            ),
        ),
        "metrics": CommandEntry(
            _METRICS,
            _verb("elastic", "metrics", _METRICS, metrics_command, *(_STREAM, *METRICS_OPTIONS)),
        ),
    },
    "Consumer groups: static and elastic, strict order for each key.",
    "kind of group",
)
