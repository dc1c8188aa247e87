"""What must not be handled twice at once: the key of a message. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

from ....subjects import matches
from ...record.reader import key_positions
from ...record.records import ElasticGroup, StaticGroup


class Placed(Protocol):
    """A message, as far as it matters here."""

    @property
    def subject(self) -> str: ...

    @property
    def partition(self) -> int: ...


def key_function(group: StaticGroup | ElasticGroup) -> Callable[[Placed], Hashable]:
    """The key as the group partitions by it.

    Of an elastic group these are the tokens of the subject that its partitioning wildcards name, or the
    whole subject. What a static group's stream partitions by is not known here: the partition itself.
    """
    if isinstance(group, StaticGroup):
        return lambda message: message.partition
    rules = [
        (each.filter.encode(), key_positions(each)) for each in group.partitioning_filters or ()
    ]
    if not any(positions for _, positions in rules):
        return lambda message: message.subject

    def key(message: Placed) -> Hashable:
        subject = message.subject
        for pattern, positions in rules:
            if matches(pattern, subject.encode()):
                tokens = subject.split(".")
                return tuple(tokens[i] for i in positions) if positions else subject
        return subject

    return key
