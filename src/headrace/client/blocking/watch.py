"""The blocking watch, of key-values and of objects."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Generic, Self, TypeVar

from .. import watch as aio
from .portal import Blocking, Portal, blocking, iterate

__all__ = ["Watch"]

T = TypeVar("T")


class Watch(Blocking, Generic[T]):
    """Entries as they change: ``with kv.watch() as watch: for entry in watch``."""

    __slots__ = ()
    _inner: aio.Watch[T]

    def __init__(self, portal: Portal, inner: aio.Watch[T]) -> None:
        super().__init__(portal, inner)

    def initial(self) -> Iterator[T]:
        """What was there when the watch began; afterwards iterate the watch itself for changes."""
        return iterate(self._portal, self._inner.initial())

    def __iter__(self) -> Iterator[T]:
        return iterate(self._portal, self._inner)

    def __next__(self) -> T:
        return next(iter(self))

    stop = blocking(aio.Watch.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
