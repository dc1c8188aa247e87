"""What a member's handler gets on a thread: answers are queued from there.

The docstrings are those of the asyncio class; ``make blocking`` writes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...client.blocking.loop_thread import LoopThread
from ...client.blocking.messages import JetStreamMessage
from ..message import GroupMessage as AioGroupMessage

if TYPE_CHECKING:
    from ...client.jetstream.message import Queued
else:
    Queued = Any

__all__ = ["GroupMessage"]


class GroupMessage(AioGroupMessage, eq=False):
    """A message of a group, and what can be answered to it.

    It is pending until one of ``ack``, ``nak``, ``term`` is called. They queue the answer at once;
    ``ack_sync`` waits until the server has it on disk.
    """

    _thread: LoopThread
    _source: AioGroupMessage

    @classmethod
    def _of(cls, thread: LoopThread, source: AioGroupMessage) -> GroupMessage:
        message = JetStreamMessage._of(thread, source._message)
        return cls(message, source._generation, thread, source)  # type: ignore[arg-type]

    def ack(self) -> Queued:
        """Processed: it is not delivered again."""
        return self._noted(self._message.ack())

    def nak(self, delay: float = 0.0) -> Queued:
        """Not processed: it is delivered again, after ``delay`` seconds. Where ``max_ack_pending`` is more
        than 1, later messages of its key come before it; a failure policy does not let them."""
        return self._noted(self._message.nak(delay))

    def term(self, reason: str = "") -> Queued:
        """Never to be delivered again; ``reason`` appears in the server's advisory."""
        return self._noted(self._message.term(reason))

    def ack_sync(self, timeout: float | None = None) -> None:  # type: ignore[override]
        """Acknowledge, and return once the server has it on disk, and the partition is still ours.

        Without an answer, as when the link is lost, it asks again, as long as this instance owns the
        partition and the server is the one that delivered the message. One that was restarted knows nothing
        of that delivery; what it said would be of another one.

        Args:
            timeout: seconds to wait for the one answer to one question, instead of asking again.

        Raises:
            NotOwnedError: the partition has another owner by now, or may have. The message is not
                acknowledged, and delivered again.
            NotConfirmedError: the same, but it may be acknowledged: we asked, and had no answer that counts.
            TimeoutError, DisconnectedError: with ``timeout``: no answer came; it may be acknowledged or not.
        """
        self._thread.run(self._source.ack_sync(timeout))
        self._message._answered = True

    def _noted(self, queued: Queued) -> Queued:
        """Let the membership know, too."""
        self._source._message._answered = True
        return queued
