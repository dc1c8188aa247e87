"""The verbs of ``headrace group static`` and ``headrace group elastic``."""

from __future__ import annotations

import argparse
import difflib
import json
import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..api.errors import Errors
from ..client import JetStream, connect
from ..errors import JetStreamApiError
from ..groups import (
    ElasticGroup,
    GroupConfigurationError,
    GroupError,
    GroupNotFoundError,
    NotAMemberError,
    StaticGroup,
    elastic,
    static,
)
from ..groups.bucket import Records
from ..groups.consumers import consumers_of, existing, stream_of
from . import group_text
from .group_arguments import mapping, partitioning_filter, ranges, where
from .group_autoscale import add_autoscale_arguments, autoscale_command
from .group_consume import add_consume_arguments, consume
from .group_metrics import add_metrics_arguments, metrics_command
from .group_watch import add_watch_arguments, watch_command

__all__ = ["PLAIN", "VERBS", "Verb", "carry_out"]

Group = StaticGroup | ElasticGroup
Carried = Callable[[JetStream, argparse.Namespace], Awaitable[int]]


@dataclass(frozen=True)
class Verb:
    """One command.

    Attributes:
        names: its name and its aliases.
        help: in a few words.
        add_arguments: declares its arguments.
        carry_out: does it, and returns the exit status.
        kinds: of which kinds of groups.
    """

    names: tuple[str, ...]
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    carry_out: Carried
    kinds: tuple[str, ...] = ("static", "elastic")


async def carry_out(args: argparse.Namespace) -> int:
    """Connect and do what was asked. Raises HeadraceError."""
    servers, context = where(args)
    async with connect(servers, options=context.options) as connection:
        js = connection.jetstream(domain=context.domain, prefix=context.prefix)
        try:
            status: int = await args.carry_out(js, args)
        except GroupNotFoundError as error:
            raise GroupNotFoundError(f"{error}{await _suggestion(js, args)}") from error
        return status


