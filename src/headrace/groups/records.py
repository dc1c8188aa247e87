"""The records of groups: what is stored in the two buckets, byte for byte as others read it. Pure.

``StaticGroup`` and ``ElasticGroup`` are what users hold. Their JSON is that of the shipped Go
implementation; the names that document 001 gave to the fields are read, too, and never written.

A group with the layout ``per_partition`` says ``partitions`` where others say ``max_members``. Members that
do not know layouts find a record without ``max_members``, which they refuse, instead of joining wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args

import msgspec

from ..api.base import DocumentError, read_json
from . import validation
from .assignment import MemberMapping, assign, filter_subjects
from .errors import GroupConfigurationError, GroupRecordError

Layout = Literal["interoperable", "per_partition"]
LIMITS: Final = ("max_buffered_messages", "max_buffered_bytes")
LAYOUTS: Final[tuple[str, ...]] = get_args(Layout)


class PartitioningFilter(NamedTuple):
    """Subjects that an elastic group takes, and which of their tokens are the key.

    Attributes:
        filter: a subject pattern with at least one ``*``, or ending in ``>``.
        partitioning_wildcards: which ``*`` of it, counted from 1, make up the key; none: the whole
            subject is the key.
    """

    filter: str
    partitioning_wildcards: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class StaticGroup:
    """A static group: its members are fixed for its life. Its stream numbers the subjects itself.

    Attributes:
        stream, name: the stream it reads, and its own name.
        max_members: how many partitions the stream's subjects are numbered with.
        filters: what it takes of the stream, as patterns without the partition; empty: everything.
        members: names among which the partitions are distributed.
        member_mappings: the distribution given by hand, instead of ``members``.
        layout: ``interoperable``: one consumer for each member; ``per_partition``: one for each partition.
        revision: of the record in the bucket; 0 when it was never stored.
    """

    stream: str
    name: str
    max_members: int
    filters: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    member_mappings: tuple[MemberMapping, ...] = ()
    layout: Layout = "interoperable"
    revision: int = field(default=0, compare=False)

    def validate(self) -> None:
        """Raise GroupConfigurationError, in the words of the shipped implementation."""
        _validate_common(self)
        validation.check_membership(
            self.max_members, self.members, self.member_mappings, "specified in the mappings "
        )
        for pattern in self.filters:
            validation.check_filter(pattern)

    def assignment(self) -> dict[str, tuple[int, ...]]:
        """The partitions of every member."""
        return assign(self.max_members, self.members, self.member_mappings)

    def filter_subjects(self, partitions: Sequence[int]) -> tuple[str, ...]:
        """What a consumer of these partitions reads."""
        return filter_subjects(partitions, self.filters, mapped=not self.members)

    def differences(self, wanted: StaticGroup) -> list[str]:
        """What is otherwise than in ``wanted``, in words. The order of names means nothing."""
        pairs = {
            "max_members": (self.max_members, wanted.max_members),
            "filters": (list(self.filters), list(wanted.filters)),
            "members": (sorted(set(self.members)), sorted(set(wanted.members))),
            "member_mappings": (_mapped(self), _mapped(wanted)),
            "layout": (self.layout, wanted.layout),
        }
        return _unequal(pairs)

    def encode(self) -> bytes:
        """The record, as it is stored."""
        return _encode(
            self,
            ("filters", list(self.filters) or None),
        )

    @classmethod
    def decode(cls, stream: str, name: str, value: bytes, revision: int = 0) -> StaticGroup:
        """Read a record. Raises GroupRecordError."""
        what = f"static group {name!r} of stream {stream!r}"
        read = _Reader(what, value)
        filters = read.names("filters") or tuple(filter(None, [read.text("filter")]))
        group = cls(
            stream,
            name,
            read.partitions(),
            filters,
            read.names("members"),
            read.mappings(),
            read.layout(),
            revision,
        )
        return _valid(group, what)


@dataclass(frozen=True, slots=True)
class ElasticGroup:
    """An elastic group: members come and go. A work queue stream of its own numbers the subjects.

    Attributes:
        stream, name: the stream it copies, and its own name.
        max_members: the number of partitions, and of members that can have work.
        partitioning_filters: what it takes of the stream, and by which key; empty: everything, by the
            whole subject.
        max_buffered_messages, max_buffered_bytes: how much of the stream may lie in the work queue
            at a time; 0: no limit.
        members: names among which the partitions are distributed.
        member_mappings: the distribution given by hand, instead of ``members``.
        layout: ``interoperable``: one consumer for each member; ``per_partition``: one for each partition.
        revision: of the record in the bucket; 0 when it was never stored.
    """

    stream: str
    name: str
    max_members: int
    partitioning_filters: tuple[PartitioningFilter, ...] | None = None
    max_buffered_messages: int = 0
    max_buffered_bytes: int = 0
    members: tuple[str, ...] = ()
    member_mappings: tuple[MemberMapping, ...] = ()
    layout: Layout = "interoperable"
    revision: int = field(default=0, compare=False)

    def validate(self) -> None:
        """Raise GroupConfigurationError, in the words of the shipped implementation."""
        _validate_common(self)
        for each in self.partitioning_filters or ():
            validation.check_partitioning_filter(each.filter, each.partitioning_wildcards or ())
        for name in LIMITS:
            validation.check_buffer(name, getattr(self, name))
        validation.check_membership(self.max_members, self.members, self.member_mappings)

    def assignment(self) -> dict[str, tuple[int, ...]]:
        """The partitions of every member."""
        return assign(self.max_members, self.members, self.member_mappings)

    def filter_subjects(self, partitions: Sequence[int]) -> tuple[str, ...]:
        """What a consumer of these partitions reads."""
        filters = [each.filter for each in self.partitioning_filters or ()]
        return filter_subjects(partitions, filters, mapped=not self.members)

    def has_fixed_part_of(self, other: ElasticGroup) -> bool:
        """Whether nothing differs from ``other`` but who the members are, and the limits of the queue."""
        return self.fixed_part() == other.fixed_part()

    def differences(self, wanted: ElasticGroup) -> list[str]:
        """What is otherwise than in ``wanted``, in words. Members count only if ``wanted`` names some."""
        (most, filters, layout), (its_most, its_filters, its_layout) = (
            self.fixed_part(),
            wanted.fixed_part(),
        )
        pairs: dict[str, tuple[object, object]] = {
            "max_members": (most, its_most),
            "partitioning_filters": (filters, its_filters),
            **{n: (_no_limit(getattr(self, n)), _no_limit(getattr(wanted, n))) for n in LIMITS},
            "layout": (layout, its_layout),
        }
        if wanted.members or wanted.member_mappings:
            pairs["members"] = (sorted(set(self.members)), sorted(set(wanted.members)))
            pairs["member_mappings"] = (_mapped(self), _mapped(wanted))
        return _unequal(pairs)

    def fixed_part(self) -> tuple[object, ...]:
        """What cannot be changed after the creation."""
        filters = tuple(
            (each.filter, each.partitioning_wildcards or ())
            for each in self.partitioning_filters or ()
        )
        return (self.max_members, filters, self.layout)

    def encode(self) -> bytes:
        """The record, as it is stored."""
        filters = self.partitioning_filters
        return _encode(
            self,
            ("partitioning_filters", None if filters is None else [f._asdict() for f in filters]),
            ("max_buffered_msg", self.max_buffered_messages or None),
            ("max_buffered_bytes", self.max_buffered_bytes or None),
            always="partitioning_filters",
        )

    @classmethod
    def decode(cls, stream: str, name: str, value: bytes, revision: int = 0) -> ElasticGroup:
        """Read a record. Raises GroupRecordError."""
        what = f"elastic group {name!r} of stream {stream!r}"
        read = _Reader(what, value)
        group = cls(
            stream,
            name,
            read.partitions(),
            read.partitioning_filters(),
            read.whole("max_buffered_msg", "msg-buffer-size"),
            read.whole("max_buffered_bytes"),
            read.names("members"),
            read.mappings(),
            read.layout(),
            revision,
        )
        return _valid(group, what)


Group = TypeVar("Group", StaticGroup, ElasticGroup)
T = TypeVar("T")


def _no_limit(size: int) -> int:
    return max(size, 0)  # -1 means the same as 0


def _mapped(group: StaticGroup | ElasticGroup) -> dict[str, list[int]]:
    return {each.member: list(each.partitions) for each in group.member_mappings}


def _unequal(pairs: Mapping[str, tuple[object, object]]) -> list[str]:
    return [
        f"{name} {one!r}, not {other!r}" for name, (one, other) in pairs.items() if one != other
    ]


def _validate_common(group: StaticGroup | ElasticGroup) -> None:
    if group.layout not in LAYOUTS:
        accepted = " and ".join(map(repr, LAYOUTS))
        raise GroupConfigurationError(f"layout is {group.layout!r}; accepted are {accepted}")
    validation.check_partitions(group.max_members)


def _valid(group: Group, what: str) -> Group:
    try:
        group.validate()
    except GroupConfigurationError as error:
        raise GroupRecordError(f"the record of {what} is invalid: {error}") from error
    return group


# Writing


def _encode(group: StaticGroup | ElasticGroup, *own: tuple[str, object], always: str = "") -> bytes:
    """The record in Go's order and manner: what is empty is left out, ``<``, ``>``, ``&`` are escaped."""
    fields: dict[str, object] = {}
    if group.layout == "interoperable":
        fields["max_members"] = group.max_members
    else:
        fields["layout"] = group.layout
        fields["partitions"] = group.max_members
    fields.update((name, value) for name, value in own if value is not None or name == always)
    if group.members:
        fields["members"] = group.members
    if group.member_mappings:
        fields["member_mappings"] = [mapping._asdict() for mapping in group.member_mappings]
    text = msgspec.json.encode(fields)
    for character in (b"<", b">", b"&"):
        text = text.replace(character, b"\\u%04x" % ord(character))
    return text


