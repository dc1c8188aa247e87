"""One fast batch: how far it has come, and when its publisher hears of it."""

from __future__ import annotations

from typing import Final

from .....limits import FAST_BATCH_FLOW_MAX
from ...ports.bus import Timer
from ..headers.fast_reply import FAST, FastReply

_APPEND: Final = b".%d.1" + FAST


class FastBatch:
    """Places are numbers of messages in the batch, from 1; 0 is before the first.

    Attributes:
        received: the place of the message received last, whether it was stored or not.
        durable: everything up to this place that was stored is on disk.
        acked: the place the last acknowledgement spoke of.
        stream_seq: the stream sequence of the message stored last; ``durable_seq`` of the last on disk.
        flow: an acknowledgement is sent every so many messages.
        staged: whether something came since the last flush began, ``flying`` whether that flush is
            under way: when neither, all that was stored is on disk.
        ending: no more is taken; the answer to the whole batch goes out as soon as all is on disk.
        expected: the reply of the message that would come next, as it is usually written.
        reply: where to speak to the publisher: the reply subject that came last.
        touched_ns: when something came last.
    """

    def __init__(self, first: FastReply, reply: bytes, now_ns: int, sharing: int) -> None:
        """``sharing`` batches, this one included, are open on the stream."""
        self.batch_id = first.batch_id
        self.gap_ok = first.gap_ok
        self.flow_max = first.flow
        # One that is alone begins as fast as wanted; another has to work up to it.
        self.flow = min(first.flow, FAST_BATCH_FLOW_MAX) if sharing == 1 else 1
        self.received = self.durable = self.acked = 0
        self.stream_seq = self.durable_seq = 0
        self.staged = self.flying = self.ending = self.closed = False
        self.expected = b""
        self.reply = reply
        self.touched_ns = now_ns
        self.timer: Timer | None = None
        self._expected = reply.rsplit(b".", 3)[0].replace(b"%", b"%%") + _APPEND

    @property
    def is_durable(self) -> bool:
        """Whether all that was stored is on disk."""
        return not self.staged and not self.flying

    def next_reply(self) -> bytes:
        """The reply of the message that would come next, if its publisher goes on as it began."""
        return self._expected % (self.received + 1)

    def next_replies(self, count: int) -> bytes:
        """The replies of so many messages, with a blank behind each."""
        first = self.received + 1
        return (self._expected + b" ") * count % tuple(range(first, first + count))

    def note_durable(self, received: int, stream_seq: int) -> None:
        """What was stored up to this place is on disk."""
        self.durable, self.durable_seq = received, stream_seq

    def is_due(self, sharing: int) -> bool:
        """Whether to acknowledge now; if so, ``acked`` is the place to speak of, and ``flow`` is moved
        towards this batch's share."""
        steps = (self.durable - self.acked) // self.flow
        if steps <= 0:
            return False
        self.acked += steps * self.flow  # one answer for all of them
        share = max(1, min(FAST_BATCH_FLOW_MAX // sharing, self.flow_max))
        if self.flow < share:
            self.flow = min(2 * self.flow, share)
        else:
            self.flow = max(self.flow // 2, share)
        return True
