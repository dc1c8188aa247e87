"""``ObjectReader`` and ``ObjectStore`` for threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from ..objects.info import ObjectInfo
from ..objects.reader import ObjectReader as AioObjectReader
from ..objects.store import ObjectStore as AioObjectStore
from .loop_thread import take_next
from .methods import Blocking, anywhere, blocking, returning, wrapping
from .watch import Watch


class ObjectReader(Blocking):
    """The content of one object: ``with store.open(name) as reader: for chunk in reader``.

    Chunks are ``bytes`` as they were put, at most about 8 MiB of them are held. After the last one size
    and digest are compared: ObjectDamagedError is raised instead of an end, so content is good once the
    iteration has ended without an error.

    Attributes:
        info: what is being read; a link's target. Known once the block is entered.
    """

    __slots__ = ()
    _inner: AioObjectReader

    @property
    def info(self) -> ObjectInfo:
        """What is being read; a link's target. Known once the block is entered."""
        return self._inner.info

    def __enter__(self) -> Self:
        """Raises ObjectNotFoundError, ObjectLinkError."""
        self._thread.run(self._inner.__aenter__())
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """Raises ObjectDamagedError."""
        return take_next(self._thread, self._inner)

    read = blocking(AioObjectReader.read)
    close = blocking(AioObjectReader.close)


class ObjectStore(Blocking):
    """One bucket of objects. Made by ``js.object_store(name)`` and ``js.create_object_store(name, …)``.

    An object has a name (any text), content of any size, and a description. It is there once ``put``
    returns, whole or not at all; a put of the same name replaces it.

    Attributes:
        bucket: its name.
    """

    __slots__ = ()
    _inner: AioObjectStore

    @property
    def bucket(self) -> str:
        """Its name."""
        return self._inner.bucket

    status = blocking(AioObjectStore.status)
    seal = blocking(AioObjectStore.seal)

    # Putting

    put = blocking(AioObjectStore.put)
    put_file = blocking(AioObjectStore.put_file)

    # Getting

    open = wrapping(ObjectReader, anywhere(AioObjectStore.open))
    get = blocking(AioObjectStore.get)
    get_file = blocking(AioObjectStore.get_file)
    info = blocking(AioObjectStore.info)
    list = blocking(AioObjectStore.list)
    watch = returning(Watch, AioObjectStore.watch)

    # Changing

    update_meta = blocking(AioObjectStore.update_meta)
    delete = blocking(AioObjectStore.delete)
    remove_leftovers = blocking(AioObjectStore.remove_leftovers)
    add_link = blocking(AioObjectStore.add_link)
    add_bucket_link = blocking(AioObjectStore.add_bucket_link)
