"""What the verbs of ``headrace group static`` and ``headrace group elastic`` do."""

from __future__ import annotations

import asyncio
import difflib
import sys
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

from ...api.errors import Errors
from ...client import JetStream
from ...errors import JetStreamApiError
from ...groups import (
    ChangeProgress,
    ElasticGroup,
    GroupConfigurationError,
    GroupNotFoundError,
    NotAMemberError,
    StaticGroup,
    elastic,
    static,
)
from ...groups.server.bucket import Records
from ...groups.server.consumers import consumers_of, existing, stream_of
from ...groups.trouble import troubles
from ..shared.asking import may_go_on
from ..shared.errors import Failure
from ..shared.output import Table
from ..shared.verbs import Session
from . import text as shown
from .arguments import ranges

Group = StaticGroup | ElasticGroup
Args = SimpleNamespace
"""What was typed: ``stream``, ``group``, ``kind``, ``output``, ``form``, and what the verb takes besides."""

Carried = Callable[[JetStream, Args], Awaitable[int]]


async def carry_out(verb: Carried, session: Session, args: Args) -> int:
    """Do what was asked. Raises HeadraceError."""
    try:
        return await verb(session.js, args)
    except GroupNotFoundError as error:
        raise GroupNotFoundError(f"{error}{await _suggestion(session.js, args)}") from error
    except GroupConfigurationError as error:  # of what is there, too; so it is no misspelt command
        raise Failure(str(error)) from error


