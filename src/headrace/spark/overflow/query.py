"""The driver side of a query that takes a surplus; Spark calls it as it calls ``query.Query``.

Spark asks for the next batch when it has committed the one before. Then that one's messages are acknowledged,
and the server is asked for more. What was pulled and is in no batch that Spark wrote down is never
acknowledged: the server hands it out again when ``ack_wait`` is over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from ...api.consumers import ConsumerInfo
from ...identity import Sameness
from ..links.control import Calls, Control
from ..links.link import Link
from ..offsets import StreamHead, refusal, reset_of
from ..options import SourceOptions
from ..options.group import OverflowOptions
from ..slices import Slice
from .consumer import Keeper, Pull, acknowledge, the_consumer
from .offsets import OverflowOffset, runs_of, share_out

_LOG: Final = logging.getLogger("headrace.spark")

BATCH_MAX: Final = 10_000  # messages, unless the query says otherwise
KEPT_PER_ACK_WAIT: Final = 3


class Keeps(Protocol):
    """Holds messages back from others while a batch runs: ``keeping.Keeper``."""

    def hold(self, subjects: list[str]) -> None: ...
    def release(self) -> None: ...
    def close(self) -> None: ...


class OverflowQuery:
    """Offsets and plans of one streaming query, as Spark keeps them.

    Args:
        options: of the query; they name a consumer.
        keeper: makes what holds messages back, from how to connect, an interval and a name.
    """

    def __init__(
        self,
        options: SourceOptions,
        keeper: Callable[[Callable[[], Link], float, str], Keeps] = Keeper,
    ) -> None:
        assert options.overflow is not None
        self._options = options
        self._overflow: OverflowOptions = options.overflow
        self._stream = options.stream
        self._connect = lambda: Link.open(options.connection)
        self._call = Calls(self._stream, self._connect, options.reconnect_timeout_s)
        self._make_keeper = keeper
        self._keeper: Keeps | None = None
        self._info: ConsumerInfo | None = None
        self._pull = Pull(self._stream, self._overflow, options.poll_timeout_s)
        self._acknowledged = -1  # the number of the last batch of which all is acknowledged
        self._next: OverflowOffset | None = None  # the batch that Spark was told of last
        self._left: int | None = None  # how many messages a bounded run may still take

    @property
    def latest(self) -> dict[str, Any] | None:
        """None: how much there will be is the workers' affair."""
        return None

    def initial_offset(self) -> dict[str, Any]:
        """Where a new query begins: with no message.

        Raises:
            ConfigurationError: there is no such consumer, or it is none of which a surplus can be taken.
        """
        self._call(self._meet)
        return OverflowOffset(self._call(lambda control: control.head()[0].epoch)).to_dict()

    def freeze_target(self) -> None:
        """Take no more from now on than is there (Trigger.AvailableNow)."""
        info = self._call(self._meet)
        self._left = info.num_pending + info.num_ack_pending

    def latest_offset(self, start: dict[str, Any], *, limited: bool = True) -> dict[str, Any]:
        """The end of the next batch after ``start``; ``start`` itself if the workers get on alone.

        Args:
            start: where the last committed batch ended; its messages are acknowledged.
            limited: is ignored: a batch without a limit would leave nothing for the workers.

        Raises:
            DataLossError: the stream was made again.
            ConfigurationError: the consumer is gone, or another one.
        """
        committed = OverflowOffset.from_dict(start)
        if self._next is not None and self._next.number == committed.number + 1:
            return self._next.to_dict()
        self._call(lambda control: self._finish(control, committed))
        taken = self._call(lambda control: self._take(control, committed))
        if taken is None:
            return start
        self._hold(taken)
        self._next = taken
        return taken.to_dict()

    def plan(self, start: dict[str, Any], end: dict[str, Any]) -> list[Slice]:
        """The tasks of the batch that ends at ``end``."""
        batch = OverflowOffset.from_dict(end)
        head = self._call(lambda control: self._head_of(control, batch))
        if head is None or not batch.runs:
            return []
        self._hold(batch)
        options = self._options
        shares = share_out(
            batch.runs,
            max_tasks=options.max_tasks,
            min_tasks=options.min_tasks,
            min_messages=options.min_messages_per_task,
        )
        return [
            Slice(
                share[0][0] - 1,
                share[-1][1],
                epoch=head.epoch,
                stream=self._stream,
                runs=share,
                end=(batch.last.seq, batch.stored_ns),
            )
            for share in shares
        ]

    def hang_up(self) -> None:
        """Close the connection, wherever the main thread is; what is not committed is handed out again."""
        self._call.close()

    def close(self) -> None:
        """Close the connections."""
        if self._keeper is not None:
            self._keeper.close()
        self._call.close()

    # The steps

    def _meet(self, control: Control) -> ConsumerInfo:
        """The consumer as it is, after a check."""
        info = the_consumer(control, self._overflow, self._options.pace.max_rows)
        self._info = info
        return info

    def _finish(self, control: Control, committed: OverflowOffset) -> None:
        """Acknowledge what is committed; of an earlier run, too, which may not have come to it."""
        if self._acknowledged >= committed.number:
            return
        info = self._meet(control)
        if self._head_of(control, committed) is not None:
            acknowledge(control, committed, info)
        self._acknowledged = committed.number
        if self._keeper is not None:
            self._keeper.release()

    def _head_of(self, control: Control, batch: OverflowOffset) -> StreamHead | None:
        """The stream that has the batch, or may have had it; None if another one has its place: then the
        consumer still hands out what nobody has acknowledged. Raises DataLossError: the query is to fail.
        """
        head = control.head()[0]
        same = control.sameness(batch.last, head)
        reason = reset_of(batch.last, head, self._stream, same)
        if not reason:
            return head
        if self._options.on_stream_reset == "fail":
            raise refusal(reason, batch.last, same)
        _LOG.warning("%s; going on with what its consumer hands out", reason)
        return head if same is Sameness.GONE else None

    def _take(self, control: Control, committed: OverflowOffset) -> OverflowOffset | None:
        """The next batch; None if the server hands out nothing."""
        info = self._info or self._meet(control)
        most = self._most(info)
        if most:
            self._pull.take(control, info.config, most)
        deliveries, prefix = self._pull.found()
        if not deliveries:
            return None
        head = control.head()[0]
        stored_ns = control.stored_ns(max(deliveries), head)
        self._pull.forget()
        if self._left is not None:
            self._left -= len(deliveries)
        number, runs = committed.number + 1, runs_of(deliveries)
        return OverflowOffset(head.epoch, number, prefix, runs, stored_ns)

    def _most(self, info: ConsumerInfo) -> int:
        """How many messages the next batch has at most. Workers need some of what may be under way."""
        under_way = info.config.max_ack_pending
        default = min(BATCH_MAX, max(1, under_way // 2)) if under_way > 0 else BATCH_MAX
        most = self._options.pace.max_rows or default
        return most if self._left is None else max(0, min(most, self._left))

    def _hold(self, batch: OverflowOffset) -> None:
        if self._keeper is None:
            config = (self._info or self._call(self._meet)).config
            interval_s = min(config.ack_wait, *config.backoff, 3600.0) / KEPT_PER_ACK_WAIT
            what = f"consumer {self._overflow.consumer!r} of stream {self._stream!r}"
            self._keeper = self._make_keeper(self._connect, interval_s, what)
        self._keeper.hold([subject for _, subject in batch.ack_subjects()])
