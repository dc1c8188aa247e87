"""Requests of a group that one statement does, without a look at who asks before it.

Who asks was looked up by an earlier transaction, and is remembered. The statement itself makes sure that this
still holds, and does nothing where it does not: what is remembered may be old, and is never believed alone.
Whatever is not the plain case (a refusal, a key, a filter, a definition that has changed) is left to the
ordinary way, which decides everything by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..vault import Vault
from .base import GroupWork, Outcome, Row, Tx

__all__ = ["Brief", "Done", "Memory", "NotRememberedError", "Part", "Remembered"]

T = TypeVar("T")

Memory = Mapping[Hashable, Any]
"""What :meth:`~.base.Tx.once` found in transactions before this one, by its keys. May be out of date."""


class NotRememberedError(Exception):
    """Only a transaction can tell."""


@dataclass(frozen=True, slots=True)
class Done:
    """The outcomes of the requests that a statement has done, by place, and whose waiters wake up."""

    outcomes: Mapping[int, Outcome]
    rung: Collection[int] = field(default=())


@dataclass(frozen=True, slots=True)
class Part:
    """One statement for the requests at ``places``, its values, and what its rows mean."""

    places: Sequence[int]
    query: str
    values: Mapping[str, Any]
    read: Callable[[Sequence[Row]], Done]


class Brief:
    """A :data:`~.base.GroupWork` that knows the brief way of some of its requests.

    ``parts`` gets the requests and a :class:`Remembered` to ask who they are from. It may leave out any, and
    a statement may do less than it was asked for: those are done by ``work``.
    """

    def __init__(
        self, work: GroupWork, parts: Callable[[Tx, Sequence[Any]], Sequence[Part]]
    ) -> None:
        self._work = work
        self.parts = parts
        self.name = getattr(work, "__qualname__", "")

    def __call__(self, tx: Tx, items: Sequence[Any]) -> Sequence[Outcome]:
        return self._work(tx, items)


class Remembered:
    """A transaction that has nothing but what is remembered, and gives up where more is asked."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def once(self, key: Hashable, made: Callable[[], T], /) -> T:
        """What an earlier transaction found for ``key``."""
        del made
        found: T | None = self._memory.get(key)
        if found is None:
            raise NotRememberedError
        return found

    @property
    def vault(self) -> Vault:
        """Not here."""
        raise NotRememberedError

    def all(self, query: str, /, **values: Any) -> Sequence[Row]:
        """Not here."""
        raise NotRememberedError

    def one(self, query: str, /, **values: Any) -> Row | None:
        """Not here."""
        raise NotRememberedError

    def run(self, query: str, /, **values: Any) -> int:
        """Not here."""
        raise NotRememberedError

    def run_many(self, query: str, rows: Sequence[Mapping[str, Any]], /) -> None:
        """Not here."""
        raise NotRememberedError

    def now_us(self) -> int:
        """Not here."""
        raise NotRememberedError

    def ring(self, consumers: Sequence[int], /) -> None:
        """Not here."""
        raise NotRememberedError
