"""Reading a group's record: its fields as what they mean, and which one is not what it should be. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args

from ...api.base import DocumentError, read_json
from ..errors import GroupRecordError
from .assignment import MemberMapping

Layout = Literal["interoperable", "per_partition"]
LAYOUTS: Final[tuple[str, ...]] = get_args(Layout)

T = TypeVar("T")


class PartitioningFilter(NamedTuple):
    """Subjects that an elastic group takes, and which of their tokens are the key.

    Attributes:
        filter: a subject pattern with at least one ``*``, or ending in ``>``.
        partitioning_wildcards: which ``*`` of it, counted from 1, make up the key; none: the whole
            subject is the key.
    """

    filter: str
    partitioning_wildcards: tuple[int, ...] | None = None


def key_positions(each: PartitioningFilter) -> tuple[int, ...]:
    """Which tokens of a subject that matches the filter are its key, from 0; empty: the whole subject."""
    positions = [i for i, part in enumerate(each.filter.split(".")) if part == "*"]
    return tuple(positions[index - 1] for index in each.partitioning_wildcards or ())


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
