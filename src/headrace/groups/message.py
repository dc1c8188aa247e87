"""What a member's handler gets: a message of the stream, without its partition."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from ..client.message import preview
from ..client.seam import answer_of, confirm, is_decided_elsewhere
from ..errors import (
    AckUnknownError,
    DisconnectedError,
    HeadraceError,
    NoRespondersError,
    ProtocolError,
    RequestTimeoutError,
)
from .errors import NotConfirmedError, NotOwnedError
from .record.names import SOURCE, split_subject

if TYPE_CHECKING:
    from ..api.acks import AckTokens
    from ..client import JetStreamMessage
    from ..client.message import Headers
    from ..handling.callbacks import Queued
    from .member.lease import Generation
else:
    JetStreamMessage = Generation = Any  # msgspec evaluates the annotations of a struct


class GroupMessage(msgspec.Struct, eq=False):
    """A message of a group, and what can be answered to it.

    It is pending until one of ``ack``, ``nak``, ``term`` is called. They queue the answer at once, and may
    be awaited or not; ``ack_sync`` waits until the server has it on disk.
    """

    # A struct, because one is made per message: it costs a third of what a class with limit does.
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
    def sequence(self) -> int:
        """Its sequence in the stream it was published to: the same whenever it is delivered, and in whatever
        group. In an elastic group ``metadata`` has another one, that of the copy in its work queue."""
        if not self._generation.is_copied:
            return self._message.metadata.stream_seq
        return copied_from(self._message.headers)

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
        return answer_of(self._message)

    def __repr__(self) -> str:
        where = f"partition {self.partition}"
        with contextlib.suppress(ProtocolError, ValueError):  # a copy that does not tell
            where += f", sequence {self.sequence}"
        return f"<GroupMessage {self.subject!r} {where}: {preview(self.payload)}>"

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
            RequestTimeoutError, DisconnectedError: with ``timeout``: no answer came; it may be acknowledged
                or not.
        """
        generation, in_doubt = self._generation, False
        while generation.is_owned:
            try:
                await confirm(self._message, timeout)
            except NoRespondersError as error:
                generation.lease.end()
                raise self._not_owned("its consumer is gone", in_doubt) from error
            except AckUnknownError as error:
                generation.lease.end()
                raise self._not_owned(
                    "the server was restarted", in_doubt or error.asked
                ) from error
            except (RequestTimeoutError, DisconnectedError):
                if timeout is not None:
                    raise
                in_doubt = True
                if is_decided_elsewhere(self._message):
                    generation.lease.end()
            else:
                if await _is_still_ours(generation):
                    generation.confirm(self._message.metadata.stream_seq)
                    return
                raise self._not_owned("the confirmation came late", in_doubt=True)
        raise self._not_owned("it has another owner, or may have", in_doubt)

    def _not_owned(self, why: str, in_doubt: bool) -> NotOwnedError:
        then = (
            "the message may be acknowledged or not"
            if in_doubt
            else "the message was not acknowledged and is delivered again"
        )
        whose = f"partition {self.partition} is not ours any more (generation {self.generation})"
        text = f"{whose}: {why}; {then}"
        return NotConfirmedError(text) if in_doubt else NotOwnedError(text)


async def _is_still_ours(generation: Generation) -> bool:
    """Whether it surely was when the server answered. A consumer that was deleted and made again would take
    our acknowledgement for that of another one's delivery. Who pulls hears of it; who leaves asks."""
    if generation.asks is not None and generation.is_owned:
        try:
            is_ours = await generation.asks()
        except HeadraceError:  # the consumer is gone, or nobody can tell
            is_ours = False
        if not is_ours:
            generation.lease.end()
    return generation.is_owned


def delivered(message: GroupMessage) -> JetStreamMessage:
    """The message as the consumer delivered it."""
    return message._message


def owner_of(message: GroupMessage) -> Generation:
    """The generation that it was delivered to."""
    return message._generation


def is_confirmed(message: GroupMessage) -> bool:
    """Whether another delivery of it, to this instance, is acknowledged, and that is confirmed."""
    confirmed = message._generation.confirmed
    return bool(confirmed) and message._message.metadata.stream_seq in confirmed


def copied_from(headers: Headers) -> int:
    """The sequence in the stream of what a work queue has copied. Raises ProtocolError."""
    origin = headers.get(SOURCE) or ""
    fields = origin.split(" ")
    if len(fields) < 2 or not fields[1].isdigit():
        raise ProtocolError(f"the copy does not say where it comes from: {origin!r}")
    return int(fields[1])
