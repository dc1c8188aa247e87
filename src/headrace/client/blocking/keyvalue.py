"""The blocking key-value bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from .. import keyvalue as aio
from ..keyvalue import Entry
from .portal import Blocking, blocking, iterate

__all__ = ["KeyValue", "Watch"]


class KeyValue(Blocking):
    """One bucket. The blocking twin of ``headrace.KeyValue``."""

    __slots__ = ()
    _inner: aio.KeyValue

    @property
    def bucket(self) -> str:
        """Its name."""
        return self._inner.bucket

    info = blocking(aio.KeyValue.info)
    get = blocking(aio.KeyValue.get)
    keys = blocking(aio.KeyValue.keys)
    history = blocking(aio.KeyValue.history)
    put = blocking(aio.KeyValue.put)
    create = blocking(aio.KeyValue.create)
    update = blocking(aio.KeyValue.update)
    delete = blocking(aio.KeyValue.delete)
    purge = blocking(aio.KeyValue.purge)

    def watch(
        self,
        *patterns: str,
        history: bool = False,
        updates_only: bool = False,
        ignore_deletes: bool = False,
        headers_only: bool = False,
        on_error: Callable[[Exception], object] | None = None,
    ) -> Watch:
        """Entries as they change; see ``headrace.KeyValue.watch``."""
        inner = self._portal.run(
            self._inner.watch(
                *patterns,
                history=history,
                updates_only=updates_only,
                ignore_deletes=ignore_deletes,
                headers_only=headers_only,
                on_error=on_error,
            )
        )
        return Watch(self._portal, inner)


class Watch(Blocking):
    """Entries as they change: ``with kv.watch() as watch: for entry in watch``."""

    __slots__ = ()
    _inner: aio.Watch

    def initial(self) -> Iterator[Entry]:
        """What was there when the watch began; afterwards iterate the watch itself for changes."""
        return iterate(self._portal, self._inner.initial())

    def __iter__(self) -> Iterator[Entry]:
        return iterate(self._portal, self._inner)

    def __next__(self) -> Entry:
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
