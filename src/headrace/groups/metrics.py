"""A group's numbers in Prometheus' text format: for an autoscaler, a dashboard, an alert. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from ..exposition import Labels, Metric, described, label_text
from .progress import GroupLag, MemberLag, PartitionLag

Sample = tuple[Labels, float | None]
Read = Callable[[GroupLag], Iterable[Sample]]


def _of_group(value: Callable[[GroupLag], float | None]) -> Read:
    return lambda look: [((), value(look))]


def _of_members(value: Callable[[MemberLag], float | None]) -> Read:
    return lambda look: [((("member", each.member),), value(each)) for each in look.members]


def _of_partitions(value: Callable[[PartitionLag], float | None]) -> Read:
    return lambda look: [
        ((("partition", str(each.partition)), ("member", each.member)), value(each))
        for each in look.partitions
    ]


_READ: Final[dict[Metric, Read]] = {
    Metric("lag_messages", "gauge", "Messages not handled yet, at the source too."): _of_group(
        lambda look: look.lag
    ),
    Metric(
        "source_lag_messages", "gauge", "Messages that the work queue has not copied yet."
    ): _of_group(lambda look: look.source_lag),
    Metric("oldest_seconds", "gauge", "How long the first message has waited."): _of_group(
        lambda look: (
            (look.oldest_s or 0.0) if look.oldest_s is not None or not look.group_lag else None
        )
    ),
    Metric("handled_messages_total", "counter", "Messages handled."): _of_group(
        lambda look: look.handled_total
    ),
    Metric("troubles", "gauge", "Reasons why messages surely do not reach the group."): _of_group(
        lambda look: sum(each.is_certain for each in look.troubles)
    ),
    Metric("partitions", "gauge", "Partitions, the most members that can have work."): _of_group(
        lambda look: len(look.partitions)
    ),
    Metric("members", "gauge", "Members of the group's record."): _of_group(
        lambda look: sum(each.listed for each in look.members)
    ),
    Metric("member_lag_messages", "gauge", "Messages not handled yet, by member."): _of_members(
        lambda each: each.lag
    ),
    Metric("member_partitions", "gauge", "Partitions that a member owns."): _of_members(
        lambda each: len(each.partitions)
    ),
    Metric("member_active", "gauge", "1 if an instance has the messages, else 0."): _of_members(
        lambda each: int(each.is_active)
    ),
    Metric(
        "member_instances", "gauge", "Pulls that wait, about one for each instance not busy."
    ): _of_members(lambda each: each.instances),
    Metric(
        "member_unacknowledged_messages", "gauge", "Delivered and not acknowledged, by member."
    ): _of_members(lambda each: each.unacknowledged),
    Metric(
        "member_redelivered_messages", "gauge", "Of these, delivered more than once."
    ): _of_members(lambda each: each.redelivered),
    Metric("member_handled_messages_total", "counter", "Messages handled, by member."): _of_members(
        lambda each: each.handled
    ),
    Metric(
        "partition_lag_messages", "gauge", "Messages not handled yet, by partition."
    ): _of_partitions(lambda each: each.lag),
    Metric(
        "partition_oldest_seconds", "gauge", "How long a partition's first message has waited."
    ): _of_partitions(
        lambda each: each.oldest_s if each.oldest_s is not None or each.lag != 0 else 0.0
    ),
}

METRICS: Final = tuple(_READ)
"""Every metric. The names stay as they are."""


def prometheus(looks: Iterable[GroupLag]) -> str:
    """Looks at some groups, in Prometheus' text format.

    Every metric begins with ``headrace_group_`` and has the labels ``stream`` and ``group``; those of members
    have ``member``, those of partitions ``partition`` and ``member``, too. What is not known is left out.
    """
    taken = list(looks)
    lines: list[str] = []
    for metric, read in _READ.items():
        name = f"headrace_group_{metric.name}"
        lines += described(name, metric.kind, metric.meaning)
        for look in taken:
            lines += _samples(name, look, read)
    return "\n".join(lines) + "\n"


def _samples(name: str, look: GroupLag, read: Read) -> Iterator[str]:
    of_group = (("stream", look.stream), ("group", look.group))
    for labels, value in read(look):
        if value is not None:
            yield f"{name}{label_text((*of_group, *labels))} {value:.10g}"
