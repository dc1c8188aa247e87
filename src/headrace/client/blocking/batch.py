"""``AtomicBatch`` for threads."""

from __future__ import annotations

from typing import Self

from ...api.messages import PubAck
from ..publish.atomic_batch import AtomicBatch as AioAtomicBatch
from .methods import Blocking, anywhere, blocking


class AtomicBatch(Blocking):
    """Messages that are stored together, one after the other, or not at all. To be filled by one thread at
    a time. Made by ``js.batch()``.

    ::

        with js.batch() as batch:
            batch.add("accounts.a", b"-5")
            batch.add("accounts.b", b"+5")
        print(batch.ack.seq)

    Messages are held in memory and sent by ``commit``; the end of the block commits what was not
    committed, unless the block failed. All of them belong to one stream, which must have
    ``allow_atomic``; a server takes 1000 messages in a batch unless it is configured otherwise.

    Attributes:
        ack: the stream's acknowledgement once committed, else None. ``seq`` is the last message's
            sequence, ``count`` how many there are.
    """

    __slots__ = ()
    _inner: AioAtomicBatch

    @property
    def ack(self) -> PubAck | None:
        """The stream's acknowledgement once committed, else None. ``seq`` is the last message's sequence,
        ``count`` how many there are."""
        return self._inner.ack

    def __len__(self) -> int:
        return len(self._inner)

    @property
    def first_sequence(self) -> int:
        """The sequence of the first message once committed, else 0; the others follow it."""
        return self._inner.first_sequence

    add = anywhere(AioAtomicBatch.add)
    commit = blocking(AioAtomicBatch.commit)
    discard = anywhere(AioAtomicBatch.discard)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        """Commit, unless the block failed or that was done, or nothing was added."""
        self._thread.run(self._inner.__aexit__(kind, error, traceback))
