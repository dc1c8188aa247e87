"""A consumer's one timer: requests and acks that run out of time, pause, pin and inactivity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...ports import Timer

if TYPE_CHECKING:
    from .consumer import Consumer

__all__ = ["Alarm"]

_GRACE_NS: Final = 100_000_000  # an inactive consumer stays this much longer than its threshold


class Alarm:
    """Asks for one call at the earliest thing to do; times are monotonic readings."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._clock = consumer.context.clock
        self._timer: Timer | None = None
        self._timer_ns = 0
        self.last_active_ns = self._clock.monotonic_ns()
        """When the consumer was last pulled from, or delivered."""
        self.acked_lately = False
        """Whether an ack came since the last look at inactivity."""

    def arm(self) -> None:
        """Have the timer run no later than the earliest thing to do."""
        earliest = self._earliest_ns()
        if earliest is None or (self._timer is not None and self._timer_ns <= earliest):
            return
        self.cancel()
        self._timer_ns = earliest
        self._timer = self._consumer.context.timers.call_at(earliest, self._run)

    def cancel(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _earliest_ns(self) -> int | None:
        consumer = self._consumer
        times = [consumer.queue.next_time_ns(), consumer.state.next_deadline_ns()]
        if consumer.paused_until_ns:
            times.append(consumer.paused_until_ns - consumer.wall_offset_ns())
        if consumer.push is not None:
            times.append(consumer.push.next_time_ns())
        if self._may_go():
            times.append(self._inactive_at_ns())
        if consumer.replay is not None and consumer.replay.due_ns:
            times.append(consumer.replay.due_ns)
        if consumer.pinning is not None:
            times.append(consumer.pinning.next_time_ns())
        return min((at_ns for at_ns in times if at_ns is not None), default=None)

    def _run(self) -> None:
        self._timer = None
        consumer = self._consumer
        now_ns = self._clock.monotonic_ns()
        if consumer.push is not None:
            consumer.push.run_due(now_ns)
        consumer.pulls.run_due(now_ns)
        if consumer.state.expire(now_ns):
            consumer.wake()
        consumer.acks.give_up_exhausted()
        if consumer.replay is not None and 0 < consumer.replay.due_ns <= now_ns:
            consumer.replay.due_ns = 0
            consumer.wake()
        if consumer.pinning is not None:
            consumer.pinning.run_due(now_ns)
        if consumer.paused_until_ns and not consumer.is_paused(self._clock.now_ns()):
            until_ns, consumer.paused_until_ns = consumer.paused_until_ns, 0
            consumer.context.advisories.paused(consumer, until_ns)
            consumer.wake()
        if self._may_go() and self._inactive_at_ns() <= now_ns and not self._is_used(now_ns):
            consumer.on_inactive(consumer)
            return
        self.arm()

    def _may_go(self) -> bool:
        """Whether inactivity ends the consumer: one that pushes is active while somebody listens."""
        consumer = self._consumer
        return consumer.inactive_ns > 0 and (consumer.push is None or not consumer.push.active)

    def _inactive_at_ns(self) -> int:
        return self.last_active_ns + self._consumer.inactive_ns + _GRACE_NS

    def _is_used(self, now_ns: int) -> bool:
        """Whether an inactive consumer stays: it has requests, acks, or deliveries with time left."""
        consumer = self._consumer
        if consumer.push is not None:
            return False
        consumer.pulls.drop_abandoned()
        if consumer.queue.waiting or self.acked_lately:
            self.acked_lately = False
            self.last_active_ns = now_ns
            return True
        latest_ns = max((entry[1] for entry in consumer.state.pending.values()), default=0)
        if latest_ns > self.last_active_ns:
            self.last_active_ns = latest_ns
            return True
        return False
