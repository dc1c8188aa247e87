"""What a member's handler gets on a thread: answers are queued from there.

Each answer is made of the asyncio one, as in ``client/blocking/methods.py``. There are two messages here: the
one that the handler has, and the one that the membership waits for. Both have to know of an answer.
"""

from __future__ import annotations

from typing import Any, ParamSpec, TypeVar

from ...client.blocking.loop_thread import LoopThread
from ...client.blocking.messages import delivered_on
from ...client.blocking.methods import Method, documented
from ...client.seam import note_answered
from ..message import GroupMessage as AioGroupMessage
from ..message import delivered, owner_of

__all__ = ["GroupMessage"]


P = ParamSpec("P")
R = TypeVar("R")


def queueing(method: Method[P, R]) -> Method[P, R]:
    """Queue an answer from the caller's thread, and let the membership know."""

    def answer(self: Any, /, *args: P.args, **keywords: P.kwargs) -> R:
        queued = method(self, *args, **keywords)
        note_answered(delivered(self._source))
        return queued

    return documented(answer, method)


class GroupMessage(AioGroupMessage, eq=False):
    """A message of a group, and what can be answered to it.

    It is pending until one of ``ack``, ``nak``, ``term`` is called. They queue the answer at once;
    ``ack_sync`` waits until the server has it on disk.
    """

    _thread: LoopThread
    _source: AioGroupMessage

    ack = queueing(AioGroupMessage.ack)
    nak = queueing(AioGroupMessage.nak)
    term = queueing(AioGroupMessage.term)

    def ack_sync(self, timeout: float | None = None) -> None:  # type: ignore[override]
        self._thread.run(self._source.ack_sync(timeout))
        note_answered(self._message)

    documented(ack_sync, AioGroupMessage.ack_sync)


def on_thread(thread: LoopThread, source: AioGroupMessage) -> GroupMessage:
    """The message, for whoever is not on the loop's thread."""
    message = delivered_on(thread, delivered(source))
    return GroupMessage(message, owner_of(source), thread, source)  # type: ignore[arg-type]
