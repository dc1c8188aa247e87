"""Reads exactly the messages ``(lo, hi]`` of a stream, in order, as chunks of rows.

The way is chosen by the stream's retention. Usually it is an ephemeral pull consumer without acknowledgements
(two requests overlap, so the server never waits for us). Where such a consumer is not allowed (work queues),
it is direct gets in batches, if the stream allows those, and otherwise one STREAM.MSG.GET per sequence,
hundreds in flight; so it is for a few messages of any stream. All continue from their position if a
connection breaks, and all return the same rows for the same range on every read.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from operator import itemgetter
from typing import Final, NamedTuple, cast

from ...api import base
from ...api.acks import parse_ack_subject
from ...api.consumers import ConsumerInfo, PullRequest
from ...api.names import LEADERSHIP_CHANGE, SERVER_SHUTDOWN
from ...api.streams import StreamConfig
from ...client.jetstream.pull import Meaning, meaning_of, read_status
from ...errors import AuthorizationError, ConnectionClosedError, HeadraceError, RequestTimeoutError
from ...wire import Frame
from ..frames import (
    Backlog,
    Chunk,
    Frames,
    Messages,
    PayloadChunk,
    Run,
    RunReader,
    no_rows,
    sequence_of,
    up_to,
)
from ..links.control import Control, StreamMissingError, settled_head
from ..links.link import Link
from ..links.outages import ServerPatience, may_pass
from ..loss import can_lose, may_be_loss
from ..lost_messages import lost_before, lost_in_task
from ..offsets import Offset, StreamChangedError, StreamHead, reset_of
from .gets import DirectGets, MessageGets

_LOG: Final = logging.getLogger("headrace.spark")

PULL_MESSAGES_MAX: Final = 20_000  # the most messages of one pull request
PULL_BYTES: Final = 16 * 1024 * 1024  # … and about the most bytes, by the mean message size
CHUNK_BYTES: Final = 8 * 1024 * 1024  # a chunk of rows ends when its payloads exceed this
GETS_IN_FLIGHT: Final = 500
FEW: Final = 100  # for so many sequences a consumer is not worth its making,
FEW_BYTES: Final = 64 * 1024  # if they are about so small
HEARTBEAT_S: Final = 2.0
EPHEMERAL_INACTIVE_S: Final = 30.0  # then the server removes the consumer of a killed process
FILTERED_SHARE: Final = 4  # a server-side filter pays if it keeps less than one message in four
_REPLY: Final = itemgetter(3)  # of a MSG frame
_REPLACED: Final = "\N{REPLACEMENT CHARACTER}".encode()  # in the place of bytes that are not text


class ReadPlan(NamedTuple):
    """What to read: the sequences ``(lo, hi]``, and how."""

    stream: str
    lo: int
    hi: int
    server_filter: Callable[[StreamConfig], str]  # a pattern the server may apply, or ""
    rows_per_chunk: int
    read_timeout_s: float
    fail_on_data_loss: bool
    since_ns: int = 0  # every message of the range was stored at or after this time
    epoch: str = ""  # when the stream was created; "" for whichever has this name
    fail_on_reset: bool = True  # False: of a stream made again before the first row, read none
    reconnect_timeout_s: float = 120.0  # how long to wait for a server that is away
    losses: str = ""  # the file in which lost messages are noted; "" for none
    end: tuple[int, int] = (0, 0)  # of the batch: its last sequence, and when that was stored (ns)

    @property
    def offset(self) -> Offset:
        """What the stream must have: the last message of the batch, or of the range if that is not told."""
        return Offset(self.end[0] or self.hi, self.epoch, stored_ns=self.end[1])


def read_range(
    connect: Callable[[], Link], plan: ReadPlan, patience: ServerPatience | None = None
) -> Iterator[Chunk]:
    """The messages of a range, in order. ``connect`` opens (or lends) a link.

    With ``plan.server_filter``, messages that do not match it may or may not be omitted: the caller filters
    the rows in any case.

    Raises:
        DataLossError: messages expired while they were being read (see ``loss``).
        ConnectionClosedError: the server cannot be reached for ``plan.reconnect_timeout_s`` (or the time of
            ``patience``, if given), counted from the last message.
        RequestTimeoutError: the server answers but delivers nothing.
    """
    return cast("Iterator[Chunk]", _read(connect, plan, patience, payloads_only=False))


def read_payloads(
    connect: Callable[[], Link], plan: ReadPlan, patience: ServerPatience | None = None
) -> Iterator[Chunk | PayloadChunk]:
    """``read_range`` where nothing but payloads is wanted: the same messages, cut at the same places."""
    return _read(connect, plan, patience, payloads_only=True)


def _read(
    connect: Callable[[], Link],
    plan: ReadPlan,
    patience: ServerPatience | None,
    *,
    payloads_only: bool,
) -> Iterator[Chunk | PayloadChunk]:
    patience = patience or ServerPatience(plan.reconnect_timeout_s, f"stream {plan.stream!r}")
    reader = _RangeReader(connect, plan, patience, payloads_only=payloads_only)
    try:
        with closing(reader.chunks()) as chunks:
            while True:
                with uncollected():
                    chunk = next(chunks, None)
                if chunk is None:
                    return
                yield chunk
    finally:
        reader.release()


@contextmanager
def uncollected() -> Iterator[None]:
    """Without garbage collection: it would look at each of thousands of frames, which are no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_BEGIN_AGAIN: Final = frozenset({SERVER_SHUTDOWN, LEADERSHIP_CHANGE})