# Reading


class _Reader:
    """Takes the fields out of a record, and says which one is not what it should be."""

    def __init__(self, what: str, value: bytes) -> None:
        self._what = what
        try:
            fields = read_json(value)
        except DocumentError as error:
            raise GroupRecordError(f"the record of {what} is no JSON: {error}") from error
        if not isinstance(fields, dict):
            raise GroupRecordError(f"the record of {what} is no JSON object: {value[:80]!r}")
        self._fields: Mapping[str, Any] = fields

    def layout(self) -> Layout:
        layout = self._fields.get("layout", "interoperable")
        if layout not in LAYOUTS:
            raise GroupRecordError(
                f"{self._what} has the layout {layout!r}, which this version does not know; "
                f"it knows {' and '.join(map(repr, LAYOUTS))}"
            )
        return layout  # type: ignore[no-any-return]

    def partitions(self) -> int:
        name = "max_members" if self.layout() == "interoperable" else "partitions"
        return self.whole(name)

    def whole(self, *names: str) -> int:
        for name in names:
            value = self._fields.get(name)
            if value is not None:
                return self._is(name, value, int, "a whole number")
        return 0

    def text(self, name: str) -> str:
        return self._is(name, self._fields.get(name) or "", str, "a text")

    def names(self, name: str) -> tuple[str, ...]:
        return tuple(self._is(name, each, str, "a list of texts") for each in self._list(name))

    def mappings(self) -> tuple[MemberMapping, ...]:
        found = self._list("member_mappings") or self._list("member-mappings")
        return tuple(
            MemberMapping(
                self._is("member", each.get("member"), str, "a text"),
                self._wholes("partitions", each.get("partitions")) or (),
            )
            for each in (self._is("member_mappings", e, dict, "a list of objects") for e in found)
        )

    def partitioning_filters(self) -> tuple[PartitioningFilter, ...] | None:
        if self._fields.get("filter"):  # document 001: one filter, its wildcards beside it
            wildcards = self._wholes(
                "partitioning-wildcards", self._fields.get("partitioning-wildcards")
            )
            return (PartitioningFilter(self.text("filter"), wildcards),)
        if self._fields.get("partitioning_filters") is None:
            return None
        name = "partitioning_filters"
        found = [self._is(name, each, dict, "a list of objects") for each in self._list(name)]
        return tuple(
            PartitioningFilter(
                self._is("filter", each.get("filter", ""), str, "a text"),
                self._wholes("partitioning_wildcards", each.get("partitioning_wildcards")),
            )
            for each in found
        )

    def _wholes(self, name: str, value: object) -> tuple[int, ...] | None:
        if value is None:
            return None
        listed = self._is(name, value, list, "a list")
        return tuple(self._is(name, each, int, "a list of whole numbers") for each in listed)

    def _list(self, name: str) -> list[Any]:
        return self._is(name, self._fields.get(name) or [], list, "a list")

    def _is(self, name: str, value: object, kind: type[T], accepted: str) -> T:
        if not isinstance(value, kind) or isinstance(value, bool):
            raise GroupRecordError(
                f"the record of {self._what} has {name} {value!r}; accepted: {accepted}"
            )
        return value
