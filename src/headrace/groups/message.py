"""What a member's handler gets: a message of the stream, without its partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import DisconnectedError, NoRespondersError, TimeoutError_
from .errors import NotOwnedError
from .names import split_subject

if TYPE_CHECKING:
    from ..api.acks import AckTokens
    from ..client import JetStreamMessage
    from ..client.jetstream.message import Queued
    from ..client.message import Headers
    from .member.lease import Generation
else:
    JetStreamMessage = Generation = Any  # msgspec evaluates the annotations of a struct


class GroupMessage(msgspec.Struct, eq=False):
    """A message of a group, and what can be answered to it.

    It is pending until one of ``ack``, ``nak``, ``term`` is called. They queue the answer at once, and may
    be awaited or not; ``ack_sync`` waits until the server has it on disk.
    """

    # A struct, because one is made per message: it costs a third of what a class with slots does.
    _message: JetStreamMessage
    _generation: Generation

    @property
    def subject(self) -> str:
        """What it was published to; the partition before it is left out."""
        return split_subject(self._message.subject)[1]

    @property
    def partition(self) -> int:
        """The partition it is in."""
        return split_subject(self._message.subject)[0]

    @property
    def generation(self) -> int:
        """A number that grows with every change of the owner of this message's partition. Whoever stores
        it with what a handler does can refuse what comes late from a former owner."""
        return self._generation.number

    @property
    def is_owned(self) -> bool:
        """Whether this instance surely still owns the partition. False: it was given to another one, or may
        have been, and the message is delivered again there."""
        return self._generation.is_owned

    @property
    def payload(self) -> bytes:
        """Its bytes, as they were published."""
        return self._message.payload

    @property
    def headers(self) -> Headers:
        """The headers, possibly empty. Raises ProtocolError if the block is malformed."""
        return self._message.headers

    @property
    def raw_headers(self) -> bytes:
        """The header block as it came, ``b""`` without one."""
        return self._message.raw_headers

    @property
    def metadata(self) -> AckTokens:
        """Stream, consumer, how often delivered, sequences, time and what was pending."""
        return self._message.metadata

    @property
    def reply(self) -> str:
        """The subject on which it is answered."""
        return self._message.reply

    @property
    def is_answered(self) -> bool:
        """Whether a final answer was queued."""
        return self._message.is_answered

    @property
    def _answered(self) -> bool | str:
        return self._message._answered

    def __repr__(self) -> str:
        return f"<GroupMessage {self._message.subject!r} {len(self.payload)} bytes>"

    def ack(self) -> Queued:
        """Processed: it is not delivered again."""
        return self._message.ack()

    def nak(self, delay: float = 0.0) -> Queued:
        """Not processed: it is delivered again, after ``delay`` seconds. Where ``max_ack_pending`` is more
        than 1, later messages of its key come before it; a failure policy does not let them."""
        return self._message.nak(delay)

    def term(self, reason: str = "") -> Queued:
        """Never to be delivered again; ``reason`` appears in the server's advisory."""
        return self._message.term(reason)

    def in_progress(self) -> Queued:
        """Still being processed: the time allowed begins anew. The membership says this by itself while the
        handler runs."""
        return self._message.in_progress()

    async def ack_sync(self, timeout: float | None = None) -> None:
        """Acknowledge, and return once the server has it on disk.

        Without an answer, as when the link is lost, it asks again, as long as this instance owns the
        partition.

        Args:
            timeout: seconds to wait for the one answer to one question, instead of asking again.

        Raises:
            NotOwnedError: the partition has another owner by now, or may have. Undo what was done: the
                message is delivered again. Unless its ``in_doubt`` says that we asked and had no answer.
            TimeoutError, DisconnectedError: with ``timeout``: no answer came; it may be acknowledged or not.
        """
        in_doubt = False
        while self._generation.is_owned:
            try:
                return await self._message.ack_sync(timeout)
            except NoRespondersError as error:
                self._generation.lease.end()
                raise self._not_owned("its consumer is gone", in_doubt) from error
            except (TimeoutError_, DisconnectedError):
                if timeout is not None:
                    raise
                in_doubt = True
        raise self._not_owned("it has another owner, or may have", in_doubt)

    def _not_owned(self, why: str, in_doubt: bool) -> NotOwnedError:
        then = (
            "the message may be acknowledged or not"
            if in_doubt
            else "the message was not acknowledged and is delivered again"
        )
        return NotOwnedError(
            f"partition {self.partition} is not ours any more (generation {self.generation}): {why}; {then}",
            in_doubt=in_doubt,
        )
