"""A group as JSON, as lines, as a row of a table. Pure."""

from __future__ import annotations

from typing import Any

from ...groups import ElasticGroup, StaticGroup
from ...groups.consumers import consumers_of, stream_of
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
    else:
        filters = group.partitioning_filters or ()
        found["partitioning_filters"] = [
            {"filter": f.filter, "partitioning_wildcards": [*(f.partitioning_wildcards or ())]}
            for f in filters
        ]
        found["max_buffered_messages"] = group.max_buffered_messages
        found["max_buffered_bytes"] = group.max_buffered_bytes
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
    if group.member_mappings:
        rows.append(("Mappings", " ".join(map(mapping_text, group.member_mappings))))
    return [f"{name + ':':12} {text}" for name, text in rows]


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
    return (group.name, str(group.max_members), group.layout, filters or "-", members or "-")


def _filters(group: Group) -> list[str]:
    if isinstance(group, StaticGroup):
        return [*group.filters]
    return [filter_text(each) for each in group.partitioning_filters or ()]


def _kind(group: Group) -> str:
    return "static" if isinstance(group, StaticGroup) else "elastic"
