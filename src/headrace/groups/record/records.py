"""The records of groups: what is stored in the two buckets, byte for byte as others read it. Pure.

``StaticGroup`` and ``ElasticGroup`` are what users hold. Their JSON is that of the shipped Go
implementation; the names that document 001 gave to the fields are read, too, and never written.

A group with the layout ``per_partition``, and a static one that does not begin with the first message, say
``partitions`` where others say ``max_members``. Members that do not know of that find a record without
``max_members``, which they refuse, instead of joining wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeVar, get_args

import msgspec

from ...api.base import DocumentError, read_json
from ...api.streams import SubjectTransformConfig
from ...subjects import check_subject, matches
from ...transforms import SubjectTransform, partition
from ..errors import GroupConfigurationError, GroupRecordError
from . import validation
from .assignment import MemberMapping, PartitioningFilter, assign, filter_subjects, key_positions
from .names import split_subject

Layout = Literal["interoperable", "per_partition"]
LAYOUTS: Final[tuple[str, ...]] = get_args(Layout)

T = TypeVar("T")


class RecordReader:
    """Takes the fields out of a record, and says which one is not what it should be."""

    def __init__(self, what: str, fields: Mapping[str, Any]) -> None:
        self._what = what
        self._fields = fields

    @classmethod
    def of(cls, what: str, value: bytes) -> RecordReader:
        """A reader of a stored record. Raises GroupRecordError."""
        try:
            fields = read_json(value)
        except DocumentError as error:
            raise GroupRecordError(f"the record of {what} is no JSON: {error}") from error
        if not isinstance(fields, dict):
            raise GroupRecordError(f"the record of {what} is no JSON object: {value[:80]!r}")
        return cls(what, fields)

    def layout(self) -> Layout:
        layout = self._fields.get("layout", "interoperable")
        if layout not in LAYOUTS:
            raise GroupRecordError(
                f"{self._what} has the layout {layout!r}, which this version does not know; "
                f"it knows {' and '.join(map(repr, LAYOUTS))}"
            )
        return layout  # type: ignore[no-any-return]

    def partitions(self) -> int:
        is_for_others = self.layout() == "interoperable" and not self.whole("start_sequence")
        return self.whole("max_members" if is_for_others else "partitions")

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

    def part(self, name: str) -> Mapping[str, Any] | None:
        """An object within the record; None if it has none."""
        value = self._fields.get(name)
        return None if value is None else self._is(name, value, dict, "an object")

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


ChangePhase = Literal["closing", "draining", "switching", "undoing"]
CLOSED_BYTES: Final = 1
"""The limit of a work queue that takes nothing: no message is so small. Its copy waits, as at a full one."""

_PHASES: Final[tuple[str, ...]] = get_args(ChangePhase)


@dataclass(frozen=True, slots=True)
class GroupChange:
    """A change that is under way. It has the settings that the record itself has not: up to the switch those
    that are to come, from the switch on those that were.

    Attributes:
        phase: ``closing``: the work queue is being closed; ``draining``: it takes nothing more, and
            the members handle what is in it; ``switching``: it is empty, the record has the new settings, and
            the work queue gets them; ``undoing``: it is being opened again.
        max_members, partitioning_filters, max_buffered_messages, max_buffered_bytes: as of the group.
        member_mappings: the distribution by hand, if the change gives one.
        boundary: the last message of the stream, as a sequence, that belongs to the former settings; 0: none.
        copied: the last sequence of the work queue when it was closed.
        queue_bytes: the limit in bytes that the work queue had before it was closed.
    """

    phase: ChangePhase
    max_members: int
    partitioning_filters: tuple[PartitioningFilter, ...] | None = None
    max_buffered_messages: int = 0
    max_buffered_bytes: int = 0
    member_mappings: tuple[MemberMapping, ...] = ()
    boundary: int = 0
    copied: int = 0
    queue_bytes: int = -1

    def fields(self) -> dict[str, object]:
        """What is stored."""
        filters = self.partitioning_filters
        return {
            "phase": self.phase,
            "max_members": self.max_members,
            "partitioning_filters": None if filters is None else [f._asdict() for f in filters],
            "max_buffered_msg": self.max_buffered_messages,
            "max_buffered_bytes": self.max_buffered_bytes,
            "member_mappings": [each._asdict() for each in self.member_mappings],
            "boundary": self.boundary,
            "copied": self.copied,
            "queue_bytes": self.queue_bytes,
        }


def read_change(what: str, fields: Mapping[str, Any] | None) -> GroupChange | None:
    """The change in a record, if there is one. Raises GroupRecordError."""
    if fields is None:
        return None
    read = RecordReader(f"the change of {what}", fields)
    phase: Any = read.text("phase")
    if phase not in _PHASES:
        raise GroupRecordError(
            f"{what} is being changed and is {phase!r}, which this version does not know; it knows "
            f"{', '.join(map(repr, _PHASES))}"
        )
    return GroupChange(
        phase,
        read.whole("max_members"),
        read.partitioning_filters(),
        read.whole("max_buffered_msg"),
        read.whole("max_buffered_bytes"),
        read.mappings(),
        read.whole("boundary"),
        read.whole("copied"),
        read.whole("queue_bytes"),
    )


LIMITS: Final = ("max_buffered_messages", "max_buffered_bytes")


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
        start_sequence: the first message of the stream that it takes; 0: the first there is.
        revision: of the record in the bucket; 0 when it was never stored.
    """

    stream: str
    name: str
    max_members: int
    filters: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    member_mappings: tuple[MemberMapping, ...] = ()
    layout: Layout = "interoperable"
    start_sequence: int = 0
    revision: int = field(default=0, compare=False)

    def validate(self) -> None:
        """Raise GroupConfigurationError, in the words of the shipped implementation."""
        _validate_common(self)
        if self.start_sequence < 0:
            raise GroupConfigurationError(
                f"start_sequence is {self.start_sequence}; accepted: 0, or a sequence from 1 on"
            )
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

    def partition_of(
        self, subject: str, transform: SubjectTransformConfig | None = None
    ) -> int | None:
        """The partition of a message; None: the group does not get it.

        Args:
            subject: on which it is published, or under which it is stored.
            transform: that of the stream, ``subject_transform``; None: the subject has its number already.
        """
        stored: bytes | None = check_subject(subject.encode())
        if transform is not None:
            stored = SubjectTransform(transform.src.encode(), transform.dest.encode()).apply(
                subject.encode()
            )
        try:
            number, rest = split_subject((stored or subject.encode()).decode())
        except ValueError:
            return None
        patterns = [each.partition(".")[2] for each in self.filter_subjects((0,))]
        is_taken = any(matches(each.encode(), rest.encode()) for each in patterns)
        return number if is_taken and number < self.max_members else None

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
            ("start_sequence", self.start_sequence or None),
            ("filters", list(self.filters) or None),
        )

    @classmethod
    def decode(cls, stream: str, name: str, value: bytes, revision: int = 0) -> StaticGroup:
        """Read a record. Raises GroupRecordError."""
        what = f"static group {name!r} of stream {stream!r}"
        read = RecordReader.of(what, value)
        filters = read.names("filters") or tuple(filter(None, [read.text("filter")]))
        group = cls(
            stream,
            name,
            read.partitions(),
            filters,
            read.names("members"),
            read.mappings(),
            read.layout(),
            read.whole("start_sequence"),
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
        changed: how often what is fixed at the creation was changed by ``elastic.change``.
        change: the change that is under way; None: there is none.
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
    changed: int = 0
    change: GroupChange | None = None
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

    def partition_of(self, subject: str) -> int | None:
        """The partition of what is published on a subject; None: the group does not take it."""
        encoded = check_subject(subject.encode())
        tokens = encoded.split(b".")
        for each in self.partitioning_filters or (PartitioningFilter(">"),):
            if matches(each.filter.encode(), encoded):
                positions = key_positions(each)
                key = b"".join(tokens[i] for i in positions) if positions else encoded
                return partition(key, self.max_members)
        return None

    def has_fixed_part_of(self, other: ElasticGroup) -> bool:
        """Whether nothing differs from ``other`` but who the members are, and the limits of the queue."""
        return self.fixed_part() == other.fixed_part()

    def can_follow(self, other: ElasticGroup) -> bool:
        """Whether a member that knows ``other`` may go on when it is told of this one: what is fixed was
        changed as it should be, or not at all; or this is what ``other`` was before, and comes late."""
        is_changed = self.changed > other.changed and self.revision > other.revision
        is_late = self.changed < other.changed and self.revision < other.revision
        may_differ = (is_changed or is_late) and self.layout == other.layout
        return may_differ or self.has_fixed_part_of(other)

    def other_side(self) -> ElasticGroup | None:
        """The group with the settings that the change under way has: what is to come, or what was."""
        change = self.change
        if change is None:
            return None
        return replace(
            self,
            max_members=change.max_members,
            partitioning_filters=change.partitioning_filters,
            max_buffered_messages=change.max_buffered_messages,
            max_buffered_bytes=change.max_buffered_bytes,
            members=() if change.member_mappings else self.members,
            member_mappings=change.member_mappings or self.member_mappings,
            change=None,
        )

    def differences(self, wanted: ElasticGroup) -> list[str]:
        """What is otherwise than in ``wanted``, in words. Members count only if ``wanted`` names some. While
        the group is being changed both sides are as good."""
        other = self.other_side()
        if other is not None and not other.differences(wanted):
            return []
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
        """What only ``elastic.change`` changes after the creation, and the layout, which nothing does."""
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
            ("changed", self.changed or None),
            ("change", None if self.change is None else self.change.fields()),
            always="partitioning_filters",
        )

    @classmethod
    def decode(cls, stream: str, name: str, value: bytes, revision: int = 0) -> ElasticGroup:
        """Read a record. Raises GroupRecordError."""
        what = f"elastic group {name!r} of stream {stream!r}"
        read = RecordReader.of(what, value)
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
            read.whole("changed"),
            read_change(what, read.part("change")),
            revision,
        )
        return _valid(group, what)


Group = TypeVar("Group", StaticGroup, ElasticGroup)


def first_of(group: StaticGroup | ElasticGroup) -> int:
    """The message that a static group begins with, as a sequence; 0: the first there is."""
    return group.start_sequence if isinstance(group, StaticGroup) else 0


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
    begins_later = isinstance(group, StaticGroup) and group.start_sequence > 0
    if group.layout != "interoperable":
        fields["layout"] = group.layout
    for_others = group.layout == "interoperable" and not begins_later
    fields["max_members" if for_others else "partitions"] = group.max_members
    fields.update((name, value) for name, value in own if value is not None or name == always)
    if group.members:
        fields["members"] = group.members
    if group.member_mappings:
        fields["member_mappings"] = [mapping._asdict() for mapping in group.member_mappings]
    text = msgspec.json.encode(fields)
    for character in (b"<", b">", b"&"):
        text = text.replace(character, b"\\u%04x" % ord(character))
    return text
