"""The driver side of one stream of a streaming query: it lives as long as the query runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from ...api import base
from ...api.acks import parse_ack_subject
from ...api.consumers import PullRequest
from ...api.streams import StreamConfig
from ...errors import HeadraceError
from ...identity import Sameness
from ...wire.headers import status_of
from ..links.control import Calls, Control, StreamMissingError, settled_head
from ..links.link import Link
from ..links.outages import ServerPatience
from ..loss import compacts, may_be_loss, stored_after
from ..lost_messages import Loss, tell
from ..offsets import Offset, StreamHead, check_range, refusal, reset_of
from ..options import CONTINUE, LATEST, SourceOptions
from ..positions import locate
from ..slices import Slice, counted_subjects, end_of_batch
from .plans import counter, plan_tasks
from .progress import Progress


class Tail:
    """Detects the first message after a sequence: an ephemeral consumer, headers only, one pull."""

    def __init__(self, control: Control, seq: int, inactive_s: float) -> None:
        self._control = control
        self._link = control.link
        self._seq = seq
        info = control.create_ephemeral(
            deliver_policy="by_start_sequence",
            opt_start_seq=seq + 1,
            headers_only=True,
            inactive_threshold=inactive_s,
            description="headrace: a Spark query waiting for news",
        )
        self._name = info.name
        self._subject = control.link.api("CONSUMER", "MSG", "NEXT", control.stream, info.name)
        self._inbox, self._sid = control.link.subscribe()

    def stands_at(self, control: Control, seq: int) -> bool:
        """Whether this consumer waits for the first message after ``seq``."""
        return self._link is control.link and self._seq == seq

    def wait(self, timeout_s: float) -> bool:
        """Returns True when a message is available; False after ``timeout_s`` seconds."""
        self._link.publish(
            self._subject, base.encode(PullRequest(batch=1, expires=timeout_s)), self._inbox
        )
        deadline = time.monotonic() + timeout_s + 1.0
        while (left := deadline - time.monotonic()) > 0:
            frames = self._link.poll(left)
            for frame in frames:
                if frame[3]:  # this message was consumed: the next wait begins behind it
                    self._seq = parse_ack_subject(frame[3].decode()).stream_seq
                    return True
            if frames:  # a status: the pull has ended, without a message, or the consumer is gone
                if status_of(frames[-1][4]) != _EXPIRED:
                    self._seq = -1
                return False
        return False

    def close(self) -> None:
        """Remove the consumer, if the connection that created it is still there."""
        if not self._link.closed:
            self._link.unsubscribe(self._sid)
            self._control.delete_consumer(self._name)


_LOG: Final = logging.getLogger("headrace.spark")

_EXPIRED: Final = 408
POLL_WITHOUT_EVENT_S = 0.05
TAIL_LEFT_S = 5.0  # how long the consumer of a wait outlives a query that was stopped


class Look(NamedTuple):
    """A stream as it is after ``start``: it ends at ``last``, or the query wants no more.

    ``anew``: it took the place of the one the query read before, and ``start`` is where its batch begins.
    """

    start: Offset
    last: int
    head: StreamHead
    config: StreamConfig
    since_ns: int
    anew: bool = False

    @property
    def ahead(self) -> int:
        """How many sequences there are to read."""
        return max(0, self.last - self.start.seq)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return self.ahead == 0 and not self.anew


class StreamLag(NamedTuple):
    """How far a query is behind one stream: messages, and seconds since the oldest of them was stored.

    ``lost``: messages that were removed before they were read, since this process began.
    """

    stream: str
    committed: int
    last: int
    messages: int
    seconds: float
    lost: int = 0


class Driver:
    """Offsets and plans of one stream."""

    def __init__(
        self,
        options: SourceOptions,
        connect: Callable[[], Link] | None = None,
        patience: Callable[[float, str], ServerPatience] = ServerPatience,
    ) -> None:
        self._options = options
        self._patience = patience
        self._call = Calls(
            options.stream,
            connect or (lambda: Link.open(options.connection)),
            options.reconnect_timeout_s,
            patience,
            self._is_awaited,
        )
        self._known = (0, 0)  # everything after this sequence was stored at or after this time (ns)
        self._initial: Offset | None = None
        self._target: Offset | None = None
        self.latest: Offset | None = None  # the stream's end as last seen, for the progress report
        self._tail: Tail | None = None
        self._progress = (
            Progress(options.durable, owner=options.use.run) if options.durable else None
        )
        self._progress_started = False
        self._lost: set[Loss] = set()
        self._said_of = ""  # the creation of the stream that was said to be the same one made again
        self._ended: Offset | None = (
            None  # the end of the newest batch, which was found in the stream
        )

    def initial_offset(self) -> Offset:
        """Where a new query begins; the same answer on every call."""
        if self._initial is None:
            self._initial = self._call(self._find_start)
        return self._initial

    def freeze_target(self) -> None:
        """Offer nothing beyond the stream's present end from now on (Trigger.AvailableNow)."""
        head, _ = self._call(lambda control: control.head())
        self._target = Offset(head.last_seq, head.epoch)

    def look(self, start: Offset) -> Look:
        """What the stream has after ``start``, which is committed: progress is shown there.

        Raises:
            DataLossError: the stream is not the one ``start`` belongs to, or that cannot be told, and
                ``onStreamReset`` is fail.
        """
        head, config = self._head_for(start)
        same = self._sameness(start, head)
        if self._is_reset(start, head, same):
            if same is Sameness.OTHER:
                self._tell(Loss(self._options.stream, start.seq + 1, 0, 0))
            return self._begin_anew(start, head, config, same)
        if self.latest is not None and self.latest.epoch != head.epoch:
            self._forget()
        self._show_progress(start, config)
        since_ns = self._since(start, head)
        last = head.last_seq if self._target is None else min(head.last_seq, self._target.seq)
        last = max(last, start.seq)
        stored_ns = head.last_ns if last == head.last_seq else 0
        self.latest = Offset(last, head.epoch, stored_ns=stored_ns)
        return Look(start, last, head, config, since_ns)

    def wait(self, look: Look, timeout_s: float) -> bool:
        """Wait for a message after this look; whether there may be one. False after ``timeout_s``."""
        return self._call(lambda control: self._wait(control, look.config, look.last, timeout_s))

    def count(self, look: Look) -> int:
        """How many messages there are of the subjects that are read; markers of sinks are none."""
        subjects = counted_subjects(self._options, look.config)

        def ask(control: Control) -> int:
            return counter(control, look.head, look.config, subjects)(look.start.seq, look.last)

        return self._call(ask)

    def lag(self, look: Look) -> StreamLag:
        """How far the look's start is behind the stream, whatever the query still wants of it."""
        start, head = look.start, look.head
        messages = self.count(look._replace(last=max(head.last_seq, start.seq)))
        seconds = 0.0
        if messages:
            subjects = self._options.subjects
            pattern = subjects[0] if len(subjects) == 1 else ">"
            stored_ns = self._call(lambda control: control.next_time(start.seq + 1, pattern))
            now_ns = head.now_ns or time.time_ns()
            seconds = max(0.0, (now_ns - stored_ns) / 1e9) if stored_ns else 0.0
        lost = sum(each.messages for each in self._lost)
        return StreamLag(self._options.stream, start.seq, head.last_seq, messages, seconds, lost)

    def publish(self, subject: str, payload: bytes) -> None:
        """Publish a message, once, without waiting for anybody to store it."""
        self._call(lambda control: control.link.publish(subject, payload))

    def end(self, look: Look, max_rows: int | None) -> Offset:
        """The end of a batch with at most so many messages; the start itself if there are none."""
        start, head = look.start, look.head
        end = self._end(start.seq, look.last, head, look.config, max_rows)
        if end == start.seq and not look.anew:
            return start  # the same text, or Spark would make an empty batch of it
        begin = None
        since_ns = head.now_ns if end == head.last_seq else look.since_ns
        if look.anew:
            begin, since_ns = start.seq, stored_after(head, end)
        stored_ns = self._call(lambda control: control.stored_ns(end, head))
        since_ns = since_ns if _needs_time(look.config) else 0
        self._ended = Offset(end, head.epoch, since_ns, begin, stored_ns)
        return self._ended

    def plan(
        self,
        start: Offset,
        end: Offset,
        *,
        max_tasks: int | None = None,
        min_tasks: int | None = None,
    ) -> list[Slice]:
        """The tasks of the batch ``(start, end]``, so many if other streams leave that many."""
        head, config = self._head_for(end)
        options = self._options
        is_known = end == self._ended and end.epoch == head.epoch and end.seq <= head.last_seq
        same = Sameness.SAME if is_known else self._sameness(end, head)
        if end.begin is not None:
            start = end._replace(seq=end.begin)
        if self._is_reset(end, head, same):
            if options.on_stream_reset != CONTINUE:
                return []  # the batch is gone with its stream; the next one begins the new stream
            # What is left of the batch: the query goes on behind it.
            begin = min(start.seq, self._place(start, head, self._sameness(start, head)))
            end = end._replace(seq=min(end.seq, self._place(end, head, same)), stored_ns=0)
            start = start._replace(seq=min(begin, end.seq))
        since_ns = self._since(start, head)
        is_loss = may_be_loss(config, head, since_ns)
        fail = options.fail_on_data_loss and is_loss
        lo, hi = check_range(start, end, head, options.stream, fail_on_loss=fail)
        if is_loss and start.seq > end.seq:
            self._tell(Loss(options.stream, 0, end.seq, 0))
        elif is_loss and lo > start.seq:
            self._tell(Loss(options.stream, start.seq + 1, lo, lo - start.seq))
        self._say_gaps(lo, hi, head, config)
        return self._call(
            lambda control: plan_tasks(
                options,
                lo,
                hi,
                since_ns,
                control,
                head,
                config,
                max_tasks=max_tasks,
                min_tasks=min_tasks,
                end=(end.seq, end.stored_ns),
            )
        )

    def _tell(self, loss: Loss) -> None:
        """Say, once, that messages were lost."""
        if loss not in self._lost:
            self._lost.add(loss)
            tell(loss, self._options.use.losses)

    def _say_gaps(self, lo: int, hi: int, head: StreamHead, config: StreamConfig) -> None:
        """Say that messages were deleted before they were read, by sequence or by a purge of a subject.

        That is somebody's wish, so it is no loss; but only where a stream's own rules remove messages from
        its middle does it go without saying.
        """
        expected = compacts(config) or config.allow_msg_ttl or config.retention != "limits"
        if expected or hi <= lo or head.messages == head.last_seq - head.first_seq + 1:
            return
        missing = hi - lo - self._call(lambda control: control.count(lo, hi))
        if missing > 0:
            _LOG.warning(
                "stream %r: %d of the sequences %d to %d have no message: they were deleted or purged",
                self._options.stream,
                missing,
                lo + 1,
                hi,
            )

    def close(self) -> None:
        """Close the connection; this also removes the ephemeral consumer of the wait."""
        if self._tail is not None:
            try:
                self._tail.close()
            except HeadraceError:
                pass  # the server removes it by itself
            self._tail = None
        self._call.close()

    def hang_up(self) -> None:
        """Close the connection without a word, from a signal handler."""
        self._call.close()

    def _find_start(self, control: Control) -> Offset:
        head, config = control.head()
        wanted = self._options.starting
        seq = locate(control, wanted, head, as_end=False)
        if self._progress is not None:
            self._progress.subjects = counted_subjects(self._options, config)
            shown = self._progress.start(control, config, seq)
            self._progress_started = True
            if wanted.kind == "latest":
                seq = min(shown, head.last_seq)
            else:
                self._progress.show(control, seq)
        since_ns = stored_after(head, seq) if _needs_time(config) else 0
        return Offset(seq, head.epoch, since_ns, stored_ns=control.stored_ns(seq, head))

    def _head_for(self, offset: Offset) -> tuple[StreamHead, StreamConfig]:
        patience = self._patience(0.0, "")
        return self._call(lambda control: settled_head(control, offset, patience))

    def _sameness(self, offset: Offset, head: StreamHead) -> Sameness:
        return self._call(lambda control: control.sameness(offset, head))

    def _place(self, offset: Offset, head: StreamHead, same: Sameness) -> int:
        if same is Sameness.OTHER and not offset.stored_ns:
            raise refusal(reset_of(offset, head, self._options.stream, same), offset, same)
        return self._call(lambda control: control.place(offset, head, same))

    def _is_reset(self, offset: Offset, head: StreamHead, same: Sameness) -> bool:
        """Whether this offset belongs to another stream, or nobody knows, and the query goes on with this
        one. Raises DataLossError: it does not.
        """
        stream, rule = self._options.stream, self._options.on_stream_reset
        reason = reset_of(offset, head, stream, same)
        if not reason:
            if offset.seq and offset.epoch not in ("", head.epoch, self._said_of):
                self._said_of = offset.epoch
                _LOG.warning(
                    "stream %r was made again at %s and is the same one: it has message %d, which the query "
                    "read last; the query goes on after it",
                    stream,
                    head.epoch,
                    offset.seq,
                )
            return False
        if rule == "fail":
            raise refusal(reason, offset, same)
        _LOG.warning("%s; going on as onStreamReset=%s says", reason, rule)
        return True

    def _begin_anew(
        self, start: Offset, head: StreamHead, config: StreamConfig, same: Sameness
    ) -> Look:
        """The first look at a stream that took the place of the one read before."""
        rule = self._options.on_stream_reset
        begin = head.last_seq if rule == LATEST else max(0, head.first_seq - 1)
        if rule == CONTINUE:
            begin = self._place(start, head, same)
        self._forget()
        if self._target is not None:
            self._target = Offset(head.last_seq, head.epoch)
        self._show_progress(Offset(begin, head.epoch), config)
        self.latest = Offset(head.last_seq, head.epoch)
        return Look(Offset(begin, head.epoch), head.last_seq, head, config, 0, anew=True)

    def _forget(self) -> None:
        """Forget what was known of a stream that is there no more, and what was made for it."""
        self._known, self._tail, self._progress_started = (0, 0), None, False

    def _end(
        self, seq: int, last: int, head: StreamHead, config: StreamConfig, max_rows: int | None
    ) -> int:
        """Where the batch after ``seq`` ends; ``max_rows`` are messages of the subjects that are read."""
        if max_rows is None or head.messages <= max_rows:
            return max(seq, last)

        def search(control: Control) -> int:
            lo = max(seq, min(head.first_seq - 1, last))
            if config.retention == "workqueue" and lo < last:
                first = control.next_stored(lo + 1)
                lo = min(first - 1, last) if first else last
            count = counter(control, head, config, self._options.subjects)
            return end_of_batch(lo, last, max_rows, count)

        return self._call(search)

    def _since(self, start: Offset, head: StreamHead) -> int:
        """When the messages after ``start`` were stored at the earliest, by all that is known."""
        seq, known_ns = self._known
        since_ns = max(start.since_ns, stored_after(head, start.seq), known_ns * (seq <= start.seq))
        self._known = (start.seq, since_ns)
        return since_ns

    def _show_progress(self, start: Offset, config: StreamConfig) -> None:
        progress = self._progress
        if progress is None:
            return
        progress.subjects = counted_subjects(self._options, config)
        if not self._progress_started:
            self._call(lambda control: progress.start(control, config, start.seq))
            self._progress_started = True
        self._call(lambda control: progress.show(control, start.seq))

    def _wait(self, control: Control, config: StreamConfig, seq: int, timeout_s: float) -> bool:
        """Wait for a message after ``seq``."""
        if config.retention == "workqueue":
            # A work queue must not have another consumer, so there is no event to wait for: it is polled, in
            # Spark's own thread for this query, which has nothing else to do and asks for the time to pass.
            deadline = time.monotonic() + timeout_s
            while behind := control.head()[0].last_seq <= seq:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    break
                time.sleep(min(POLL_WITHOUT_EVENT_S, left_s))
            return not behind
        if self._tail is None or not self._tail.stands_at(control, seq):
            if self._tail is not None:
                self._tail.close()
            self._tail = Tail(control, seq, self._options.poll_timeout_s + TAIL_LEFT_S)
        return self._tail.wait(timeout_s)

    def _is_awaited(self, error: HeadraceError) -> bool:
        """Whether the stream was deleted, and the query waits for another one of its name."""
        return isinstance(error, StreamMissingError) and self._options.on_stream_reset != "fail"


def _needs_time(config: StreamConfig) -> bool:
    """Whether offsets carry a time: only it tells messages that aged from those that were replaced."""
    return compacts(config) and config.max_age > 0