def still_asked(frames: list[Frame], asked: int) -> int:
    """How many messages are still requested after the statuses among these frames: another pull is sent
    where one has ended.

    Raises ConnectionClosedError: the read is to be begun again, with another consumer.
    """
    for frame in frames:
        if frame[3]:
            continue
        status = read_status(frame[4])
        meaning = meaning_of(status)
        if meaning is Meaning.HEARTBEAT:
            continue
        if meaning not in (Meaning.ENDED, Meaning.WARNING) or status.key in _BEGIN_AGAIN:
            raise ConnectionClosedError(f"the server answered a pull with {status}")
        asked = 0
    return asked


class _LaggingCopyError(RequestTimeoutError):
    """A server that answers has fewer messages than the leader."""


class _StalledError(RequestTimeoutError):
    """The server is up but does not deliver: a retry would only take as long again."""


class ConsumerReader:
    """Who reads by a consumer of its own, over a link that may be lost."""

    def __init__(self, connect: Callable[[], Link], patience: ServerPatience) -> None:
        self._connect = connect
        self._patience = patience
        self._control: Control | None = None
        self._consumer = ""
        self._sid = b""

    def release(self) -> None:
        """Delete the server's consumer, and return the link for the next task."""
        control = self._control
        if control is None or control.link.closed:
            return
        try:
            if self._sid:
                control.link.unsubscribe(self._sid)
            if self._consumer:
                control.delete_consumer(self._consumer)
        except HeadraceError:
            # The rows are complete; the server removes an abandoned consumer by itself.
            control.link.close()
        self._sid, self._consumer = b"", ""

    def _drop_link(self) -> None:
        if self._control is not None:
            self._control.link.close()
        self._control, self._sid, self._consumer = None, b"", ""


