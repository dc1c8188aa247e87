"""Reads the latest message of each subject once: a compacted stream, or a key-value bucket, as a table.

The server's consumer begins with the last message of each subject, in the order of the stream. What is
replaced before it comes is left out there and comes later, at its new place, so the reader goes on past the
end that the stream had at the beginning until nothing can be missing. A row is what was the latest of its
subject at some time during the read; no subject comes twice, and none that was there all the time is missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ...api import base
from ...api.acks import parse_ack_subject
from ...api.consumers import PullRequest
from ...errors import ConfigurationError, ConnectionClosedError, HeadraceError, RequestTimeoutError
from ...wire import Frame
from ..frames import Chunk, chunk_of, is_deletion
from ..links.control import Control
from ..links.link import Link
from ..links.outages import ServerPatience, may_pass
from ..offsets import check_unchanged
from .reader import (
    CHUNK_BYTES,
    EPHEMERAL_INACTIVE_S,
    HEARTBEAT_S,
    PULL_MESSAGES_MAX,
    ConsumerReader,
    still_asked,
)

_PULL_BYTES: Final = 16 * 1024 * 1024


class SnapshotPlan(NamedTuple):
    """What to read, and how; ``pattern`` are the subjects, ``epoch`` is "" for whichever stream it is."""

    stream: str
    pattern: str
    rows_per_chunk: int
    read_timeout_s: float
    reconnect_timeout_s: float
    epoch: str = ""


def read_snapshot(
    connect: Callable[[], Link], plan: SnapshotPlan, patience: ServerPatience | None = None
) -> Iterator[Chunk]:
    """The latest message of each subject, without those that delete a key.

    Raises:
        ConfigurationError: the stream is a work queue.
        DataLossError: the stream was made again meanwhile.
        ConnectionClosedError, RequestTimeoutError: as ``reader.read_range``.
    """
    reader = _SnapshotReader(
        connect,
        plan,
        patience or ServerPatience(plan.reconnect_timeout_s, f"stream {plan.stream!r}"),
    )
    try:
        yield from reader.chunks()
    finally:
        reader.release()


class _SnapshotReader(ConsumerReader):
    def __init__(
        self, connect: Callable[[], Link], plan: SnapshotPlan, patience: ServerPatience
    ) -> None:
        super().__init__(connect, patience)
        self._plan = plan
        self._seen: set[bytes] = set()
        self._rows: list[Frame] = []  # seen, and not passed on yet: they outlive a connection
        self._bytes = 0

    def chunks(self) -> Iterator[Chunk]:
        while True:
            before = len(self._seen)
            try:
                yield from self._attempt()
                return
            except HeadraceError as error:
                if not may_pass(error):
                    raise
                if len(self._seen) > before:
                    self._patience.restart()
                self._drop_link()
                self._patience.pause(error)

    def _attempt(self) -> Iterator[Chunk]:
        plan = self._plan
        self._control = control = Control(self._connect(), plan.stream)
        head, config = control.head()
        check_unchanged(plan.epoch, head, plan.stream)
        if config.retention == "workqueue":
            raise ConfigurationError(
                f"jetstream source: stream {plan.stream!r} is a work queue, of which each message counts; "
                "leave out lastPerSubject"
            )
        info = control.create_ephemeral(
            deliver_policy="last_per_subject",
            filter_subject=plan.pattern,
            inactive_threshold=EPHEMERAL_INACTIVE_S,
            description="headrace: a Spark read of the latest of each subject",
        )
        self._consumer = info.name
        batch = max(1, min(PULL_MESSAGES_MAX, _PULL_BYTES // head.mean_bytes))
        before = head.last_seq if config.num_replicas == 1 else -1
        for frames in self._pull(control, batch, info.num_pending, before):
            for frame in frames:
                if frame[1] in self._seen:
                    continue  # newer than the row that we have passed on
                self._seen.add(frame[1])
                if is_deletion(frame[4]):
                    continue
                self._rows.append(frame)
                self._bytes += len(frame[5])
                if len(self._rows) >= plan.rows_per_chunk or self._bytes >= CHUNK_BYTES:
                    yield self._cut()
        check_unchanged(plan.epoch, control.head()[0], plan.stream)
        if self._rows:
            yield self._cut()

    def _cut(self) -> Chunk:
        rows, self._rows, self._bytes = self._rows, [], 0
        return chunk_of(rows)

    def _pull(self, control: Control, batch: int, first: int, before: int) -> Iterator[list[Frame]]:
        """What the consumer delivers: its ``first`` messages, and where any of them was replaced, all up to
        the end that the stream then has.

        ``before`` is the stream's end before the consumer was made (on a replicated stream -1: its server may
        lag, so that its count says nothing).
        """
        head = control.head()[0]
        # The consumer ends with its stream: all it delivers is of the one that is there now.
        check_unchanged(self._plan.epoch, head, self._plan.stream)
        end = head.last_seq
        is_through = (
            False  # whether the first messages have come, and ``end`` was asked for after that
        )
        came = last = asked = 0
        link, plan = control.link, self._plan
        inbox, self._sid = link.subscribe()
        subject = link.api("CONSUMER", "MSG", "NEXT", plan.stream, self._consumer)
        heartbeat_s = min(HEARTBEAT_S, plan.read_timeout_s / 2)
        quiet_since = time.monotonic()
        while came or first or not self._is_last(control, 0, end):
            if asked <= batch // 2:
                request = PullRequest(
                    batch=batch, expires=plan.read_timeout_s, idle_heartbeat=heartbeat_s
                )
                link.publish(subject, base.encode(request), inbox)
                asked += batch
            frames = link.poll(2 * heartbeat_s)
            if not frames:
                link.close()
                raise ConnectionClosedError("the server missed two heartbeats")
            messages = [frame for frame in frames if frame[3]]
            if len(messages) < len(frames):
                asked = still_asked(frames, asked)
            pending = 0
            if messages:
                came += len(messages)
                asked = max(0, asked - len(messages))
                tokens = parse_ack_subject(messages[-1][3].decode())
                last, pending = tokens.stream_seq, tokens.pending
                yield messages
                quiet_since = time.monotonic()  # not before: the consumer of the rows may be slow
                if came == first and last <= before:
                    return  # all of the first, and nothing else: none was replaced before it came
            if pending == 0 or last >= end:
                if last >= end or self._is_last(control, last, end):
                    if not is_through:
                        end, is_through = control.head()[0].last_seq, True
                    if last >= end or self._is_last(control, last, end):
                        return
                elif time.monotonic() - quiet_since > plan.read_timeout_s:
                    raise RequestTimeoutError(
                        f"stream {plan.stream!r}: nothing after sequence {last} came within "
                        f"{plan.read_timeout_s:g} s, though the server holds more"
                    )

    def _is_last(self, control: Control, last: int, end: int) -> bool:
        """Whether the leader has nothing after ``last`` up to ``end``."""
        following = control.next_stored(last + 1, self._plan.pattern)
        return following == 0 or following > end
