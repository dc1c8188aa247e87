"""A pull consumer as the documents describe it, to be read: no heaps, caches, batches or journals."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field

from sim import vocabulary as v
from sim.vocabulary import Delivery, Request, Stored


@dataclass
class Model:
    """One stream with one explicit-ack pull consumer. Times are nanoseconds."""

    matches: str = ""
    waits: tuple[int, ...] = (1,)  # the ack wait, or the backoff
    max_deliver: int = -1
    max_ack_pending: int = 1000
    policy: str = "none"
    pin_timeout: int = 1
    drains: bool = True
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
    paused_until: int = 0
    pins: int = 0
    pin: int | None = None
    pin_until: int = 0
    in_hand: set[int] = field(default_factory=set)  # what a handover waits for
    handover_until: int = 0

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
        for old in purged:
            del self.stored[old]
            self.done(old)
        first = min(self.stored, default=self.last_seq + 1) if purged else 0
        self.next_seq = max(self.next_seq, first)
        if not self.pending or min(self.pending) >= first:
            self.floor = (self.floor[0], max(self.floor[1], first - 1))
        self.serve()

    def pull(self, request: Request) -> None:
        if request.pin is not None and request.pin == self.pin:
            self.pin_until = self.now + self.pin_timeout
        elif request.pin is not None and (self.pin is not None or self.handing_over()):
            self.say(request.inbox, v.MISMATCH)
            return
        available = self.num_pending() + len(self.late)
        if request.no_wait and available < sum(max(r.left, 1) for r in self.waiting):
            self.drop_deaf()
        if request.no_wait and not available and request.expires_at is None:
            self.say(request.inbox, v.NOTHING_LEFT)
        elif request.no_wait and 0 < available < sum(max(r.left, 1) for r in self.waiting):
            self.say(request.inbox, v.OTHERS_WAIT)
        else:
            self.join(request)

    def join(self, request: Request) -> None:
        self.waiting.append(request)
        self.serve()

    def ack(self, sequence: int, consumer_seq: int) -> bool:
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
            if delay:
                delay += v.nth(self.waits, delivery.count) - self.waits[0]
            delivery.deadline = self.now + delay
            delivery.postponed = delay > 0
            if not delay:
                self.make_late(sequence)
            elif sequence in self.late:
                self.late.remove(sequence)
            self.serve()
        return True

    def in_progress(self, sequence: int) -> bool:
        if delivery := self.pending.get(sequence):
            delivery.deadline = self.now + v.nth(self.waits, delivery.count)
        return 0 < sequence < self.next_seq

    def reset(self, sequence: int) -> None:
        self.pending.clear()
        self.late.clear()
        self.delivered = self.floor = (0, sequence - 1)
        self.next_seq = sequence
        self.serve()

    def pause(self, until: int) -> None:
        self.paused_until = until
        self.serve()

    def unpin(self) -> None:
        if self.pin is not None:
            self.pin = None
            self.hand_over()
        self.serve()

    def restart(self) -> None:
        """Requests, pins and the order of late messages are forgotten; deadlines are not."""
        self.waiting.clear()
        self.late.clear()
        self.pin = None
        self.next_seq = self.delivered[1] + 1
        for delivery in self.pending.values():
            delivery.postponed = False
        if self.policy == "pinned_client":
            self.hand_over()
        self.out_of_time()

    def advance_to(self, time: int) -> None:
        while True:
            ends = [r.expires_at for r in self.waiting if r.expires_at is not None]
            ends += [d.deadline for s, d in self.pending.items() if s not in self.late]
            ends += [self.paused_until] * (self.paused_until > self.now)
            ends += [self.pin_until] * (self.pin is not None)
            ends += [self.handover_until] * self.handing_over()
            if min(ends, default=time + 1) > time:
                break
            self.now = max(self.now, min(ends))
            expired = [r for r in self.waiting if (r.expires_at or self.now + 1) <= self.now]
            for request in expired:
                self.waiting.remove(request)
                self.say(request.inbox, v.EXPIRED, request)
            if expired:
                self.nothing_left()
            self.out_of_time()
            if self.pin is not None and self.pin_until <= self.now:
                self.unpin()
            self.serve()
        self.now = time

    def drop_deaf(self) -> None:
        self.waiting = [r for r in self.waiting if r.inbox not in self.deaf]

    def serve(self) -> None:
        """Late messages first, then new ones, to the requests in turn."""
        while self.waiting:
            if self.paused_until > self.now or self.handing_over():
                self.nothing_left()
                return
            sequence = self.late[0] if self.late else self.next_message()
            if sequence is None:
                return  # too many are pending: everybody waits for an ack
            if not sequence:
                self.next_seq = self.last_seq + 1
            request = self.choose(sequence) if sequence else None
            if request is None:
                self.nothing_left()
                return
            self.deliver(request, sequence)

    def next_message(self) -> int | None:
        if len(self.pending) >= self.max_ack_pending:
            return None
        return min((s for s in self.stored if s >= self.next_seq and self.wanted(s)), default=0)

    def choose(self, sequence: int) -> Request | None:
        """Whose turn it is. Who must wait for now keeps the place; the deaf and the wrong do not."""
        pending = self.num_pending() + (sequence in self.pending)
        for request in sorted(self.waiting, key=self.lane):
            verdict = "" if request.inbox in self.deaf else self.verdict(request, pending)
            if verdict == v.SKIP:
                continue
            self.waiting.remove(request)
            if verdict == v.SERVE:
                return request
            if verdict:
                self.say(request.inbox, verdict, request)
        return None

    def lane(self, request: Request) -> int:
        if self.policy == "overflow":
            return int(request.min_pending > 0 or request.min_ack_pending > 0)
        return request.priority if self.policy == "prioritized" else 0

    def verdict(self, request: Request, pending: int) -> str:
        if self.policy == "overflow" and self.lane(request):
            enough = 0 < request.min_pending <= pending
            return v.SERVE if enough or 0 < request.min_ack_pending <= len(self.pending) else v.SKIP
        if self.policy != "pinned_client":
            return v.SERVE
        if request.pin is not None:
            return v.SERVE if request.pin == self.pin else v.WRONG_PIN
        return v.SKIP if self.pin is not None else v.SERVE

    def deliver(self, request: Request, sequence: int) -> None:
        before = self.pending.get(sequence)
        count = before.count + 1 if before else 1
        consumer_seq = self.delivered[0] + 1
        pending = self.num_pending() - (not before)
        subject, size, time = astuple(self.stored[sequence])
        size += len(f"{subject}$JS.ACK.S.C.{count}.{sequence}.{consumer_seq}.{time}.{pending}")
        chosen = self.policy == "pinned_client" and self.pin is None and not request.plain
        self.pins += chosen  # a pin is used up even if the message turns out too large
        if request.bytes_left is not None and size > request.bytes_left:
            self.say(request.inbox, v.TOO_LARGE, request)
            return
        if chosen:
            self.pin = request.pin = self.pins
            self.pin_until = self.now + self.pin_timeout
        if before:
            self.late.remove(sequence)
        self.delivered = (consumer_seq, self.delivered[1] if before else sequence)
        self.next_seq = self.next_seq if before else sequence + 1
        first = before.consumer_seq if before else consumer_seq
        self.pending[sequence] = Delivery(first, self.now + v.nth(self.waits, count), count)
        self.said.append((request.inbox, (count, sequence, consumer_seq, pending, self.pin)))
        request.left -= 1
        request.delivered += 1
        if request.bytes_left is not None:
            request.bytes_left -= size
        if request.left > 0 and request.bytes_left != 0:
            self.waiting.append(request)
        elif request.bytes_left:
            self.say(request.inbox, v.COMPLETED, request)
        for other in list(self.waiting) if chosen and self.drains else []:
            if other.pin not in (None, self.pin):
                self.waiting.remove(other)
                self.say(other.inbox, v.WRONG_PIN, other)

    def hand_over(self) -> None:
        """Deliveries wait for what is in hand, but not longer than the longest wait."""
        if self.drains:
            self.in_hand = set(self.pending)
            self.handover_until = self.now + max(self.waits)

    def handing_over(self) -> bool:
        in_hand = {s for s, d in self.pending.items() if s not in self.late and not d.postponed}
        self.in_hand &= in_hand if self.now < self.handover_until else set()
        return bool(self.in_hand)

    def nothing_left(self) -> None:
        for request in list(self.waiting):
            if request.no_wait and (request.expires_at is None or request.delivered):
                self.waiting.remove(request)
                self.say(request.inbox, v.NOTHING_LEFT)

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
        self.late = [late for late in self.late if late != sequence]
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
        with_rest = status not in (v.NOTHING_LEFT, v.OTHERS_WAIT, v.MISMATCH)
        left = (request.left, request.bytes_left or 0) if request and with_rest else None
        self.said.append((inbox, (status, left)))
