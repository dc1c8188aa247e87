"""The blocking object store and its readers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from ..objects import reader as aio_reader
from ..objects import store as aio
from ..objects.info import ObjectInfo
from .portal import Blocking, blocking
from .watch import Watch

__all__ = ["ObjectReader", "ObjectStore"]


class ObjectReader(Blocking):
    """The content of one object: ``with store.open(name) as reader: for chunk in reader``.

    The blocking twin of ``headrace.ObjectReader``.
    """

    __slots__ = ()
    _inner: aio_reader.ObjectReader

    @property
    def info(self) -> ObjectInfo:
        """What is being read; a link's target. Known once the block is entered."""
        return self._inner.info

    read = blocking(aio_reader.ObjectReader.read)
    close = blocking(aio_reader.ObjectReader.close)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """Raises ObjectDamagedError."""
        chunk = self._portal.run(_next(self._inner))
        if chunk is None:
            raise StopIteration
        return chunk

    def __enter__(self) -> Self:
        """Raises ObjectNotFoundError, ObjectLinkError."""
        self._portal.run(self._inner.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class ObjectStore(Blocking):
    """One bucket of objects. The blocking twin of ``headrace.ObjectStore``."""

    __slots__ = ()
    _inner: aio.ObjectStore

    @property
    def bucket(self) -> str:
        """Its name."""
        return self._inner.bucket

    status = blocking(aio.ObjectStore.status)
    seal = blocking(aio.ObjectStore.seal)
    put = blocking(aio.ObjectStore.put)
    put_file = blocking(aio.ObjectStore.put_file)
    get = blocking(aio.ObjectStore.get)
    get_file = blocking(aio.ObjectStore.get_file)
    info = blocking(aio.ObjectStore.info)
    list = blocking(aio.ObjectStore.list)
    update_meta = blocking(aio.ObjectStore.update_meta)
    delete = blocking(aio.ObjectStore.delete)
    remove_leftovers = blocking(aio.ObjectStore.remove_leftovers)
    add_link = blocking(aio.ObjectStore.add_link)
    add_bucket_link = blocking(aio.ObjectStore.add_bucket_link)

    def open(self, name: str) -> ObjectReader:
        """Read an object piece by piece: ``with store.open(name) as reader``.

        Entering raises ObjectNotFoundError, and ObjectLinkError for a link that leads to no object.
        """
        return ObjectReader(self._portal, self._inner.open(name))

    def watch(
        self,
        *,
        updates_only: bool = False,
        ignore_deletes: bool = False,
        on_error: Callable[[Exception], object] | None = None,
    ) -> Watch[ObjectInfo]:
        """Objects as they are put, described and deleted; see ``headrace.ObjectStore.watch``."""
        return Watch(
            self._portal,
            self._portal.run(
                self._inner.watch(
                    updates_only=updates_only, ignore_deletes=ignore_deletes, on_error=on_error
                )
            ),
        )


async def _next(reader: aio_reader.ObjectReader) -> bytes | None:
    return await anext(reader, None)