async def _suggestion(js: JetStream, args: Args) -> str:
    """Which group may have been meant."""
    found = await _records(js, args).list(args.stream)
    names = [each.name for each in found.groups]
    near = difflib.get_close_matches(args.group, names, 1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; there are: {', '.join(names)}" if names else "; the stream has no such groups"


def _verbs(args: Args) -> Any:
    return static if args.kind == "static" else elastic


def _records(js: JetStream, args: Args) -> Records[Any]:
    return Records(js, StaticGroup if args.kind == "static" else ElasticGroup)


def _show(args: Args, found: Any, *texts: str | Table) -> int:
    args.output.show(found, *texts)
    return 0


def _table(rows: Sequence[Sequence[str]], empty: str) -> Table:
    """The first row has the headings."""
    return Table(rows[0], list(rows[1:]), empty=empty)


# Looking


async def ls(js: JetStream, args: Args) -> int:
    found = await _records(js, args).list(args.stream)
    if not found.groups and not found.damaged:
        await _check_stream(js, args.stream)
    rows = [shown.headings(), *map(shown.row, found.groups)]
    documents, lines = [shown.document(each) for each in found.groups], []
    for group, document in zip(found.groups, documents, strict=True):
        met = await troubles(js, group)
        document["troubles"] = [each._asdict() for each in met]
        lines += shown.trouble_lines(met, group.name)
    table = _table(rows, f"no {args.kind} groups")
    _show(args, documents, table, *(["", *lines] if lines else ()))
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


async def info(js: JetStream, args: Args) -> int:
    verbs = _verbs(args)
    group: Group = await verbs.get(js, args.stream, args.group)
    active = set(await verbs.active_members(js, args.stream, args.group))
    found = shown.document(group)
    met = await troubles(js, group)
    found["troubles"] = [each._asdict() for each in met]
    rows = [("MEMBER", "STATE", "COUNT", "PARTITIONS")]
    for each in found["members"]:
        each["is_active"] = each["member"] in active
        state = "active" if each["is_active"] else "inactive"
        numbers = tuple(each["partitions"])
        rows.append((each["member"], state, str(len(numbers)), ranges(numbers) or "-"))
    lines = [*shown.lines(group), *shown.trouble_lines(met)]
    return _show(args, found, *lines, "", _table(rows, "no members"))


async def member_info(js: JetStream, args: Args) -> int:
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
    rows = [("CONSUMER", "PINNED", "PULLS", "WAITING", "UNACKED")]
    for each in consumers:
        pending = "-" if each["num_pending"] is None else str(each["num_pending"])
        pinned = str(each["pinned_client"] or ("-" if each["exists"] else "no consumer"))
        counts = (str(each["num_waiting"]), pending, str(each["num_ack_pending"]))
        rows.append((str(each["consumer"]), pinned, *counts))
    state = "active" if active else "not active"
    head = f"member {args.member} is {state}, partitions: {ranges(numbers) or 'none'}"
    return _show(args, found, head, "", _table(rows, "no consumers"))


def _pinned(info: Any) -> str:
    states = () if info is None else info.priority_groups
    return next((each.pinned_client_id for each in states if each.pinned_client_id), "")


# Changing


def _changed(args: Args, group: Group, what: str) -> int:
    return _show(args, shown.document(group), what, *shown.lines(group)[1:])


async def create_static(js: JetStream, args: Args) -> int:
    group = await static.create(
        js,
        args.stream,
        args.group,
        args.max_members,
        filters=args.filter,
        members=getattr(args, "members", ()),
        member_mappings=getattr(args, "mappings", ()),
        layout=args.layout,
        start=args.start,
    )
    return _changed(args, group, f"static group {group.name} of stream {group.stream}")


async def create_elastic(js: JetStream, args: Args) -> int:
    group = await elastic.create(
        js,
        args.stream,
        args.group,
        args.max_members,
        partitioning_filters=args.filter or None,
        max_buffered_messages=args.max_buffered_msgs,
        max_buffered_bytes=args.max_buffered_bytes,
        layout=args.layout,
        start=args.start,
    )
    return _changed(args, group, f"elastic group {group.name} of stream {group.stream}")


async def edit(js: JetStream, args: Args) -> int:
    if args.max_buffered_msgs is None and args.max_buffered_bytes is None:
        raise Failure("nothing to change; give --max-buffered-msgs N or --max-buffered-bytes N")
    group = await elastic.update(
        js,
        args.stream,
        args.group,
        max_buffered_messages=args.max_buffered_msgs,
        max_buffered_bytes=args.max_buffered_bytes,
    )
    return _changed(args, group, f"elastic group {group.name} of stream {group.stream}")


async def change(js: JetStream, args: Args) -> int:
    what = f"elastic group {args.group} of stream {args.stream}"
    again = f"headrace group elastic change {args.stream} {args.group}"

    def told(progress: ChangeProgress) -> None:
        if progress.phase:
            behind = f" of what lies before message {progress.boundary + 1}"
            left = f": {progress.left} left{behind if progress.boundary else ''}"
            args.output.note(f"{progress.phase}{left if progress.phase == 'draining' else ''}")
            if progress.absent:
                args.output.note(shown.absent_text(args.stream, args.group, progress.absent))

    settings: dict[str, Any] = {
        "max_members": args.partitions,
        "partitioning_filters": args.filter or None,
        "member_mappings": args.mapping or None,
        "max_buffered_messages": args.max_buffered_msgs,
        "max_buffered_bytes": args.max_buffered_bytes,
    }
    if args.undo and any(each is not None for each in settings.values()):
        raise Failure("--undo takes back a change that is under way, and takes no settings")
    try:
        if args.undo:
            group = await elastic.undo_change(js, args.stream, args.group, on_progress=told)
        else:
            group = await elastic.change(js, args.stream, args.group, on_progress=told, **settings)
    except asyncio.CancelledError:
        args.output.note(f"the change is not complete; {again} goes on, --undo takes it back")
        raise
    return _changed(args, group, what)


async def delete(js: JetStream, args: Args) -> int:
    what = f"{args.kind} group {args.group} of stream {args.stream}"
    also = "its members' consumers" if args.kind == "static" else "its work queue stream"
    if not may_go_on(args.output, f"delete {what} with {also}"):
        return 0
    await _verbs(args).delete(js, args.stream, args.group)
    return _show(args, {"deleted": args.group}, f"deleted {what}")


async def step_down(js: JetStream, args: Args) -> int:
    await _verbs(args).step_down(js, args.stream, args.group, args.member)
    return _show(args, {"stepped_down": args.member}, f"{args.member} was told to step down")


async def add(js: JetStream, args: Args) -> int:
    group = await elastic.add_members(js, args.stream, args.group, args.members)
    return _membership(args, group)


async def drop(js: JetStream, args: Args) -> int:
    group = await elastic.drop_members(js, args.stream, args.group, args.members)
    return _membership(args, group)


async def create_mapping(js: JetStream, args: Args) -> int:
    group = await elastic.set_mappings(js, args.stream, args.group, args.mappings)
    return _membership(args, group)


async def delete_mapping(js: JetStream, args: Args) -> int:
    what = f"elastic group {args.group} of stream {args.stream}"
    if not may_go_on(args.output, f"delete the mappings of {what}, which has no members then"):
        return 0
    return _membership(args, await elastic.delete_mappings(js, args.stream, args.group))


def _membership(args: Args, group: ElasticGroup) -> int:
    rows = [(name, ranges(numbers) or "-") for name, numbers in group.assignment().items()]
    table = _table([("MEMBER", "PARTITIONS"), *rows], "no members")
    return _show(args, shown.document(group), table)


async def give_back(js: JetStream, args: Args) -> int:
    """Let ordinary instances of the member have what a query holds. Raises Failure if none holds anything."""
    from ...spark.grouped.holding import is_held_by, names_of, released

    member, is_static = args.member, args.kind == "static"
    group = await (static if is_static else elastic).get(js, args.stream, args.group)
    stream = stream_of(group)
    infos = await existing(js, stream, names_of(group, member))
    held = sorted((each for each in infos if is_held_by(each, member)), key=lambda each: each.name)
    what = f"{args.kind} group {args.group} of stream {args.stream}"
    if not held:
        raise Failure(f"no Spark query holds anything as member {member!r} of {what}")
    names = [each.name for each in held]
    giving = f"give back {', '.join(names)} of {what}, which lets a query that still runs fail"
    if not may_go_on(args.output, giving):
        return 0
    for each in held:
        if is_static:
            # The signs last: as long as they are there, instances leave it alone, and this can be repeated.
            consumer = await js.consumer(stream, each.name)
            await consumer.resume()
            await js.update_consumer(stream, released((await consumer.info()).config))
        else:
            await js.delete_consumer(stream, each.name)
    shown = f"gave back {', '.join(names)}; instances of {member} take part again"
    args.output.show({"member": member, "given_back": names}, shown)
    return 0
