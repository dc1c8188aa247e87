"""A look at a group as a table, as a line, as JSON. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from ...groups.lag import GroupLag, MemberLag, PartitionLag, Pin, Rates
from .arguments import ranges
from .text import trouble_lines

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


def document(
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
