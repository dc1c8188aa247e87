"""A group as JSON, as lines, as a row of a table. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from ...groups import ElasticGroup, StaticGroup
from ...groups.lag import GroupLag, MemberLag, PartitionLag, Pin, Rates
from ...groups.reach import Trouble
from ...groups.server.consumers import consumers_of, stream_of
from ...quantities import counted
from .arguments import filter_text, mapping_text, ranges

Group = StaticGroup | ElasticGroup


def document(group: Group) -> dict[str, Any]:
    """A group for programs."""
    found: dict[str, Any] = {
        "kind": _kind(group),
        "stream": group.stream,
        "group": group.name,
        "max_members": group.max_members,
        "layout": group.layout,
        "revision": group.revision,
        "consumer_stream": stream_of(group),
    }
    if isinstance(group, StaticGroup):
        found["filters"] = [*group.filters]
        found["start_sequence"] = group.start_sequence
    else:
        filters = group.partitioning_filters or ()
        found["partitioning_filters"] = [
            {"filter": f.filter, "partitioning_wildcards": [*(f.partitioning_wildcards or ())]}
            for f in filters
        ]
        found["max_buffered_messages"] = group.max_buffered_messages
        found["max_buffered_bytes"] = group.max_buffered_bytes
        found["changed"] = group.changed
        found["change"] = change_document(group)
    found["is_mapped"] = bool(group.member_mappings)
    consumers = consumers_of(group)
    found["members"] = [
        {"member": name, "partitions": [*numbers], "consumers": [*consumers[name]]}
        for name, numbers in group.assignment().items()
    ]
    return found


def lines(group: Group) -> list[str]:
    """A group for people, but for its members."""
    rows = [
        ("Group", f"{group.name} ({_kind(group)}) of stream {group.stream}"),
        ("Partitions", str(group.max_members)),
        ("Layout", group.layout),
        ("Filters", ", ".join(_filters(group)) or "none: everything"),
    ]
    if isinstance(group, ElasticGroup):
        limits = [
            f"{size} {unit}"
            for size, unit in (
                (group.max_buffered_messages, "messages"),
                (group.max_buffered_bytes, "bytes"),
            )
            if size > 0
        ]
        rows.append(("Work queue", f"{stream_of(group)}, {' and '.join(limits) or 'no limit'}"))
        if group.change is not None:
            rows.append(("Change", change_text(group)))
    elif group.start_sequence:
        rows.append(("Begins", f"with message {group.start_sequence}"))
    if group.member_mappings:
        rows.append(("Mappings", " ".join(map(mapping_text, group.member_mappings))))
    return [f"{name + ':':12} {text}" for name, text in rows]


def trouble_lines(troubles: Iterable[Trouble], name: str = "") -> list[str]:
    """What keeps messages from a group, and what mends it; with its ``name`` where there are several."""
    found: list[str] = []
    for each in troubles:
        mark = "✗" if each.is_certain else "!"
        found += [f"{mark} {f'{name}: ' if name else ''}{each.text}", f"    {each.mend}"]
    return found


def change_document(group: ElasticGroup) -> dict[str, Any] | None:
    """The change that is under way, for programs; ``former`` where the group has the new settings already."""
    change = group.change
    if change is None:
        return None
    side = "former" if change.phase == "switching" else "wanted"
    return {
        "phase": change.phase,
        "boundary": change.boundary,
        side: {
            "max_members": change.max_members,
            "partitioning_filters": [
                {"filter": f.filter, "partitioning_wildcards": [*(f.partitioning_wildcards or ())]}
                for f in change.partitioning_filters or ()
            ],
        },
    }


def change_text(group: ElasticGroup) -> str:
    """The change that is under way, and what completes it."""
    change, other = group.change, group.other_side()
    if change is None or other is None:
        return "none"
    new = group if change.phase == "switching" else other
    filters = ", ".join(_filters(new)) or "everything"
    behind = f", behind message {change.boundary}" if change.boundary else ""
    return (
        f"{change.phase}, to {counted(new.max_members, 'partition')} of {filters}{behind}; "
        f"headrace group elastic change {group.stream} {group.name} goes on with it"
    )


def absent_text(stream: str, group: str, absent: tuple[str, ...]) -> str:
    """Why a change waits, and what leads on."""
    names = [each for each in absent if each]
    parts = []
    if names:
        drop = f"headrace group elastic drop {stream} {group} {' '.join(names)}"
        parts.append(f"nobody is at work as {', '.join(names)}: start them, or drop them ({drop})")
    if "" in absent:
        parts.append(
            f"partitions have no member: headrace group elastic add {stream} {group} MEMBER"
        )
    undo = f"headrace group elastic change {stream} {group} --undo"
    return f"the change waits: {'; '.join(parts)}; or take it back ({undo})"


def headings() -> tuple[str, ...]:
    """Of the table of groups."""
    return ("GROUP", "PARTITIONS", "LAYOUT", "FILTERS", "MEMBERS")


def row(group: Group) -> tuple[str, ...]:
    """A group in the table of groups."""
    if group.member_mappings:
        members = " ".join(map(mapping_text, group.member_mappings))
    else:
        members = " ".join(sorted(set(group.members)))
    filters = " ".join(_filters(group))
    partitions = str(group.max_members)
    if isinstance(group, ElasticGroup) and group.change is not None:
        partitions = f"{partitions}, {group.change.phase}"
    return (group.name, partitions, group.layout, filters or "-", members or "-")


def _filters(group: Group) -> list[str]:
    if isinstance(group, StaticGroup):
        return [*group.filters]
    return [filter_text(each) for each in group.partitioning_filters or ()]


def _kind(group: Group) -> str:
    return "static" if isinstance(group, StaticGroup) else "elastic"


_NS: Final = 1_000_000_000
NOBODY: Final[Mapping[int, str]] = {}
_STEPS: Final = ((86_400, "d"), (3600, "h"), (60, "m"))


def table(
    look: GroupLag,
    rates: Rates | None = None,
    names: Mapping[int, str] = NOBODY,
    height: int = 0,
) -> list[str]:
    """A table for people: partitions with their owners, then members.

    Args:
        names: of instances, by the generations that they own.
        height: the most lines, if given.
    """
    head = [*_headline(look, rates), ""]
    members = ["", *columns(_member_rows(look, rates), "<<<>>>>>")]
    rows = list(_partition_rows(look, names))
    room = height - len(head) - len(members) if height else len(rows)
    if len(rows) > max(room, 3):
        room = max(room, 3)
        hidden = len(rows) - room + 1
        rows = [*rows[: room - 1], (f"… {hidden} more", "", "", "", "", "")]
    lines = [*head, *columns(rows, "><<>>>"), *members]
    return lines[:height] if height else lines


def _headline(look: GroupLag, rates: Rates | None) -> Iterable[str]:
    yield f"{look.kind} group {look.group!r} of stream {look.stream!r}, layout {look.layout}"
    parts = [f"lag {_count(look.lag)}"]
    if look.source_lag:
        parts.append(f"of which {look.source_lag} still at the source")
    if look.oldest_s is not None:
        parts.append(f"oldest {seconds_text(look.oldest_s)}")
    if rates is not None:
        parts.append(f"{rates.arrived:.1f}/s come, {rates.handled:.1f}/s are handled")
    yield ", ".join(parts)
    yield from trouble_lines(look.troubles)


def _partition_rows(look: GroupLag, names: Mapping[int, str]) -> Iterable[Sequence[str]]:
    yield ("PARTITION", "MEMBER", "INSTANCE", "SINCE", "LAG", "OLDEST")
    for each in look.partitions:
        oldest = "" if each.oldest_s is None else seconds_text(each.oldest_s)
        yield (
            str(each.partition),
            each.member or "-",
            "-" if each.pin is None else names.get(each.pin.since_ns, each.pin.client_id),
            _since(look, each.pin),
            _count(each.lag),
            oldest,
        )


def _member_rows(look: GroupLag, rates: Rates | None) -> Iterable[Sequence[str]]:
    yield (
        "MEMBER",
        "STATE",
        "PARTITIONS",
        "INSTANCES",
        "LAG",
        "UNACKED",
        "REDELIVERED",
        "HANDLED/S",
    )
    for each in look.members:
        rate = None if rates is None else rates.by_member.get(each.member)
        yield (
            each.member,
            _state(each),
            ranges(each.partitions) or "-",
            str(each.instances),
            _count(each.lag),
            str(each.unacknowledged),
            str(each.redelivered),
            "" if rate is None else f"{rate:.1f}",
        )


def _state(member: MemberLag) -> str:
    if not member.listed:
        return "left"
    if not member.partitions:
        return "spare"
    return "active" if member.is_active else "waiting" if member.is_live else "absent"


def line(look: GroupLag) -> str:
    """All of it in one line, for a log."""
    members = " ".join(
        f"{each.member}[{ranges(each.partitions)}]={_state(each)},{_count(each.lag)}"
        for each in look.members
    )
    counts = f"{clock_text(look.at_ns)} lag {_count(look.lag)} source {look.source_lag} {members}"
    return "; ".join([counts.rstrip(), *(each.text for each in look.troubles)])


def table_document(
    look: GroupLag, rates: Rates | None = None, names: Mapping[int, str] = NOBODY
) -> dict[str, Any]:
    """All of it for programs. Arguments as of ``table``."""
    return {
        "stream": look.stream,
        "group": look.group,
        "kind": look.kind,
        "layout": look.layout,
        "revision": look.revision,
        "at": clock_text(look.at_ns),
        "lag": look.lag,
        "waiting": look.group_lag,
        "source_lag": look.source_lag,
        "oldest_seconds": look.oldest_s,
        "handled": look.handled_total,
        "arrived_per_second": None if rates is None else rates.arrived,
        "handled_per_second": None if rates is None else rates.handled,
        "partitions": [_partition_document(each, names) for each in look.partitions],
        "members": [_member_document(each, rates, names) for each in look.members],
        "troubles": [each._asdict() for each in look.troubles],
    }


def _partition_document(each: PartitionLag, names: Mapping[int, str]) -> dict[str, Any]:
    return {
        "partition": each.partition,
        "member": each.member,
        "lag": each.lag,
        "oldest_seconds": each.oldest_s,
        **_pin_document(each.pin, names),
    }


def _member_document(
    each: MemberLag, rates: Rates | None, names: Mapping[int, str]
) -> dict[str, Any]:
    return {
        "member": each.member,
        "state": _state(each),
        "partitions": list(each.partitions),
        "instances": each.instances,
        "lag": each.lag,
        "unacknowledged": each.unacknowledged,
        "redelivered": each.redelivered,
        "handled": each.handled,
        "handled_per_second": None if rates is None else rates.by_member.get(each.member),
        **_pin_document(each.pin, names),
    }


def _pin_document(pin: Pin | None, names: Mapping[int, str]) -> dict[str, Any]:
    return {
        "pinned_client": None if pin is None else pin.client_id,
        "instance": None if pin is None else names.get(pin.since_ns),
        "generation": None if pin is None else pin.since_ns,
    }


def columns(rows: Iterable[Sequence[str]], sides: str) -> list[str]:
    """Rows of cells in columns; ``sides`` has < or > for each: where it is flush."""
    cells = [tuple(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if side == "<" else cell.rjust(width)
            for cell, width, side in zip(row, widths, sides, strict=True)
        ).rstrip()
        for row in cells
    ]


def seconds_text(seconds: float) -> str:
    """A duration, short."""
    if math.isinf(seconds):
        return "for ever"
    for size, unit in _STEPS:
        if seconds >= size:
            return f"{seconds / size:.1f}{unit}"
    return f"{seconds:.1f}s"


def clock_text(at_ns: int) -> str:
    """A moment, in UTC."""
    moment = datetime.fromtimestamp(at_ns // _NS, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at_ns % _NS // 1_000_000:03}Z"


def _since(look: GroupLag, pin: Pin | None) -> str:
    return "" if pin is None else seconds_text(max(0.0, (look.at_ns - pin.since_ns) / _NS))


def _count(number: int | None) -> str:
    return "?" if number is None else str(number)
