"""What a pinned instance is delivered, and whether something is missing in it.

A link that is lost takes with it what was on its way. With several messages under way at once the pin
outlives that, and what comes next may have overtaken what was lost, which comes again only when its time is
over. The consumer numbers its deliveries, so a gap shows, and then everything waits until it is closed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ...api.errors import Errors
from ...api.times import parse_time
from ...client import Stream
from ...client.seam import api_of
from ...errors import JetStreamApiError
from ..errors import GroupError
from ..message import copied_from
from .pinned import Renewal

if TYPE_CHECKING:
    from ...api.streams import StreamInfo
    from ...client import JetStream, JetStreamMessage
    from ...client.seam import ManagedConsumption


class Copied:
    """How far a membership knows its work queue to have copied the stream, and what of it is copied again.

    A queue copies in the stream's order: what is stored later and comes from an earlier place was copied
    before, and so was handled, or lies in the queue still. It is known to be the same message by its time in
    the stream: what was stored there when the place was noted is no new message of that sequence.

    Args:
        stream: the one that is copied.
        report: is told, once for each time that this happens.
    """

    def __init__(self, js: JetStream, stream: str, report: Callable[[Exception], None]) -> None:
        self._stream = Stream(api_of(js), stream)
        self._report = report
        self._queue_seq = 0
        self._sequence = 0
        self._noted_ns = 0
        self._is_told = False

    @classmethod
    async def of(
        cls, js: JetStream, stream: str, queue: str, report: Callable[[Exception], None]
    ) -> Copied:
        """What is known now. A queue that is missing is told of by whoever looks for a consumer."""
        copied = cls(js, stream, report)
        try:
            info = (await js.stream(queue)).cached_info
        except JetStreamApiError as error:
            if error.err_code != Errors.STREAM_NOT_FOUND.err_code:
                raise
            return copied
        assert info is not None
        await copied.begin(js, info)
        return copied

    async def begin(self, js: JetStream, queue: StreamInfo) -> None:
        """Note the place at which the queue is."""
        state = queue.state
        if not state.messages:
            self._note(state.last_seq, queue.sources[0].seq if queue.sources else 0)
        else:
            try:
                last = await Stream(api_of(js), queue.config.name).get_message(state.last_seq)
            except JetStreamApiError as error:
                if error.code != 404:
                    raise
                return  # it was handled meanwhile: the next one says it
            self._note(last.sequence, copied_from(last.headers))
        self._noted_ns = parse_time(queue.ts) if queue.ts else 0

    def _note(self, queue_seq: int, sequence: int) -> None:
        self._queue_seq, self._sequence = queue_seq, sequence

    async def new_of(self, messages: list[JetStreamMessage]) -> list[JetStreamMessage]:
        """Those that are not copied again; the others are acknowledged. In the queue's order."""
        if not messages:
            return messages
        last = messages[-1]
        first = messages[0]
        if first.metadata.stream_seq <= self._queue_seq:
            later = (each for each in messages if each.metadata.stream_seq > self._queue_seq)
            first = next(later, first)
            if first.metadata.stream_seq <= self._queue_seq:
                return messages  # it was delivered again, and not copied
        if copied_from(first.headers) <= self._sequence:
            messages = await self._without_known(messages)
        if last.metadata.stream_seq > self._queue_seq:
            reached = copied_from(last.headers)
            if reached > self._sequence:
                self._note(last.metadata.stream_seq, reached)
                self._noted_ns = last.metadata.timestamp_ns
                self._is_told = False
        return messages

    async def _without_known(self, messages: list[JetStreamMessage]) -> list[JetStreamMessage]:
        doubtful = [
            each
            for each in messages
            if each.metadata.stream_seq > self._queue_seq
            and copied_from(each.headers) <= self._sequence
        ]
        known = await self._known(doubtful)
        if not known:  # another stream of that name, or it has lost its end: its messages are new
            self._note(doubtful[-1].metadata.stream_seq, copied_from(doubtful[-1].headers))
            self._noted_ns = doubtful[-1].metadata.timestamp_ns
            return messages
        again = {id(each) for each in doubtful[:known]}
        for each in doubtful[:known]:
            each.ack()
        if not self._is_told:
            self._is_told = True
            self._report(
                GroupError(
                    f"the work queue copies stream {self._stream.name!r} again, which was restored; what it "
                    f"had copied, up to message {self._sequence}, is not handled again"
                )
            )
        return [each for each in messages if id(each) not in again]

    async def _known(self, doubtful: list[JetStreamMessage]) -> int:
        """How many of them, from the first on, lay in the stream when the place was noted: times never go
        back within a stream."""
        if await self._is_known(doubtful[-1]):
            return len(doubtful)
        low, high = 0, len(doubtful) - 1
        while low < high:
            middle = (low + high) // 2
            if await self._is_known(doubtful[middle]):
                low = middle + 1
            else:
                high = middle
        return low

    async def _is_known(self, message: JetStreamMessage) -> bool:
        try:
            origin = await self._stream.get_message(copied_from(message.headers))
        except JetStreamApiError as error:
            if error.code != 404:
                raise
            return False  # nobody can tell any more: better twice than never
        return 0 < origin.timestamp_ns <= self._noted_ns


