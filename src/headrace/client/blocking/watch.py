"""``Watch`` for threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine, Iterator
from typing import Any, Generic, Self

from ..jetstream.watch import T
from ..jetstream.watch import Watch as AioWatch
from .loop_thread import LoopThread
from .methods import Blocking, blocking


class Watch(Blocking, Generic[T]):
    """Entries as they change: ``with kv.watch() as watch: for entry in watch``."""

    __slots__ = ("_entries",)
    _inner: AioWatch[T]

    def __init__(self, thread: LoopThread, inner: AioWatch[T]) -> None:
        super().__init__(thread, inner)
        self._entries: deque[T] = deque()  # brought from the loop many at a time

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
        self._entries.extend(self._thread.run(batch))
        return bool(self._entries)

    stop = blocking(AioWatch.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