async def _suggestion(js: JetStream, args: argparse.Namespace) -> str:
    """Which group may have been meant."""
    found = await _records(js, args).list(args.stream)
    names = [each.name for each in found.groups]
    near = difflib.get_close_matches(args.group, names, 1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; there are: {', '.join(names)}" if names else "; the stream has no such groups"


def _verbs(args: argparse.Namespace) -> Any:
    return static if args.kind == "static" else elastic


def _records(js: JetStream, args: argparse.Namespace) -> Records[Any]:
    return Records(js, StaticGroup if args.kind == "static" else ElasticGroup)


def _show(args: argparse.Namespace, found: Any, lines: Sequence[str]) -> int:
    text = json.dumps(found, indent=2, ensure_ascii=False) if args.json else "\n".join(lines)
    print(text)
    return 0


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


# Looking


async def _ls(js: JetStream, args: argparse.Namespace) -> int:
    found = await _records(js, args).list(args.stream)
    if not found.groups and not found.damaged:
        await _check_stream(js, args.stream)
    rows = [group_text.headings(), *map(group_text.row, found.groups)]
    lines = group_text.table(rows, _width()) if found.groups else [f"no {args.kind} groups"]
    _show(args, [group_text.document(each) for each in found.groups], lines)
    for error in found.damaged.values():
        print(f"headrace group: {error}", file=sys.stderr)
    return 1 if found.damaged else 0


async def _check_stream(js: JetStream, stream: str) -> None:
    try:
        await js.stream(stream)
    except JetStreamApiError as error:
        if error.err_code != Errors.STREAM_NOT_FOUND.err_code:
            raise
        names = [name async for name in js.stream_names() if not name.startswith("KV_")]
        near = difflib.get_close_matches(stream, names, 1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise GroupConfigurationError(f"there is no stream {stream!r}{meant}") from error


async def _info(js: JetStream, args: argparse.Namespace) -> int:
    verbs = _verbs(args)
    group: Group = await verbs.get(js, args.stream, args.group)
    active = set(await verbs.active_members(js, args.stream, args.group))
    found = group_text.document(group)
    rows = [("MEMBER", "STATE", "COUNT", "PARTITIONS")]
    for each in found["members"]:
        each["is_active"] = each["member"] in active
        state = "active" if each["is_active"] else "inactive"
        numbers = tuple(each["partitions"])
        rows.append((each["member"], state, str(len(numbers)), ranges(numbers) or "-"))
    members = group_text.table(rows, _width()) if len(rows) > 1 else ["no members"]
    return _show(args, found, [*group_text.lines(group), "", *members])


async def _member_info(js: JetStream, args: argparse.Namespace) -> int:
    group: Group = await _verbs(args).get(js, args.stream, args.group)
    names = consumers_of(group).get(args.member)
    if names is None:
        near = difflib.get_close_matches(args.member, list(consumers_of(group)), 1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise NotAMemberError(
            f"{args.kind} group {args.group!r} of stream {args.stream!r} has no member "
            f"{args.member!r}{meant}"
        )
    there = {info.name: info for info in await existing(js, stream_of(group), names)}
    consumers = [
        {
            "consumer": name,
            "exists": name in there,
            "pinned_client": _pinned(there.get(name)),
            "num_waiting": there[name].num_waiting if name in there else 0,
            "num_pending": there[name].num_pending if name in there else None,
            "num_ack_pending": there[name].num_ack_pending if name in there else 0,
        }
        for name in names
    ]
    numbers = group.assignment()[args.member]
    active = any(each["num_waiting"] for each in consumers)
    found = {
        "member": args.member,
        "partitions": [*numbers],
        "is_active": active,
        "consumers": consumers,
    }
    rows = [("CONSUMER", "PINNED", "WAITING", "PENDING", "UNACKED")]
    for each in consumers:
        pending = "-" if each["num_pending"] is None else str(each["num_pending"])
        pinned = str(each["pinned_client"] or ("-" if each["exists"] else "no consumer"))
        counts = (str(each["num_waiting"]), pending, str(each["num_ack_pending"]))
        rows.append((str(each["consumer"]), pinned, *counts))
    state = "active" if active else "not active"
    head = f"member {args.member} is {state}, partitions: {ranges(numbers) or 'none'}"
    return _show(args, found, [head, "", *group_text.table(rows, _width())])


def _pinned(info: Any) -> str:
    states = () if info is None else info.priority_groups
    return next((each.pinned_client_id for each in states if each.pinned_client_id), "")


# Changing


def _changed(args: argparse.Namespace, group: Group, what: str) -> int:
    return _show(args, group_text.document(group), [what, *group_text.lines(group)[1:]])


async def _create_static(js: JetStream, args: argparse.Namespace) -> int:
    group = await static.create(
        js,
        args.stream,
        args.group,
        args.max_members,
        filters=args.filter,
        members=getattr(args, "members", ()),
        member_mappings=getattr(args, "mappings", ()),
        layout=args.layout,
    )
    return _changed(args, group, f"static group {group.name} of stream {group.stream}")


async def _create_elastic(js: JetStream, args: argparse.Namespace) -> int:
    group = await elastic.create(
        js,
        args.stream,
        args.group,
        args.max_members,
        partitioning_filters=args.filter or None,
        max_buffered_messages=args.max_buffered_msgs,
        max_buffered_bytes=args.max_buffered_bytes,
        layout=args.layout,
    )
    return _changed(args, group, f"elastic group {group.name} of stream {group.stream}")


async def _delete(js: JetStream, args: argparse.Namespace) -> int:
    what = f"{args.kind} group {args.group} of stream {args.stream}"
    also = "its members' consumers" if args.kind == "static" else "its work queue stream"
    _ask(args, f"Delete {what} with {also}?")
    await _verbs(args).delete(js, args.stream, args.group)
    return _show(args, {"deleted": args.group}, [f"deleted {what}"])


async def _step_down(js: JetStream, args: argparse.Namespace) -> int:
    await _verbs(args).step_down(js, args.stream, args.group, args.member)
    return _show(args, {"stepped_down": args.member}, [f"{args.member} was told to step down"])


async def _add(js: JetStream, args: argparse.Namespace) -> int:
    group = await elastic.add_members(js, args.stream, args.group, args.members)
    return _membership(args, group)


async def _drop(js: JetStream, args: argparse.Namespace) -> int:
    group = await elastic.drop_members(js, args.stream, args.group, args.members)
    return _membership(args, group)


async def _create_mapping(js: JetStream, args: argparse.Namespace) -> int:
    group = await elastic.set_mappings(js, args.stream, args.group, args.mappings)
    return _membership(args, group)


async def _delete_mapping(js: JetStream, args: argparse.Namespace) -> int:
    what = f"elastic group {args.group} of stream {args.stream}"
    _ask(args, f"Delete the mappings of {what}? It has no members then.")
    return _membership(args, await elastic.delete_mappings(js, args.stream, args.group))


def _membership(args: argparse.Namespace, group: ElasticGroup) -> int:
    rows = [(name, ranges(numbers) or "-") for name, numbers in group.assignment().items()]
    lines = (
        group_text.table([("MEMBER", "PARTITIONS"), *rows], _width()) if rows else ["no members"]
    )
    return _show(args, group_text.document(group), lines)


def _ask(args: argparse.Namespace, question: str) -> None:
    """Ask before something is destroyed. Raises GroupError unless the answer is yes."""
    if args.force:
        return
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)
    if answer.strip().lower() not in ("y", "yes"):
        raise GroupError("nothing was changed; answer y, or give --force")


# Arguments


def _stream_and_group(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stream", help="the stream that the group reads")
    parser.add_argument("group", metavar="name", help="the group")


def _and_member(parser: argparse.ArgumentParser) -> None:
    _stream_and_group(parser)
    parser.add_argument("member", help="one of its members")


def _and_members(parser: argparse.ArgumentParser) -> None:
    _stream_and_group(parser)
    parser.add_argument("members", nargs="+", metavar="member", help="names")


def _and_mappings(parser: argparse.ArgumentParser) -> None:
    _stream_and_group(parser)
    _add_mappings(parser)


def _add_mappings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "mappings",
        nargs="+",
        type=mapping,
        metavar="member:partitions",
        help="such as m1:0,2-4; each partition once",
    )


def _and_force(parser: argparse.ArgumentParser) -> None:
    _stream_and_group(parser)
    parser.add_argument("-f", "--force", action="store_true", help="do not ask")


def _layout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--layout",
        choices=("interoperable", "per_partition"),
        default="interoperable",
        help="one consumer for each member, as others have it (the default), or for each partition",
    )


def _arguments_of_creation(parser: argparse.ArgumentParser) -> None:
    _stream_and_group(parser)
    parser.add_argument("max_members", metavar="max-members", type=int, help="partitions")
    _layout(parser)


def _static_creation(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_subparsers(required=True, metavar="balanced|mapped", dest="way")
    for way, text in (
        ("balanced", "the partitions are distributed evenly among the members"),
        ("mapped", "each member is given its partitions"),
    ):
        command = ways.add_parser(way, help=text, description=text, allow_abbrev=False)
        # What is given to the outer parser must not be overwritten by the inner one's defaults.
        for option in ("--server", "--context"):
            command.add_argument(option, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        command.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS
        )
        _arguments_of_creation(command)
        if way == "balanced":
            command.add_argument("members", nargs="*", metavar="member", help="names")
        else:
            _add_mappings(command)
        command.add_argument(
            "--filter",
            action="append",
            default=[],
            metavar="PATTERN",
            help="what it takes of the stream, without the partition; repeatable",
        )


def _elastic_creation(parser: argparse.ArgumentParser) -> None:
    _arguments_of_creation(parser)
    parser.add_argument(
        "--filter",
        action="append",
        default=[],
        type=partitioning_filter,
        metavar="PATTERN:INDEXES",
        help="such as 'orders.*.*:1,2': the first and second * are the key; without indexes the whole "
        "subject is; repeatable",
    )
    for name, unit in (("--max-buffered-msgs", "messages"), ("--max-buffered-bytes", "bytes")):
        parser.add_argument(
            name, type=int, default=0, metavar="N", help=f"{unit} in the work queue; 0: no limit"
        )


def _stream_alone(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stream", help="the stream that the groups read")
    parser.set_defaults(group="")


def _watching(parser: argparse.ArgumentParser) -> None:
    _stream_and_group(parser)
    add_watch_arguments(parser)


def _autoscaling(parser: argparse.ArgumentParser) -> None:
    _stream_and_group(parser)
    add_autoscale_arguments(parser)


def _measuring(parser: argparse.ArgumentParser) -> None:
    _stream_alone(parser)
    add_metrics_arguments(parser)


def _consuming(parser: argparse.ArgumentParser) -> None:
    _and_member(parser)
    add_consume_arguments(parser)


_STATIC: Final = ("static",)
_ELASTIC: Final = ("elastic",)
VERBS: Final = (
    Verb(("ls", "list"), "list the groups of a stream", _stream_alone, _ls),
    Verb(("info",), "show a group and its members", _stream_and_group, _info),
    Verb(("create",), "create a group", _static_creation, _create_static, _STATIC),
    Verb(("create",), "create a group", _elastic_creation, _create_elastic, _ELASTIC),
    Verb(("delete", "rm"), "delete a group", _and_force, _delete),
    Verb(("add",), "add members", _and_members, _add, _ELASTIC),
    Verb(("drop",), "drop members", _and_members, _drop, _ELASTIC),
    Verb(
        ("create-mapping",),
        "give members their partitions",
        _and_mappings,
        _create_mapping,
        _ELASTIC,
    ),
    Verb(("delete-mapping",), "delete the mappings", _and_force, _delete_mapping, _ELASTIC),
    Verb(("member-info", "memberinfo", "minfo"), "show a member", _and_member, _member_info),
    Verb(
        ("step-down", "stepdown", "sd"), "let another instance take over", _and_member, _step_down
    ),
    Verb(("watch",), "watch who owns what, and what waits", _watching, watch_command),
    Verb(("consume", "join"), "take part as a member, and print messages", _consuming, consume),
)
"""Every command, in the order of the help."""

PLAIN: Final = (
    Verb(
        ("autoscale",),
        "keep the number of an elastic group's members right for what comes",
        _autoscaling,
        autoscale_command,
    ),
    Verb(("metrics",), "serve the numbers of groups to Prometheus", _measuring, metrics_command),
)
"""Those that stand beside the kinds of groups."""
