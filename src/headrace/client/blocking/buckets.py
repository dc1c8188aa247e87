"""``KeyValue``, ``ObjectStore`` and what watches and reads them, for threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine, Iterator
from typing import Any, Generic, Self

from ...blocking import anywhere, blocking, returning, take_next, wrapping
from ..jetstream.calls import place_of_call
from ..jetstream.watch import T
from ..jetstream.watch import Watch as AioWatch
from ..kv import KeyValue as AioKeyValue
from ..objects.info import ObjectInfo
from ..objects.reader import ObjectReader as AioObjectReader
from ..objects.store import ObjectStore as AioObjectStore
from .loop_thread import Facade, LoopThread


class Watch(Facade, Generic[T]):
    """Entries as they change: ``with kv.watch() as watch: for entry in watch``."""

    __slots__ = ("_entries",)
    _inner: AioWatch[T]

    def __init__(self, thread: LoopThread, inner: AioWatch[T]) -> None:
        super().__init__(thread, inner)
        inner._messages._place = place_of_call()
        self._entries: deque[T] = deque()  # brought from the loop many at a time

    def initial(self) -> Iterator[T]:
        """What was there when the watch began; afterwards iterate the watch itself for changes.

        What is written meanwhile may be among it, and a key that is written again comes again.
        """
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


class KeyValue(Facade):
    """One bucket. Made by ``js.key_value(name)`` and ``js.create_key_value(name, …)``.

    Keys are ``A-Z a-z 0-9 - _ = / .`` and do not begin or end with a dot.

    Attributes:
        bucket: its name.
    """

    __slots__ = ()
    _inner: AioKeyValue

    @property
    def bucket(self) -> str:
        """Its name."""
        return self._inner.bucket

    info = blocking(AioKeyValue.info)
    status = blocking(AioKeyValue.status)

    # Reading

    get = blocking(AioKeyValue.get)
    keys = blocking(AioKeyValue.keys)
    history = blocking(AioKeyValue.history)
    watch = returning(Watch, AioKeyValue.watch)

    # Writing

    put = blocking(AioKeyValue.put)
    create = blocking(AioKeyValue.create)
    update = blocking(AioKeyValue.update)
    delete = blocking(AioKeyValue.delete)
    purge = blocking(AioKeyValue.purge)
    purge_deletes = blocking(AioKeyValue.purge_deletes)


class ObjectReader(Facade):
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


class ObjectStore(Facade):
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
