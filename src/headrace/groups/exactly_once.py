"""Prepare, acknowledge, commit; or roll back: for destinations that cannot remember what they have.

Where a destination can store the message's ``sequence`` in the transaction of the work, do that, and
acknowledge afterwards (``docs/groups.md``). It needs nothing of this module, and holds whatever dies.

Here the transaction is prepared, then the message is acknowledged and the confirmation awaited, then the
transaction is committed. What that takes:

- Between the confirmation and the commit a process can die, and the broker can die between storing the
  acknowledgement and saying so (``NotConfirmedError``). Then the message may be acknowledged and its effect
  only prepared. ``was_acknowledged`` tells the next owner what to do with it: commit if so, roll back if
  not. So what is prepared must outlive the process, as ``recoverable=True`` says. Where it does not, the
  effect would be lost, and ``exactly_once`` refuses to begin.
- A confirmation must be final. Headrace's broker has it on disk before it confirms. nats-server may forget
  after a kill what it has confirmed, and deliver it again: the effect comes about twice.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from ..api.errors import Errors
from ..client import Stream
from ..client.seam import api_of
from ..errors import JetStreamApiError
from .errors import GroupConfigurationError, NotOwnedError

if TYPE_CHECKING:
    from ..client import JetStream
    from .message import GroupMessage

__all__ = ["Transaction", "exactly_once", "was_acknowledged"]


class Transaction(Protocol):
    """What is done elsewhere. The methods may be plain or coroutine functions."""

    def prepare(self) -> object:
        """Make sure that ``commit`` can only succeed. Raising rolls back."""

    def commit(self) -> object:
        """Let it take effect."""

    def rollback(self) -> object:
        """Undo it. Called after a failure at any earlier point, also of ``prepare``."""


T = TypeVar("T", bound=Transaction)


@asynccontextmanager
async def exactly_once(
    message: GroupMessage,
    transaction: T,
    *,
    recoverable: bool = False,
    timeout: float | None = None,
) -> AsyncIterator[T]:
    """Do the body's work in ``transaction``, and let it take effect only with the message's acknowledgement.

    ::

        async with exactly_once(message, Payment(database, message), recoverable=True) as payment:
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
        await _done(transaction.prepare)
    except BaseException:
        await _done(transaction.rollback)
        raise
    try:
        await message.ack_sync(timeout)
    except BaseException as error:
        # Cancelled, not answered, the connection is closed: it may be acknowledged after all.
        in_doubt = not isinstance(error, NotOwnedError) or error.in_doubt
        if not in_doubt:
            await _done(transaction.rollback)
        raise
    await _done(transaction.commit)


async def was_acknowledged(js: JetStream, stream: str, sequence: int, consumer: str = "") -> bool:
    """Whether a message needs nobody any more: what to do with what a former owner has prepared for it.

    Args:
        stream, sequence: of the message, as its ``metadata`` says. An elastic group's stream loses what is
            acknowledged.
        consumer: of a static group, whose stream keeps its messages: the consumer that had it. What the
            consumer is done with up to some sequence counts; with ``max_ack_pending=1`` that is exact.
    """
    if consumer:
        info = await (await js.consumer(stream, consumer)).info()
        return info.ack_floor.stream_seq >= sequence
    try:
        await Stream(api_of(js), stream).get_message(sequence)  # of the leader: a copy may lag
    except JetStreamApiError as error:
        if error.err_code != Errors.NO_MESSAGE_FOUND.err_code:
            raise
        return True
    return False


def check_recoverable(recoverable: bool) -> None:
    """Raise GroupConfigurationError unless what is prepared outlives the process."""
    if recoverable is not True:
        raise GroupConfigurationError(
            f"exactly_once with recoverable={recoverable!r} would lose a message's effect when the broker or "
            "this process dies between the acknowledgement and the commit. Store message.sequence in the "
            "transaction of the work and acknowledge afterwards (docs/groups.md, 'Exactly once'); or, where "
            "what is prepared outlives the process, decide about it with was_acknowledged and give "
            "recoverable=True"
        )


async def _done(call: Callable[[], object]) -> None:
    result = call()
    if inspect.isawaitable(result):
        await result
