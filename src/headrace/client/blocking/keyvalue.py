"""The blocking key-value bucket."""

from __future__ import annotations

from collections.abc import Callable

from ..kv import keyvalue as aio
from ..kv.keyvalue import Entry
from .portal import Blocking, blocking
from .watch import Watch

__all__ = ["KeyValue"]


class KeyValue(Blocking):
    """One bucket. The blocking twin of ``headrace.KeyValue``."""

    __slots__ = ()
    _inner: aio.KeyValue

    @property
    def bucket(self) -> str:
        """Its name."""
        return self._inner.bucket

    info = blocking(aio.KeyValue.info)
    status = blocking(aio.KeyValue.status)
    get = blocking(aio.KeyValue.get)
    keys = blocking(aio.KeyValue.keys)
    history = blocking(aio.KeyValue.history)
    put = blocking(aio.KeyValue.put)
    create = blocking(aio.KeyValue.create)
    update = blocking(aio.KeyValue.update)
    delete = blocking(aio.KeyValue.delete)
    purge = blocking(aio.KeyValue.purge)
    purge_deletes = blocking(aio.KeyValue.purge_deletes)

    def watch(
        self,
        *patterns: str,
        history: bool = False,
        updates_only: bool = False,
        from_revision: int = 0,
        ignore_deletes: bool = False,
        headers_only: bool = False,
        on_error: Callable[[Exception], object] | None = None,
    ) -> Watch[Entry]:
        """Entries as they change; see ``headrace.KeyValue.watch``."""
        inner = self._portal.run(
            self._inner.watch(
                *patterns,
                history=history,
                updates_only=updates_only,
                from_revision=from_revision,
                ignore_deletes=ignore_deletes,
                headers_only=headers_only,
                on_error=on_error,
            )
        )
        return Watch(self._portal, inner)
