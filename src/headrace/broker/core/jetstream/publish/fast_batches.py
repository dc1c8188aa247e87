"""Fast batches: messages that are stored as they come, and acknowledged many at a time.

The reply subject of each message says to which batch it belongs and which one it is (``FastReply``). What
would be an ordinary publish is stored as one; the acknowledgement, one for many, leaves when the flush that
carries them has completed. A message that is missing, or refused, ends a batch, unless its publisher does
not mind gaps: then the last answer says how far it came, and all up to there is on disk. An idle batch is
forgotten, and so are all of them when the broker ends: a publisher that goes
on with one is told that it is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from .....api.envelope import encode_pub_error
from .....api.errors import Errors, ErrorSpec
from .....errors import StoreError
from .....limits import (
    FAST_BATCH_FLOW_MAX,
    FAST_BATCH_IDLE_S,
    FAST_BATCHES_MAX,
    FAST_BATCHES_PER_STREAM_MAX,
)
from .....wire.frames import Frame
from ...ports import Bus
from ...server_headers import without_requester
from ...timers import Timer
from ..config.options import Refused
from ..config.sizes import read_number
from ..context import Context
from ..headers import (
    COMMIT,
    END,
    FAST,
    PING,
    START,
    FastReply,
    header_value,
    read_fast_reply,
    without_header,
)
from ..ports import PublishTarget
from ..tick.flush_barrier import store_refusal
from .admission import Checks

_APPEND: Final = b".%d.1" + FAST
_LEVEL: Final = b"Nats-Required-Api-Level"
_NO_HEADERS: Final = b"NATS/1.0\r\n\r\n"
_ID_BYTES_MAX: Final = 64
_NS: Final = 1_000_000_000


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


_Carried = tuple[FastBatch, int, int, bytes]
"""A batch in a flush: the last place and stream sequence it carries, and where to speak of them."""


class FastBatches:
    """The open fast batches of one stream."""

    def __init__(self, context: Context, stream: PublishTarget, checks: Checks) -> None:
        self._context = context
        self._stream = stream
        self._checks = checks
        self._open: dict[bytes, FastBatch] = {}
        self._expected: dict[bytes, FastBatch] = {}  # by the reply of the message to come
        self._staged: dict[FastBatch, None] = {}  # since the last flush began

    def close(self) -> None:
        """Forget every open batch, untold: the stream goes, or takes no batches any more."""
        for batch in list(self._open.values()):
            self._drop(batch)

    def ingest(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        """One message of a batch, or what steers one."""
        batch = self._expected.pop(reply, None)
        if batch is not None and not headers and self._stream.staging.is_plain:
            # The usual: the next message, of which there is nothing to be checked.
            batch.received += 1
            batch.reply = reply
            self._expect(batch)
            try:
                batch.stream_seq = self._stream.staging.stage(subject, b"", payload)
            except StoreError as error:
                asked = FastReply(b"", 0, batch.gap_ok, batch.received, 1)
                self._not_stored(batch, asked, reply, store_refusal(error))
                return
            if not batch.staged:
                self._stage(batch)
            return
        try:
            self._add(subject, reply, headers, payload)
        except Refused as refusal:
            if not self._stream.config.no_ack:
                self._say(reply, encode_pub_error(self._stream.name, refusal.error))

    def ingest_many(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        """Stage messages without headers of a plain stream that are the next ones of a batch, in order.

        Returns those that are left for ``ingest``.
        """
        batch = self._expected.get(frames[0][2])
        if batch is None:
            return frames
        replies = b" ".join([frame[2] for frame in frames])
        if replies + b" " != batch.next_replies(len(frames)):
            return frames
        subjects, payloads = [frame[1] for frame in frames], [frame[4] for frame in frames]
        staged = self._stream.staging.stage_many(subjects, payloads)
        if staged:
            del self._expected[batch.expected]
            batch.received += staged
            batch.reply = frames[staged - 1][2]
            batch.stream_seq = self._stream.store.last_seq
            self._expect(batch)
            if not batch.staged:
                self._stage(batch)
        return frames[staged:]

    def _say(self, reply: bytes, body: bytes) -> None:
        self._context.bus.publish(reply, b"", b"", body)

    def _expect(self, batch: FastBatch) -> None:
        batch.expected = batch.next_reply()
        self._expected[batch.expected] = batch

    def _stage(self, batch: FastBatch) -> None:
        """The batch has something for the next flush to carry."""
        batch.staged = True
        if not self._staged:
            self._context.barrier.want(self)
        self._staged[batch] = None

    # -- a message that is not the usual

    def _add(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        """Raises Refused for what is not of a batch."""
        asked = self._read(reply, headers, payload)
        batch = self._open.get(asked.batch_id) or self._begin(asked, reply)
        self._expected.pop(batch.expected, None)
        headers = without_requester(headers)
        if _LEVEL in headers:
            headers = self._without_level(batch, headers)
        batch.touched_ns = self._context.clock.monotonic_ns()
        batch.reply = reply
        if asked.operation == PING:
            self._ping(batch, asked.sequence, reply)
        elif not batch.ending and self._is_next(batch, asked, reply):
            if asked.operation == END:
                self._end(batch, reply)
            else:
                self._append(batch, asked, subject, reply, headers, payload)
        if not (batch.ending or batch.closed):
            self._expect(batch)

    def _read(self, reply: bytes, headers: bytes, payload: bytes) -> FastReply:
        self._checks.check_size(headers, payload)
        if not self._stream.config.allow_batched:
            raise Refused(Errors.FAST_BATCH_DISABLED)
        asked = read_fast_reply(reply)
        if asked is None:
            raise Refused(Errors.FAST_BATCH_INVALID_PATTERN)
        if len(asked.batch_id) > _ID_BYTES_MAX:
            raise Refused(Errors.FAST_BATCH_INVALID_ID)
        return asked

    def _begin(self, asked: FastReply, reply: bytes) -> FastBatch:
        if asked.sequence != 1 or asked.operation == PING:
            raise Refused(Errors.FAST_BATCH_UNKNOWN)
        room, limits = self._context.batch_room, self._context.options.assets
        if len(self._open) >= (
            limits.batches_per_stream or FAST_BATCHES_PER_STREAM_MAX
        ) or room.fast >= (limits.batches or FAST_BATCHES_MAX):
            raise Refused(Errors.FAST_BATCH_TOO_MANY)
        room.fast += 1
        now_ns = self._context.clock.monotonic_ns()
        batch = FastBatch(asked, reply, now_ns, len(self._open) + 1)
        self._open[batch.batch_id] = batch
        self._arm(batch, now_ns + self._idle_ns())
        return batch

    def _without_level(self, batch: FastBatch, headers: bytes) -> bytes:
        wanted = header_value(headers, _LEVEL)
        if not wanted:
            return headers
        level = read_number(wanted)
        if level is None or level > self._context.options.api_level:
            self._drop(batch)
            raise Refused(Errors.REQUIRED_API_LEVEL)
        left = without_header(headers, _LEVEL)
        return b"" if left == _NO_HEADERS else left

    def _is_next(self, batch: FastBatch, asked: FastReply, reply: bytes) -> bool:
        """Whether the message has its place in the batch; what is missing before it is told."""
        place = asked.sequence
        if place != batch.received + 1:
            self._say(reply, _gap(batch.received + 1, place))
            if not batch.gap_ok or place <= batch.received:
                self._end(batch, reply)
                return False
        batch.received = place - 1 if asked.operation == END else place
        return True

    def _append(
        self,
        batch: FastBatch,
        asked: FastReply,
        subject: bytes,
        reply: bytes,
        headers: bytes,
        payload: bytes,
    ) -> None:
        if asked.operation == START and not self._stream.config.no_ack:
            self._say(reply, _ack(batch))
        try:
            sequence, arrival = self._stream.publish(subject, headers, payload)
        except Refused as refusal:
            self._not_stored(batch, asked, reply, refusal.error)
            return
        except StoreError as error:
            self._not_stored(batch, asked, reply, store_refusal(error))
            return
        if not arrival.duplicate_of:
            batch.stream_seq = sequence
        elif asked.operation == COMMIT and batch.received == 1 and not batch.gap_ok:
            self._answer_duplicate(batch, sequence, reply)
            return
        self._stage(batch)
        if asked.operation == COMMIT:
            self._end(batch, reply)

    def _answer_duplicate(self, batch: FastBatch, sequence: int, reply: bytes) -> None:
        """A batch of one message that is stored already is answered as an ordinary publish."""
        self._drop(batch)
        extra = b',"duplicate":true' + _count(batch.batch_id, 1)
        self._stream.confirm(sequence, reply, extra)

    def _not_stored(
        self, batch: FastBatch, asked: FastReply, reply: bytes, error: ErrorSpec
    ) -> None:
        """A message has its place in the batch, and was refused all the same."""
        if batch.received == 1 and not batch.gap_ok:
            self._drop(batch)
            self._say(reply, encode_pub_error(self._stream.name, error))
            return
        self._say(reply, _refusal(asked.sequence, error))
        if batch.gap_ok and asked.operation != COMMIT:
            return
        batch.received -= 1
        self._end(batch, reply)

    def _ping(self, batch: FastBatch, place: int, reply: bytes) -> None:
        """The publisher has sent messages up to ``place``, and asks how far they came."""
        if place > batch.received:
            self._say(reply, _gap(batch.received + 1, place + 1))
            if not batch.gap_ok:
                self._end(batch, reply)
                if batch.closed:
                    return
            elif not batch.ending:
                batch.received = place
                if batch.is_durable:
                    batch.note_durable(place, batch.stream_seq)
                    batch.is_due(len(self._open))
        self._say(reply, _ack(batch))

    # -- the disk

    def begin_flush(self) -> Callable[[Bus, Exception | None], None]:
        """A flush begins: returns what its outcome releases; see ``tick.flush_barrier.Awaiting``."""
        now_ns = self._context.clock.monotonic_ns()
        carried: list[_Carried] = []
        for batch in self._staged:
            batch.touched_ns = now_ns
            batch.staged, batch.flying = False, True
            carried.append((batch, batch.received, batch.stream_seq, batch.reply))
        self._staged = {}
        return partial(self._release, carried)

    def _release(self, carried: list[_Carried], bus: Bus, error: Exception | None) -> None:
        for batch, received, stream_seq, reply in carried:
            batch.flying = False
            if batch.closed:
                continue
            if error is not None:
                self._lose(batch, store_refusal(error))
                continue
            batch.note_durable(received, stream_seq)
            if batch.ending:
                self._finish(batch)
            elif batch.is_due(len(self._open)):
                self._say(reply, _ack(batch))

    def _end(self, batch: FastBatch, reply: bytes) -> None:
        """Take no more; answer once all of the batch is on disk."""
        batch.ending = True
        batch.reply = reply
        self._expected.pop(batch.expected, None)
        self._finish(batch)

    def _finish(self, batch: FastBatch) -> None:
        if batch.is_durable:
            self._drop(batch)
            self._say(batch.reply, self._total(batch, batch.received, batch.stream_seq))

    def _lose(self, batch: FastBatch, error: ErrorSpec) -> None:
        """What was not on disk yet never will be, and the batch ends before it."""
        self._drop(batch)
        self._say(batch.reply, _refusal(batch.durable + 1, error))
        self._say(batch.reply, self._total(batch, batch.durable, batch.durable_seq))

    def _total(self, batch: FastBatch, count: int, sequence: int) -> bytes:
        name = msgspec.json.encode(self._stream.name)
        return b'{"stream":%b,"seq":%d%b}' % (name, sequence, _count(batch.batch_id, count))

    # -- what is forgotten

    def _drop(self, batch: FastBatch) -> None:
        batch.closed = True
        del self._open[batch.batch_id]
        self._expected.pop(batch.expected, None)
        self._staged.pop(batch, None)
        self._context.batch_room.fast -= 1
        if batch.timer is not None:
            batch.timer.cancel()

    def _idle_ns(self) -> int:
        return round((self._context.options.assets.batch_idle or FAST_BATCH_IDLE_S) * _NS)

    def _arm(self, batch: FastBatch, deadline_ns: int) -> None:
        def on_idle() -> None:
            now_ns = self._context.clock.monotonic_ns()
            if not batch.is_durable:
                batch.touched_ns = now_ns  # the disk is slow, not the publisher
            due_ns = batch.touched_ns + self._idle_ns()
            if due_ns > now_ns:
                self._arm(batch, due_ns)
            else:
                self._drop(batch)

        batch.timer = self._context.timers.call_at(deadline_ns, on_idle)


def _ack(batch: FastBatch) -> bytes:
    return b'{"type":"ack","seq":%d,"msgs":%d}' % (batch.acked, batch.flow)


def _gap(expected: int, came: int) -> bytes:
    return b'{"type":"gap","last_seq":%d,"seq":%d}' % (expected, came)


def _refusal(place: int, error: ErrorSpec) -> bytes:
    return msgspec.json.encode({"type": "err", "seq": place, "error": error.to_wire()})


def _count(batch_id: bytes, count: int) -> bytes:
    shown = msgspec.json.encode(batch_id.decode(errors="replace"))
    return b',"batch":%b,"count":%d' % (shown, count)
