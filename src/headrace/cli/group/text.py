"""A group as JSON, as lines, as a row of a table. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...groups import ElasticGroup, StaticGroup
from ...groups.reach import Trouble
from ...groups.server.consumers import consumers_of, stream_of
from ...quantities import counted
from .arguments import filter_text, mapping_text

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
