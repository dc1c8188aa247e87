"""Handling a message exactly once on a thread: prepare, acknowledge, commit; or roll back.

``exactly_once`` is written by hand: what is done elsewhere is called on the caller's thread, not on the loop.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from ...errors import ConfigurationError
from ...groups import exactly_once as aio
from ...groups.blocking import GroupMessage, verb
from ...groups.errors import NotOwnedError
from ...groups.exactly_once import check_recoverable

__all__ = ["Transaction", "exactly_once", "was_acknowledged"]


class Transaction(Protocol):
    """What is done elsewhere. The methods are plain functions."""

    def prepare(self) -> object:
        """Make sure that ``commit`` can only succeed. Raising rolls back."""

    def commit(self) -> object:
        """Let it take effect."""

    def rollback(self) -> object:
        """Undo it. Called after a failure at any earlier point, also of ``prepare``."""


T = TypeVar("T", bound=Transaction)


@contextmanager
def exactly_once(
    message: GroupMessage,
    transaction: T,
    *,
    recoverable: bool = False,
    timeout: float | None = None,
) -> Iterator[T]:
    """Do the body's work in ``transaction``, and let it take effect only with the message's acknowledgement.

    ::

        with exactly_once(message, Payment(database, message), recoverable=True) as payment:
            payment.book(...)

    At the end of the body: ``prepare``, then ``ack_sync``, then ``commit``. If the body, ``prepare`` or
    ``ack_sync`` raise: ``rollback``; but where the message may be acknowledged after all, it stays prepared.

    Args:
        recoverable: True: what is prepared outlives the process, and the next owner decides what becomes of
            it (``was_acknowledged``). Where the message may be acknowledged or not, the transaction is left
            prepared for it. Anything else is refused: rolled back, the message's effect would be lost.
        timeout: as for ``GroupMessage.ack_sync``.

    Raises:
        GroupConfigurationError: ``recoverable`` is not given. Nothing was begun.
        NotOwnedError: the partition has another owner. Nothing took effect; a handler lets it pass.
    """
    check_recoverable(recoverable)
    try:
        yield transaction
        _done(transaction.prepare)
    except BaseException:
        _done(transaction.rollback)
        raise
    try:
        message.ack_sync(timeout)
    except BaseException as error:
        # Cancelled, not answered, the connection is closed: it may be acknowledged after all.
        in_doubt = not isinstance(error, NotOwnedError) or error.in_doubt
        if not in_doubt:
            _done(transaction.rollback)
        raise
    _done(transaction.commit)


was_acknowledged = verb(aio.was_acknowledged)


def _done(call: Callable[[], object]) -> None:
    result = call()
    if inspect.iscoroutine(result):
        result.close()
        raise ConfigurationError(
            f"{call!r} is a coroutine function; give a plain function, as nothing is awaited here"
        )
