"""The blocking atomic batch."""

from __future__ import annotations

from types import TracebackType
from typing import Self, Unpack

from ...api.messages import PubAck
from ..message import HeadersLike
from ..publish import atomic_batch as aio
from ..publish.headers import PublishOptions
from .portal import Blocking, blocking

__all__ = ["AtomicBatch"]


class AtomicBatch(Blocking):
    """Messages that are stored together or not at all: ``with js.batch() as batch``.

    The blocking twin of ``headrace.AtomicBatch``; to be filled by one thread at a time.
    """

    __slots__ = ()
    _inner: aio.AtomicBatch

    def __len__(self) -> int:
        return len(self._inner)

    @property
    def ack(self) -> PubAck | None:
        """The stream's acknowledgement once committed, else None."""
        return self._inner.ack

    @property
    def first_sequence(self) -> int:
        """The sequence of the first message once committed, else 0; the others follow it."""
        return self._inner.first_sequence

    def add(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: HeadersLike = None,
        **options: Unpack[PublishOptions],
    ) -> int:
        """Add a message and return its number, from 0; see ``headrace.AtomicBatch.add``."""
        return self._inner.add(subject, payload, headers=headers, **options)

    def discard(self) -> None:
        """Drop what was added; nothing of it was sent. A batch that was committed stays so."""
        self._inner.discard()

    commit = blocking(aio.AtomicBatch.commit)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Commit, unless the block failed or that was done, or nothing was added."""
        self._portal.run(self._inner.__aexit__(kind, error, traceback))