class _RangeReader(ConsumerReader):
    def __init__(
        self,
        connect: Callable[[], Link],
        plan: ReadPlan,
        patience: ServerPatience,
        *,
        payloads_only: bool,
    ) -> None:
        super().__init__(connect, patience)
        self._plan = plan
        self._payloads_only = payloads_only
        self._last = plan.lo  # every message up to here is in the buffer or was passed on
        self._checked = plan.lo  # up to here nothing expired before it was read
        self._backlog = Backlog()
        self._pattern = ""
        self._limited = False
        self._may_get_directly = True
        self._may_get_few = True

    def chunks(self) -> Generator[Chunk | PayloadChunk, None, None]:
        while True:
            before = self._last
            try:
                yield from self._attempt()
                return
            except HeadraceError as error:
                deleted = isinstance(error, StreamMissingError) and not self._plan.fail_on_reset
                if isinstance(error, _StalledError) or not (may_pass(error) or deleted):
                    raise
                if self._last > before:
                    self._patience.restart()
                self._drop_link()
                self._patience.pause(error)

    def _attempt(self) -> Iterator[Chunk | PayloadChunk]:
        plan = self._plan
        self._control = control = Control(self._connect(), plan.stream)
        head, config = settled_head(control, plan.offset, self._patience)
        if self._is_reset(control, head, is_first=True):
            return
        self._limited = can_lose(config)
        if config.retention == "workqueue":
            yield from self._get(control, head, config)
            self._is_reset_now(control)
            return
        # Rows that a lost link left in the backlog come first, and in one chunk with the rest.
        few = (
            0 if self._backlog or not self._may_get_few else min(FEW, FEW_BYTES // head.mean_bytes)
        )
        if 0 < plan.hi - self._last <= few and (chunk := self._get_few(control)) is not None:
            if chunk.sequences:
                yield chunk
            return
        if self._last < plan.hi:
            ahead = min(head.messages, head.last_seq - self._last)
            pending = self._create_consumer(control, plan.server_filter(config), ahead)
            # A consumer ends with its stream: all it delivers is of the one that is there now.
            if self._is_reset_now(control):
                return
            batch = max(1, min(PULL_MESSAGES_MAX, PULL_BYTES // head.mean_bytes))
            for messages in self._pull(control, batch, pending):
                self._backlog.add(messages)
                while self._holds_more_than_a_chunk:
                    yield self._cut(control)
        self._is_reset_now(control)  # before the last rows are passed on
        while self._backlog:
            yield self._cut(control)
        self._check_expiry(control, plan.hi, 0)

    def _is_reset_now(self, control: Control) -> bool:
        """``_is_reset``, by a new look. What was asked for by the stream's name before it is of the same
        stream.
        """
        head = settled_head(control, self._plan.offset, self._patience)[0]
        return self._is_reset(control, head)

    def _is_reset(self, control: Control, head: StreamHead, *, is_first: bool = False) -> bool:
        """Whether the range is gone with its stream, and that is accepted. Raises StreamChangedError if not.

        Called before the read, before the first row is passed on and after it: a read by name may begin in
        one stream and end in another. A server cannot give a sequence anew without a new link or a new
        stream, so only the ``is_first`` look on a link asks for the message in any case.
        """
        plan, end = self._plan, self._plan.offset
        is_there = plan.epoch == head.epoch and end.seq <= head.last_seq
        if not plan.epoch or (is_there and not is_first):
            return False
        same = control.sameness(end, head)
        reason = reset_of(end, head, plan.stream, same)
        if not reason:
            return False
        # With the time of its last message it is told whether some of the batch is there all the same.
        is_left = bool(end.stored_ns) and control.place(end, head, same) > plan.lo
        if plan.fail_on_reset or self._last > plan.lo or is_left:
            raise StreamChangedError(
                f"{reason}. It happened while a batch was read; start the query again"
            )
        _LOG.warning("%s; %d sequences were not read", reason, plan.hi - plan.lo)
        return True

    def _create_consumer(self, control: Control, wanted: str, ahead: int) -> int:
        """Create the ephemeral consumer after ``_last``. Returns how many messages are pending for it.

        With a filter the server skips messages that do not match, but has a cost for every message it
        keeps. So the filter is used only if it keeps few of the messages ``ahead``.
        """
        info = self._create(control, wanted)
        if wanted and info.num_pending * FILTERED_SHARE >= ahead:
            control.delete_consumer(info.name)
            wanted = ""
            info = self._create(control, wanted)
        self._consumer, self._pattern = info.name, wanted
        return info.num_pending

    def _create(self, control: Control, pattern: str) -> ConsumerInfo:
        return control.create_ephemeral(
            deliver_policy="by_start_sequence",
            opt_start_seq=self._last + 1,
            inactive_threshold=EPHEMERAL_INACTIVE_S,
            filter_subject=pattern,
            description="headrace: one task of a Spark read",
        )

    def _pull(self, control: Control, batch: int, pending: int) -> Iterator[Messages]:
        """Messages up to ``hi`` and none beyond, as they arrive. Moves ``_last``."""
        link, plan = control.link, self._plan
        if pending == 0 and self._is_complete(control):
            return
        inbox, self._sid = link.subscribe()
        subject = link.api("CONSUMER", "MSG", "NEXT", plan.stream, self._consumer)
        runs = RunReader(self._sid) if self._payloads_only else None
        asked = 0
        quiet_since = time.monotonic()
        while True:
            need = plan.hi - self._last
            if asked <= batch // 2 and asked < need:
                size = min(batch, need - asked)
                request = PullRequest(
                    batch=size, expires=plan.read_timeout_s, idle_heartbeat=self._heartbeat_s
                )
                link.publish(subject, base.encode(request), inbox)
                asked += size
            wait_s = 2 * self._heartbeat_s
            got = link.poll(wait_s) if runs is None else link.poll_runs(runs, wait_s)
            if not got:
                link.close()
                raise ConnectionClosedError("the server missed two heartbeats")
            messages: Messages
            if isinstance(got, Run):
                messages = got
            else:
                messages = Frames(got if all(map(_REPLY, got)) else [f for f in got if f[3]])
                if len(messages) < len(got):
                    asked = still_asked(got, asked)
            if not messages:
                if time.monotonic() - quiet_since > plan.read_timeout_s:
                    raise _StalledError(
                        f"stream {plan.stream!r}: nothing after sequence {self._last} came within "
                        f"{plan.read_timeout_s:g} s, though the server holds more"
                    )
                if asked == 0 and self._is_complete(control):
                    return
                continue
            asked = max(0, asked - len(messages))
            tokens = parse_ack_subject(messages.reply(len(messages) - 1).decode())
            if tokens.stream_seq > plan.hi:
                messages = up_to(messages, plan.hi)
                self._last = plan.hi
                if messages:
                    yield messages
                return
            self._last = tokens.stream_seq
            yield messages
            quiet_since = time.monotonic()  # not before: the consumer of the rows may be slow
            if self._last >= plan.hi or (tokens.pending == 0 and self._is_complete(control)):
                self._last = plan.hi
                return

    @property
    def _heartbeat_s(self) -> float:
        return min(HEARTBEAT_S, self._plan.read_timeout_s / 2)

    def _is_complete(self, control: Control) -> bool:
        """Whether the leader has no more messages up to ``hi``.

        A consumer also reports that nothing is pending if its server lags behind the stream's leader, and
        the last sequences of a range may have been deleted; only the leader can tell the two apart.
        """
        following = control.next_stored(self._last + 1, self._pattern or ">")
        return following == 0 or following > self._plan.hi

    @property
    def _holds_more_than_a_chunk(self) -> bool:
        rows, size = len(self._backlog), self._backlog.payload_bytes
        return rows > self._plan.rows_per_chunk or size > CHUNK_BYTES

    def _cut(self, control: Control) -> Chunk | PayloadChunk:
        """Take the next chunk off the backlog; the same range is always cut at the same places."""
        parts = self._backlog.first(self._plan.rows_per_chunk, CHUNK_BYTES)
        last = sequence_of(parts[-1], len(parts[-1]) - 1)
        self._check_expiry(control, last, sum(map(len, parts)))
        self._backlog.drop(parts)  # not before: a link that is lost while checking loses no rows
        chunk = PayloadChunk(parts)
        return chunk if self._payloads_only else chunk.as_rows()

    def _check_expiry(self, control: Control, last: int, rows: int) -> None:
        """Raise if messages may have expired before they were among the ``rows`` up to ``last``.

        Limits remove from the head. So messages after the current head existed when they were delivered,
        and a gapless sequence of messages is complete whatever happened since. What newer messages have
        replaced is no loss.
        """
        before, plan = self._checked, self._plan
        if self._limited and last - before != rows:
            head, config = control.head()
            if head.first_seq > before + 1 and may_be_loss(config, head, plan.since_ns):
                loss = lost_before(plan.stream, before, last, rows, head)
                lost_in_task(loss, head, plan.losses, fail=plan.fail_on_data_loss)
        self._checked = last

    def _get(self, control: Control, head: StreamHead, config: StreamConfig) -> Iterator[Chunk]:
        if not (config.allow_direct and self._may_get_directly):
            yield from self._get_one_by_one(control, head)
            return
        try:
            yield from self._get_directly(control, head)
        except AuthorizationError:
            # Users who may read messages one by one could do so before there were direct gets.
            self._may_get_directly = False
            raise ConnectionClosedError("this user may not get messages directly") from None

    def _get_few(self, control: Control) -> Chunk | None:
        """All that is left, in one round trip, without the consumer that a server would make and remove.

        None if only a consumer can tell: JSON does not show every subject as it is.
        """
        plan = self._plan
        gets = MessageGets(control.link, plan.stream, plan.read_timeout_s)
        try:
            gets.ask(range(self._last + 1, plan.hi + 1))
            rows = gets.take()
            gets.close()
        except AuthorizationError:
            self._may_get_few = False  # a consumer may be what this user is allowed
            raise ConnectionClosedError("this user may not get single messages") from None
        if any(_REPLACED in subject for subject in rows.subjects):
            return None
        if self._is_reset_now(control):
            return no_rows().as_chunk(plan.hi)
        self._check_expiry(control, plan.hi, len(rows.sequences))
        self._last = plan.hi
        return rows.as_chunk(plan.hi)

    def _get_directly(self, control: Control, head: StreamHead) -> Iterator[Chunk]:
        plan = self._plan
        batch = max(1, min(plan.rows_per_chunk, PULL_BYTES // head.mean_bytes))
        gets = DirectGets(control.link, plan.stream, plan.read_timeout_s)

        def ask(after: int) -> None:
            if after < plan.hi:
                gets.ask(after + 1, min(batch, plan.hi - after), CHUNK_BYTES)

        try:
            ask(self._last)
            while self._last < plan.hi:
                chunk = gets.take_all().as_chunk(plan.hi)
                if chunk.sequences:
                    if self._is_reset_now(control):
                        return
                    self._patience.restart()
                    last = chunk.sequences[-1]
                    ask(last)  # the server works while Spark takes these rows
                    self._last = last  # not before: if the link is lost, they are not passed on
                    yield chunk
                elif self._is_complete(control):
                    self._last = plan.hi
                else:
                    self._patience.pause(_LaggingCopyError("a copy of the stream lags behind"))
                    ask(self._last)
        finally:
            gets.close()

    def _get_one_by_one(self, control: Control, head: StreamHead) -> Iterator[Chunk]:
        """By a request for each sequence: some are answered while the others are under way."""
        plan = self._plan
        stop = min(plan.hi, head.last_seq) + 1
        window = max(1, min(GETS_IN_FLIGHT, PULL_BYTES // head.mean_bytes) // 2)
        gets = MessageGets(control.link, plan.stream, plan.read_timeout_s)
        begin = max(self._last + 1, head.first_seq)

        def ask() -> None:
            nonlocal begin
            if begin < stop:
                gets.ask(range(begin, min(begin + window, stop)))
                begin += window

        rows, size = no_rows(), 0
        try:
            ask()
            while gets.waiting:
                ask()  # the server works while we read what it has sent
                got = gets.take()
                if not got.sequences and begin < stop:
                    begin = max(begin, control.next_stored(begin) or stop)
                rows.add(got)
                size += sum(map(len, got.payloads))
                if len(rows.sequences) >= plan.rows_per_chunk or size > CHUNK_BYTES:
                    if self._is_reset_now(control):
                        return
                    self._last = rows.sequences[-1]
                    yield rows.as_chunk(plan.hi)
                    rows, size = no_rows(), 0
            if rows.sequences:
                if self._is_reset_now(control):
                    return
                self._last = rows.sequences[-1]
                yield rows.as_chunk(plan.hi)
        finally:
            gets.close()
        self._last = plan.hi
