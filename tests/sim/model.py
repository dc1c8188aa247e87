"""A pull consumer as the documents describe it, written to be read and not to be fast.

It scans lists, keeps no heaps and no caches, and knows nothing of batches, turns or journals.
"""

from __future__ import annotations

from dataclasses import dataclass, field

NOTHING_LEFT = "404 No Messages"
EXPIRED = "408 Request Timeout"
TOO_LARGE = "409 Message Size Exceeds MaxBytes"
COMPLETED = "409 Batch Completed"


@dataclass
class Request:
    """A pull request, as long as it waits."""

    inbox: int
    left: int
    bytes_left: int | None
    no_wait: bool
    expires_at: int | None
    delivered: int = 0


@dataclass
class Delivery:
    """A delivered message that is not acknowledged."""

    consumer_seq: int
    deadline: int
    count: int = 1


@dataclass(frozen=True)
class Stored:
    """A message in the stream; ``time`` as its acknowledgement subject shows it."""

    subject: str
    size: int
    time: int


@dataclass
class Model:
    """One stream with one explicit-ack pull consumer. Times are nanoseconds."""

    matches: str = ""
    ack_wait: int = 1
    max_deliver: int = -1
    max_ack_pending: int = 1000
    now: int = 0
    last_seq: int = 0
    stored: dict[int, Stored] = field(default_factory=dict)
    next_seq: int = 1
    delivered: tuple[int, int] = (0, 0)
    floor: tuple[int, int] = (0, 0)
    pending: dict[int, Delivery] = field(default_factory=dict)
    late: list[int] = field(default_factory=list)
    waiting: list[Request] = field(default_factory=list)
    deaf: set[int] = field(default_factory=set)
    said: list[tuple[int, object]] = field(default_factory=list)

    # -- what the outside does

    def publish(self, subject: str, size: int, time: int) -> None:
        self.last_seq += 1
        self.stored[self.last_seq] = Stored(subject, size, time)
        self.serve()

    def delete(self, sequence: int) -> None:
        del self.stored[sequence]
        self.done(sequence)
        self.serve()

    def purge_below(self, sequence: int) -> None:
        purged = [s for s in self.stored if s < sequence]
        if not purged:
            return
        for old in purged:
            del self.stored[old]
            self.done(old)
        first = min(self.stored, default=self.last_seq + 1)
        self.next_seq = max(self.next_seq, first)
        if not self.pending or min(self.pending) >= first:
            self.floor = (self.floor[0], max(self.floor[1], first - 1))
        self.serve()

    def pull(
        self,
        inbox: int,
        batch: int,
        *,
        no_wait: bool = False,
        expires: int | None = None,
        max_bytes: int | None = None,
    ) -> None:
        available = self.num_pending() + len(self.late)
        if no_wait and not available and expires is None:
            self.say(inbox, NOTHING_LEFT)
            return
        if no_wait and available and available < sum(max(r.left, 1) for r in self.waiting):
            self.say(inbox, "408 Requests Pending")
            return
        end = None if expires is None else self.now + expires
        self.waiting.append(Request(inbox, batch, max_bytes, no_wait, end))
        self.serve()

    def ack(self, sequence: int) -> bool:
        """True when it is answered."""
        if not 0 < sequence < self.next_seq:
            return False
        self.done(sequence)
        self.serve()
        return True

    def nak(self, sequence: int, consumer_seq: int, delay: int = 0) -> bool:
        if not 0 < sequence < self.next_seq:
            return False
        delivery = self.pending.get(sequence)
        if delivery is not None and self.floor[0] < consumer_seq <= self.delivered[0]:
            delivery.deadline = self.now + delay
            if not delay:
                self.make_late(sequence)
            elif sequence in self.late:
                self.late.remove(sequence)
            self.serve()
        return True

    def in_progress(self, sequence: int) -> bool:
        if not 0 < sequence < self.next_seq:
            return False
        if sequence in self.pending:
            self.pending[sequence].deadline = self.now + self.ack_wait
        return True

    def reset(self, sequence: int) -> None:
        self.pending.clear()
        self.late.clear()
        self.delivered = self.floor = (0, sequence - 1)
        self.next_seq = sequence
        self.serve()

    def restart(self) -> None:
        """Requests and the order of late messages are forgotten; deadlines are not."""
        self.waiting.clear()
        self.late.clear()
        self.next_seq = self.delivered[1] + 1
        self.out_of_time()

    def advance_to(self, time: int) -> None:
        while True:
            ends = [r.expires_at for r in self.waiting if r.expires_at is not None]
            ends += [d.deadline for s, d in self.pending.items() if s not in self.late]
            due = [end for end in ends if end <= time]
            if not due:
                break
            self.now = max(self.now, min(due))
            self.expire_requests()
            self.out_of_time()
            self.serve()
        self.now = time

    # -- what follows from it

    def serve(self) -> None:
        """Late messages first, then new ones, to the requests in turn."""
        while self.waiting:
            sequence = self.late[0] if self.late else self.next_message()
            if sequence is None:
                return  # too many are pending: everybody waits for an ack
            if not sequence:
                self.next_seq = self.last_seq + 1
                self.nothing_left()
                return
            while self.waiting and self.waiting[0].inbox in self.deaf:
                self.waiting.pop(0)
            if not self.waiting:
                return
            self.deliver(self.waiting.pop(0), sequence)

    def next_message(self) -> int | None:
        if len(self.pending) >= self.max_ack_pending:
            return None
        return min((s for s in self.stored if s >= self.next_seq and self.wanted(s)), default=0)

    def deliver(self, request: Request, sequence: int) -> None:
        again = sequence in self.pending
        count = self.pending[sequence].count + 1 if again else 1
        consumer_seq = self.delivered[0] + 1
        pending = self.num_pending() - (0 if again else 1)
        stored = self.stored[sequence]
        reply = f"$JS.ACK.S.C.{count}.{sequence}.{consumer_seq}.{stored.time}.{pending}"
        size = len(stored.subject) + len(reply) + stored.size
        if request.bytes_left is not None and size > request.bytes_left:
            self.say(request.inbox, TOO_LARGE, request)
            return
        if again:
            self.late.remove(sequence)
            self.pending[sequence].count = count
            self.pending[sequence].deadline = self.now + self.ack_wait
            self.delivered = (consumer_seq, self.delivered[1])
        else:
            self.pending[sequence] = Delivery(consumer_seq, self.now + self.ack_wait)
            self.delivered = (consumer_seq, sequence)
            self.next_seq = sequence + 1
        self.said.append((request.inbox, (count, sequence, consumer_seq, pending)))
        request.left -= 1
        request.delivered += 1
        if request.bytes_left is not None:
            request.bytes_left -= size
        if request.bytes_left == 0:
            return
        if request.left > 0:
            self.waiting.append(request)
        elif request.bytes_left is not None:
            self.say(request.inbox, COMPLETED, request)

    def nothing_left(self) -> None:
        for request in list(self.waiting):
            if request.no_wait and (request.expires_at is None or request.delivered):
                self.waiting.remove(request)
                self.say(request.inbox, NOTHING_LEFT)

    def expire_requests(self) -> None:
        due = [r for r in self.waiting if r.expires_at is not None and r.expires_at <= self.now]
        for request in sorted(due, key=lambda r: r.expires_at or 0):
            self.waiting.remove(request)
            self.say(request.inbox, EXPIRED, request)

    def out_of_time(self) -> None:
        for sequence in sorted(self.pending):
            if self.pending[sequence].deadline <= self.now and sequence not in self.late:
                self.make_late(sequence)

    def make_late(self, sequence: int) -> None:
        if 0 < self.max_deliver <= self.pending[sequence].count:
            self.done(sequence)
        elif sequence not in self.late:
            self.late.append(sequence)

    def done(self, sequence: int) -> None:
        if sequence not in self.pending:
            return
        oldest = min(self.pending)
        del self.pending[sequence]
        if sequence in self.late:
            self.late.remove(sequence)
        if not self.pending:
            self.floor = self.delivered
        elif sequence == oldest:
            oldest = min(self.pending)
            self.floor = (self.pending[oldest].consumer_seq - 1, oldest - 1)

    def wanted(self, sequence: int) -> bool:
        return not self.matches or self.stored[sequence].subject == self.matches

    def num_pending(self) -> int:
        return sum(1 for s in self.stored if s >= self.next_seq and self.wanted(s))

    def say(self, inbox: int, status: str, request: Request | None = None) -> None:
        """A status; of a request that had more coming also what that was."""
        left = None if request is None else (request.left, request.bytes_left or 0)
        self.said.append((inbox, (status, left)))