class Intake:
    """The messages of a consumption, none of which has overtaken one that was lost.

    Args:
        gather: waits until all that is under way has come, calls ``follow``, and returns what of it is to be
            handled in the stream's order, beginning with what it is given. None: it is over.
        may_overtake: whether more than one message may be under way.
        renewal: of the lease.
        copied: of an elastic group: what its work queue has copied.
    """

    def __init__(
        self,
        consumption: ManagedConsumption,
        gather: Callable[[list[JetStreamMessage]], Awaitable[list[JetStreamMessage] | None]],
        *,
        may_overtake: bool,
        renewal: Renewal | None = None,
        copied: Copied | None = None,
    ) -> None:
        self._consumption = consumption
        self._gather = gather
        self._may_overtake = may_overtake
        self._renewal = renewal
        self._copied = copied
        self._next = 0

    def follow(self, delivery: int) -> None:
        """All up to this number of the consumer's came, in whatever order: the next one is to follow."""
        self._next = delivery + 1

    async def next_batch(self, max_messages: int = 0) -> list[JetStreamMessage]:
        """As ``Consumption.next_batch``."""
        while messages := await self._consumption.next_batch(max_messages):
            if not self._may_overtake:
                if messages := await self._new_of(messages):
                    return messages
                continue
            first = messages[0].metadata.consumer_seq
            last = messages[-1].metadata.consumer_seq
            if first == self._next and last - first + 1 == len(messages):
                self.follow(last)
                if messages := await self._new_of(messages):
                    return messages
                continue
            gathered = await self._gather(messages)
            if gathered is None:
                return []
            if gathered:  # otherwise all of it was acknowledged before it came again
                return gathered
        return []

    async def _new_of(self, messages: list[JetStreamMessage]) -> list[JetStreamMessage]:
        return messages if self._copied is None else await self._copied.new_of(messages)

    @property
    def has_more(self) -> bool:
        """Whether something has come that was not taken yet."""
        return self._consumption.buffered > 0

    def is_overdue(self) -> bool:
        """Whether the lease should have been renewed by now, had no handler kept the loop."""
        return self._renewal is not None and self._renewal.is_overdue()

    async def until_renewed(self) -> None:
        """Until that is made up for, or the lease is over."""
        if self._renewal is not None:
            await self._renewal.wait()

    def send_answers(self) -> None:
        """Send what was answered so far, without waiting for the end of the turn."""
        self._consumption.write_answers()

    def abandon(self) -> None:
        """Take no more messages."""
        self._consumption.abandon()
