"""``KeyValue`` for threads."""

from __future__ import annotations

from ..kv.keyvalue import KeyValue as AioKeyValue
from .methods import Blocking, blocking, returning
from .watch import Watch


class KeyValue(Blocking):
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
