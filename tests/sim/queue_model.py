"""What ``model`` leaves out: heartbeats, a queue that is full, and acknowledgements of all before."""

from __future__ import annotations

from dataclasses import dataclass

from sim import vocabulary as v
from sim.model import Model
from sim.vocabulary import Request

SECOND = 1_000_000_000


@dataclass
class QueueModel(Model):
    """A pull consumer whose requests may ask for heartbeats, and of which only some may wait."""

    max_waiting: int = 512
    acks_all: bool = False
    looked_at: int = -SECOND  # when a full queue was last searched for the deaf

    def pull(self, request: Request) -> None:
        request.quiet_since = self.now
        if 2 * request.heartbeat > (request.expires_at or self.now) - self.now:
            self.say(request.inbox, v.TOO_OFTEN)
        else:
            super().pull(request)

    def join(self, request: Request) -> None:
        if len(self.waiting) >= self.max_waiting and self.now - self.looked_at >= SECOND:
            self.looked_at = self.now
            self.drop_deaf()
        if len(self.waiting) < self.max_waiting:
            super().join(request)
        elif not request.heartbeat:
            self.say(request.inbox, v.FULL)  # with heartbeats, their absence says it

    def deliver(self, request: Request, sequence: int) -> None:
        before = request.delivered
        super().deliver(request, sequence)
        if request.delivered > before:
            request.quiet_since = self.now

    def ack(self, sequence: int, consumer_seq: int) -> bool:
        if not self.acks_all or not 0 < sequence < self.next_seq:
            return super().ack(sequence, consumer_seq)
        if consumer_seq > self.floor[0] and sequence > self.floor[1]:
            said = self.pending.get(sequence)
            for earlier in sorted(s for s in self.pending if s <= sequence):
                self.done(earlier)
            if self.pending:
                number = said.consumer_seq if said else consumer_seq
                following = self.pending[min(self.pending)].consumer_seq - 1
                self.floor = (min(number, following), sequence)
        self.serve()
        return True

    def restart(self) -> None:
        self.looked_at = -SECOND
        super().restart()

    def advance_to(self, time: int) -> None:
        while True:
            due = [r.quiet_since + r.heartbeat for r in self.waiting if r.heartbeat]
            if min(due, default=time + 1) > time:
                break
            super().advance_to(min(due))
            self.beat()
        super().advance_to(time)

    def beat(self) -> None:
        due = [r for r in self.waiting if 0 < r.heartbeat <= self.now - r.quiet_since]
        for request in due:
            request.quiet_since = self.now
            if request.inbox in self.deaf:
                self.waiting.remove(request)
        if due:
            self.nothing_left()
        for request in due:
            if request in self.waiting:
                self.said.append((request.inbox, (v.HEARTBEAT, self.delivered)))
