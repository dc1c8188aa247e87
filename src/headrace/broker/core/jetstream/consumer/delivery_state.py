"""What a consumer has delivered and what became of it: floors, pending messages, redeliveries.

Pure state. Times are handed in (readings of the monotonic clock); the caller sends, stores and journals.

Sequences: ``stream`` ones say which message, ``consumer`` ones count deliveries. A pending message keeps
the consumer sequence of its first delivery, from which the ack floor is computed.

Cost: messages delivered together share one entry in the heap of deadlines, and acks leave the heap and the
order alone; both are swept when stale entries outnumber live ones. So everything is O(1) per message.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import repeat, takewhile
from typing import Final, TypeAlias

Entry: TypeAlias = tuple[int, int, int, int]
"""A pending message: stream sequence, consumer sequence of the first delivery, deadline, deliveries."""

_SWEEP_AT: Final = 1024  # stale entries tolerated before a sweep


class DeliveryBatch:
    """Messages delivered for the first time, in a row: they share a deadline."""

    __slots__ = ("deadline_ns", "first_consumer_seq", "stream_seqs")

    def __init__(self, first_consumer_seq: int, deadline_ns: int) -> None:
        self.first_consumer_seq = first_consumer_seq
        self.deadline_ns = deadline_ns
        self.stream_seqs: list[int] = []


class DeliveryState:
    """The delivery state of one consumer.

    ``ack_wait_ns`` and ``backoff_ns`` set the deadline of each delivery; without either there is none,
    and a message is delivered again only if it is refused. ``max_deliver`` below 1 means no limit. With
    ``tracks`` false (ack policy ``none``) a delivery is its own acknowledgement.
    """

    def __init__(
        self,
        *,
        start_seq: int,
        tracks: bool,
        ack_wait_ns: int,
        backoff_ns: tuple[int, ...] = (),
        max_deliver: int = -1,
    ) -> None:
        self.tracks = tracks
        self.ack_wait_ns = ack_wait_ns
        self.backoff_ns = backoff_ns
        self.max_deliver = max_deliver
        self.pending: dict[int, tuple[int, int]] = {}
        """Stream sequence → (consumer sequence of the first delivery, deadline)."""
        self.deliveries: dict[int, int] = {}
        """How often a pending message was delivered, where that is more than once."""
        self.redeliver: deque[int] = deque()
        """Stream sequences to deliver again, first the first. May hold messages done meanwhile."""
        self.exhausted: list[tuple[int, int]] = []
        """(stream sequence, deliveries) of messages given up since the caller last looked."""
        self.dead: dict[int, int] = {}
        """Stream sequence → deliveries, of messages given up that are still in the stream: nobody is done
        with them."""
        self._queued: set[int] = set()
        self._withdrawn: dict[int, int] = {}
        """How many entries of a message in ``redeliver`` do not count, the first ones."""
        self._postponed: set[int] = set()
        self._order: deque[int] = deque()
        self._deadlines: list[tuple[int, int, list[int]]] = []
        self._deadline_entries = 0
        self._tie = 0
        self.batches: list[DeliveryBatch] = []
        """First deliveries since ``clear_log``."""
        self.again: list[tuple[int, int, int, int]] = []
        """Redeliveries since ``clear_log``: (stream, consumer sequence, deliveries, deadline)."""
        self.moved: dict[int, int] = {}
        """Deadlines set anew since ``clear_log``, by refusals and progress."""
        self.done: list[int] = []
        """Stream sequences that were acknowledged or terminated, or left, since ``clear_log``."""
        self.given_up: dict[int, int] = {}
        """Stream sequence → deliveries, of those of ``dead`` that were given up since ``clear_log``."""
        self.reset(start_seq)

    def reset(self, next_seq: int) -> None:
        """Start over: deliver ``next_seq`` next, and forget everything pending."""
        self.delivered_consumer = 0
        self.delivered_stream = next_seq - 1
        self.delivered_stamp_ns = 0
        """When the message at ``delivered_stream`` was stored, nanoseconds since the epoch; 0: not known."""
        self.floor_consumer = 0
        self.floor_stream = next_seq - 1
        self.next_seq = next_seq
        """The first stream sequence not looked at yet."""
        for collection in (
            self.pending,
            self.deliveries,
            self.dead,
            self.redeliver,
            self._queued,
            self._withdrawn,
            self._postponed,
        ):
            collection.clear()
        self._order.clear()
        self._deadlines.clear()
        self._deadline_entries = 0
        self.exhausted.clear()
        self.clear_log()

    def clear_log(self) -> None:
        """Forget what changed, after journaling it."""
        self.batches = []
        self.again = []
        self.moved = {}
        self.done = []
        self.given_up = {}

    # -- delivering

    def begin_batch(self, now_ns: int) -> DeliveryBatch:
        """Open a batch of first deliveries, for ``deliver_new`` and ``deliver_many``."""
        deadline_ns = now_ns + (self.backoff_ns[0] if self.backoff_ns else self.ack_wait_ns)
        batch = DeliveryBatch(self.delivered_consumer + 1, deadline_ns)
        self.batches.append(batch)
        if self.tracks:
            self._push_deadline(deadline_ns, batch.stream_seqs)
        return batch

    def deliver_new(self, batch: DeliveryBatch, stream_seq: int) -> int:
        """Record the first delivery of a message in the open batch; returns its consumer sequence."""
        consumer_seq = self.delivered_consumer = self.delivered_consumer + 1
        self.delivered_stream = stream_seq
        self.next_seq = stream_seq + 1
        batch.stream_seqs.append(stream_seq)
        if self.tracks:
            self._deadline_entries += 1
            self.pending[stream_seq] = (consumer_seq, batch.deadline_ns)
            self._order.append(stream_seq)
        else:
            self.floor_consumer = consumer_seq
            self.floor_stream = stream_seq
        return consumer_seq

    def deliver_many(self, batch: DeliveryBatch, stream_seqs: Sequence[int]) -> None:
        """``deliver_new`` for several messages, in ascending order."""
        count = len(stream_seqs)
        first = self.delivered_consumer + 1
        self.delivered_consumer += count
        self.delivered_stream = last = stream_seqs[-1]
        self.next_seq = last + 1
        batch.stream_seqs += stream_seqs
        if self.tracks:
            self._deadline_entries += count
            consumer_seqs = range(first, first + count)
            entries = zip(consumer_seqs, repeat(batch.deadline_ns, count), strict=True)
            self.pending.update(zip(stream_seqs, entries, strict=True))
            self._order.extend(stream_seqs)
        else:
            self.floor_consumer = self.delivered_consumer
            self.floor_stream = last

    def peek_redelivery(self) -> int:
        """The stream sequence to deliver again next, or 0."""
        redeliver = self.redeliver
        while redeliver:
            sequence = redeliver[0]
            withdrawn = self._withdrawn.pop(sequence, 0)
            if not withdrawn and sequence in self._queued:
                return sequence
            redeliver.popleft()
            if withdrawn > 1:
                self._withdrawn[sequence] = withdrawn - 1
        return 0

    def deliver_again(self, stream_seq: int, now_ns: int) -> tuple[int, int]:
        """Record the redelivery of ``peek_redelivery()``: (consumer sequence, deliveries so far)."""
        self.redeliver.popleft()
        self._queued.discard(stream_seq)
        self._postponed.discard(stream_seq)
        consumer_seq = self.delivered_consumer = self.delivered_consumer + 1
        count = self.deliveries[stream_seq] = self.deliveries.get(stream_seq, 1) + 1
        deadline_ns = now_ns + self.wait_ns(count)
        self._set_deadline(stream_seq, deadline_ns)
        self.again.append((stream_seq, consumer_seq, count, deadline_ns))
        self.moved.pop(stream_seq, None)
        return consumer_seq, count

    # -- what consumers say

    def acknowledge(self, stream_seq: int) -> bool:
        """One message is done; False when it was neither pending nor given up."""
        if self.pending.pop(stream_seq, None) is None:
            if self.dead.pop(stream_seq, None) is None:
                return False
            self.given_up.pop(stream_seq, None)
            self.done.append(stream_seq)
            return True
        self.done.append(stream_seq)
        if self.deliveries:
            self.deliveries.pop(stream_seq, None)
        if self._queued:
            self._queued.discard(stream_seq)
        if self._postponed:
            self._postponed.discard(stream_seq)
        order = self._order
        if order[0] == stream_seq or not self.pending:
            self._move_floor()
        elif len(order) > 2 * len(self.pending) + _SWEEP_AT:
            self._order = deque(seq for seq in order if seq in self.pending)
        return True

    def acknowledge_many(self, stream_seqs: Iterable[int]) -> list[int]:
        """``acknowledge`` for many messages; returns those for which it is true."""
        if self.deliveries or self._queued or self._postponed or self.dead:
            return self.forget(stream_seqs)
        pop = self.pending.pop
        finished = [sequence for sequence in stream_seqs if pop(sequence, None) is not None]
        if finished:
            self.done += finished
            order = self._order
            if not self.pending or order[0] not in self.pending:
                self._move_floor()
            elif len(order) > 2 * len(self.pending) + _SWEEP_AT:
                self._order = deque(seq for seq in order if seq in self.pending)
        return finished

    def acknowledge_all(self, stream_seq: int, consumer_seq: int) -> list[int]:
        """Everything up to a message is done; returns the stream sequences that were pending."""
        known = self.pending.get(stream_seq)
        if stream_seq <= self.floor_stream or (
            # The number of a delivery that a crash made us forget was given out again: it says nothing.
            known is None and consumer_seq <= self.floor_consumer
        ):
            return []
        consumer_seq = min(consumer_seq, self.delivered_consumer) if known is None else known[0]
        finished = []
        order = self._order
        while order and order[0] <= stream_seq:
            sequence = order.popleft()
            if self.pending.pop(sequence, None) is not None:
                finished.append(sequence)
                self.deliveries.pop(sequence, None)
                self._queued.discard(sequence)
                self._postponed.discard(sequence)
        for sequence in [sequence for sequence in self.dead if sequence <= stream_seq]:
            del self.dead[sequence]
            self.given_up.pop(sequence, None)
            finished.append(sequence)
        self.floor_stream = stream_seq
        self.done += finished
        if not self.pending:
            self._move_floor()
            return finished
        while order[0] not in self.pending:
            order.popleft()
        # The ack may carry the number of a redelivery, which is higher than those still pending.
        self.floor_consumer = min(consumer_seq, self.pending[order[0]][0] - 1)
        return finished

    def refuse(self, stream_seq: int, consumer_seq: int, now_ns: int, delay_ns: int = 0) -> bool:
        """Deliver a message again, now or after ``delay_ns``; False when that is not honoured."""
        entry = self.pending.get(stream_seq)
        if entry is None or not self.floor_consumer < consumer_seq <= self.delivered_consumer:
            return False
        if delay_ns > 0:
            count = self.deliveries.get(stream_seq, 1)
            if self.backoff_ns:
                delay_ns += self.wait_ns(count) - self.backoff_ns[0]
            if stream_seq in self._queued:
                self._queued.discard(stream_seq)
                self._withdrawn[stream_seq] = self._withdrawn.get(stream_seq, 0) + 1
            self._postponed.add(stream_seq)
            self._set_deadline(stream_seq, now_ns + delay_ns)
            self.moved[stream_seq] = now_ns + delay_ns
        else:
            # Late from now on, and by the journal too.
            self.pending[stream_seq] = (entry[0], now_ns)
            self.moved[stream_seq] = now_ns
            self._queue([stream_seq])
        return True

    def in_progress(self, stream_seq: int, now_ns: int) -> bool:
        """The client is still at it: its time starts anew."""
        if stream_seq not in self.pending:
            return False
        deadline_ns = now_ns + self.wait_ns(self.deliveries.get(stream_seq, 1))
        self._set_deadline(stream_seq, deadline_ns)
        self.moved[stream_seq] = deadline_ns
        return True

    def forget(self, stream_seqs: Iterable[int]) -> list[int]:
        """Messages left the stream: those that were pending or given up are done. Returns them."""
        return [sequence for sequence in stream_seqs if self.acknowledge(sequence)]

    def pending_below(self, stream_seq: int) -> list[int]:
        """Those before ``stream_seq`` that are pending or given up."""
        pending = self.pending
        below = [seq for seq in takewhile(stream_seq.__gt__, self._order) if seq in pending]
        return below + [seq for seq in self.dead if seq < stream_seq]

    def entries(self, stream_seqs: Iterable[int]) -> list[Entry]:
        """Those of these that are pending, for ``remember``."""
        pending = self.pending
        return [(s, *pending[s], self.count_of(s)) for s in stream_seqs if s in pending]

    def remember(self, entries: Iterable[Entry]) -> None:
        """Messages that had left the stream are back, and pending as before."""
        for sequence, consumer_seq, deadline_ns, count in entries:
            self.pending[sequence] = (consumer_seq, deadline_ns)
            if count > 1:
                self.deliveries[sequence] = count
        self._order = deque(sorted(self.pending))
        self._sweep_deadlines()

    def rewind(self) -> None:
        """Messages that had left the stream are back: look again at all that was not delivered."""
        self.next_seq = self.delivered_stream + 1
        self._move_floor()

    def put_back(self, stream_seq: int) -> None:
        """The stream has lost what follows ``stream_seq``: nothing beyond was delivered, or is pending."""
        self.forget([sequence for sequence in self.pending if sequence > stream_seq])
        self.delivered_stream = stream_seq
        self.delivered_stamp_ns = 0
        self.next_seq = stream_seq + 1
        self.floor_stream = min(self.floor_stream, stream_seq)

    def skip_below(self, stream_seq: int) -> None:
        """Put the floor before ``stream_seq``: what was before is neither to be delivered nor pending."""
        self.next_seq = max(self.next_seq, stream_seq)
        if not self._order or self._order[0] >= stream_seq:
            self.floor_stream = max(self.floor_stream, stream_seq - 1)

    def count_of(self, stream_seq: int) -> int:
        """How often a pending message was delivered."""
        return self.deliveries.get(stream_seq, 1)

    def is_in_hand(self, stream_seq: int) -> bool:
        """Whether a client may be at work on a message: delivered, not answered, and in time."""
        return (
            stream_seq in self.pending
            and stream_seq not in self._queued
            and stream_seq not in self._postponed
        )

    def in_hand(self) -> list[int]:
        """The stream sequences of all messages in hand; a restart forgets which were refused."""
        return [sequence for sequence in self.pending if self.is_in_hand(sequence)]

    def delivered_ns(self, stream_seq: int) -> int:
        """When a pending message was delivered last, or its time began anew."""
        return self.pending[stream_seq][1] - self.wait_ns(self.deliveries.get(stream_seq, 1))

    # -- time

    def set_waits(self, ack_wait_ns: int, backoff_ns: tuple[int, ...]) -> None:
        """Change the waits; pending deliveries get as much more or less time as theirs has changed."""
        if (ack_wait_ns, backoff_ns) == (self.ack_wait_ns, self.backoff_ns):
            return
        counts = {sequence: self.deliveries.get(sequence, 1) for sequence in self.pending}
        before = {sequence: self.wait_ns(count) for sequence, count in counts.items()}
        self.ack_wait_ns, self.backoff_ns = ack_wait_ns, backoff_ns
        for sequence, (consumer_seq, deadline_ns) in list(self.pending.items()):
            change_ns = self.wait_ns(counts[sequence]) - before[sequence]
            self.pending[sequence] = (consumer_seq, deadline_ns + change_ns)
        self._sweep_deadlines()

    def set_max_deliver(self, max_deliver: int) -> None:
        """Change the limit; messages that wait to be delivered again and have reached it are given up."""
        self.max_deliver = max_deliver
        for sequence in sorted(self._queued):
            count = self.deliveries.get(sequence, 1)
            if 0 < max_deliver <= count:
                self._give_up(sequence, count)

    @property
    def late(self) -> int:
        """How many messages wait to be delivered again."""
        return len(self._queued)

    def next_deadline_ns(self) -> int | None:
        """When ``expire`` may have something to do."""
        return self._deadlines[0][0] if self._deadlines else None

    def expire(self, now_ns: int) -> bool:
        """Queue what was not acknowledged in time; True if there is something to redeliver."""
        deadlines = self._deadlines
        late: list[int] = []
        while deadlines and deadlines[0][0] <= now_ns:
            group = heapq.heappop(deadlines)[2]
            self._deadline_entries -= len(group)
            for sequence in group:
                entry = self.pending.get(sequence)
                if entry is not None and entry[1] <= now_ns and sequence not in self._queued:
                    late.append(sequence)
        self._queue(sorted(set(late)))
        return bool(self._queued)

    # -- inside

    def wait_ns(self, count: int) -> int:
        """How long delivery number ``count`` may take."""
        backoff = self.backoff_ns
        return backoff[min(count, len(backoff)) - 1] if backoff else self.ack_wait_ns

    def _queue(self, stream_seqs: Iterable[int]) -> None:
        for sequence in stream_seqs:
            count = self.deliveries.get(sequence, 1)
            if 0 < self.max_deliver <= count:
                self._give_up(sequence, count)
            elif sequence not in self._queued:
                self._queued.add(sequence)
                self.redeliver.append(sequence)
        if len(self.redeliver) > 2 * len(self._queued) + _SWEEP_AT:
            self._sweep_redeliveries()

    def _give_up(self, stream_seq: int, count: int) -> None:
        self.acknowledge(stream_seq)
        self.done.pop()
        self.dead[stream_seq] = count
        self.given_up[stream_seq] = count
        self.exhausted.append((stream_seq, count))

    def _sweep_redeliveries(self) -> None:
        """Rebuild the queue without the entries that do not count."""
        withdrawn, self._withdrawn = self._withdrawn, {}
        kept: dict[int, None] = {}
        for sequence in self.redeliver:
            if withdrawn.get(sequence, 0):
                withdrawn[sequence] -= 1
            elif sequence in self._queued:
                kept.setdefault(sequence)
        self.redeliver = deque(kept)

    def _set_deadline(self, stream_seq: int, deadline_ns: int) -> None:
        self.pending[stream_seq] = (self.pending[stream_seq][0], deadline_ns)
        self._push_deadline(deadline_ns, [stream_seq])
        self._deadline_entries += 1

    def _push_deadline(self, deadline_ns: int, group: list[int]) -> None:
        if not (self.ack_wait_ns or self.backoff_ns):
            return
        if self._deadline_entries + len(self._deadlines) > 2 * len(self.pending) + _SWEEP_AT:
            self._sweep_deadlines()
        self._tie += 1
        heapq.heappush(self._deadlines, (deadline_ns, self._tie, group))

    def _sweep_deadlines(self) -> None:
        """Rebuild the heap from what is pending; sequences with one deadline stay together."""
        groups: dict[int, list[int]] = {}
        has_deadlines = bool(self.ack_wait_ns or self.backoff_ns)
        for sequence, (_, deadline_ns) in self.pending.items() if has_deadlines else ():
            if sequence not in self._queued:
                groups.setdefault(deadline_ns, []).append(sequence)
        self._deadline_entries = sum(map(len, groups.values()))
        self._deadlines = [
            (deadline_ns, tie, group) for tie, (deadline_ns, group) in enumerate(groups.items())
        ]
        self._tie = max(self._tie, len(groups))
        heapq.heapify(self._deadlines)

    def _move_floor(self) -> None:
        """The oldest pending message is done: the floor moves up to the next one."""
        order, pending = self._order, self.pending
        if not pending:
            order.clear()
            self.floor_consumer = self.delivered_consumer
            self.floor_stream = self.delivered_stream
            return
        while order[0] not in pending:
            order.popleft()
        head = order[0]
        self.floor_consumer = pending[head][0] - 1
        self.floor_stream = head - 1

    def restore_pending(self, entries: Iterable[Entry]) -> None:
        """Fill in pending messages: (stream, consumer sequence, deadline, deliveries), any order."""
        for sequence, consumer_seq, deadline_ns, count in sorted(entries):
            self.pending[sequence] = (consumer_seq, deadline_ns)
            self._order.append(sequence)
            if count > 1:
                self.deliveries[sequence] = count
        self._sweep_deadlines()
