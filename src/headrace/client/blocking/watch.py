"""The blocking watch, of key-values and of objects."""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine, Iterator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from ..jetstream import watch as aio
from .portal import Blocking, Portal, blocking

__all__ = ["Watch"]

T = TypeVar("T")


class Watch(Blocking, Generic[T]):
    """Entries as they change: ``with kv.watch() as watch: for entry in watch``."""

    __slots__ = ("_entries",)
    _inner: aio.Watch[T]

    def __init__(self, portal: Portal, inner: aio.Watch[T]) -> None:
        super().__init__(portal, inner)
        self._entries: deque[T] = deque()  # brought from the background thread, many at a time

    def initial(self) -> Iterator[T]:
        """What was there when the watch began; afterwards iterate the watch itself for changes."""
        while self._entries or self._entries_from(self._inner._initial_batch()):
            yield self._entries.popleft()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._entries or self._entries_from(self._inner._next_batch()):
            return self._entries.popleft()
        raise StopIteration

    def _entries_from(self, batch: Coroutine[Any, Any, list[T]]) -> bool:
        self._entries.extend(self._portal.run(batch))
        return bool(self._entries)

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
