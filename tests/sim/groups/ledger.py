"""What was published, who handled it when, and what must never be seen in that.

A handler's **run** has a key, a number (the message's place among those of its key), an instance and a
generation. Promised, and checked at every start and end of a run:

1. An instance never runs two handlers of one key at once, and no two instances do within a generation.
2. Runs of one key in two instances at once need a cause: something happened to the one that began
   earlier (it was frozen or cut off, its wire was slow for more than half a lease, the broker died, an admin
   took the consumer or the pin away), after it had begun or less than a lease before; or it ran on for longer
   than a change waits for.
3. Generations of a key never go back from one start to the next. Pauses are no excuse: who wakes up begins
   nothing before it knows that it still holds the pin. What ends a pin without asking its holder is one, for
   as long as the holder's lease runs: an admin who deletes the consumer, a broker that is restarted, and two
   instances of a member that delete its unused consumer at the same time.
4. No message of a key is begun before all those before it were completed (or given up, as dead letters).
   So leaving out what was completed before, the runs of a key are in the order of the stream.
5. A message says that it is owned when it is begun, and as long as it says so, no newer generation of its
   key has begun (with the exception of 3).
6. In the end all that was confirmed is completed, and acknowledged.
7. A message whose acknowledgement was confirmed is not begun again, unless an admin deletes the consumer of a
   static group, which alone knows of it; or, with the exception of 3, by a holder of an older generation that
   was handed it, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NoReturn

from sim.groups.loop import SECOND, Universe

if TYPE_CHECKING:
    from sim.groups.instance import Instance

__all__ = ["Broken", "Ledger", "Run"]


class Broken(AssertionError):
    """A promise was broken."""


class Run:
    """One call of a handler."""

    __slots__ = ("ended", "generation", "instance", "key", "number", "started_ns")

    def __init__(
        self, key: str, number: int, generation: int, instance: Instance, started_ns: int
    ) -> None:
        self.key = key
        self.number = number
        self.generation = generation
        self.instance = instance
        self.started_ns = started_ns
        self.ended = False

    def __str__(self) -> str:
        at = self.started_ns / SECOND - 1000
        return f"{self.key}-{self.number} by {self.instance.name} of {self.generation} at {at:.4f}"


class Ledger:
    """See the module. ``lease`` is the longest time, in seconds, for which an instance may trust a pin."""

    def __init__(self, universe: Universe, lease: float) -> None:
        self._universe = universe
        self._lease_ns = round(lease * SECOND)
        self.confirmed: dict[str, int] = defaultdict(int)
        """Of each key, up to which number the stream has it."""
        self.completed: dict[str, int] = defaultdict(int)
        """Of each key, up to which number all is done."""
        self._confirmed_ns: dict[tuple[str, int], int] = {}
        self.longest_wait = 0.0
        """Of a message, in seconds, from when the stream has it until it is done; 0 begins anew."""
        self._open = 0
        self._keeps_acknowledged = True
        self.starts: Counter[tuple[str, int]] = Counter()
        self.acknowledged: dict[tuple[str, int], Run] = {}
        """Those whose handler was told that its acknowledgement is there."""
        self.runs: dict[str, list[Run]] = defaultdict(list)
        self.latest: dict[str, Run] = {}
        self.counts: Counter[str] = Counter()
        self.disturbances: list[tuple[int, object]] = []
        """When what happened: to one process, or (None) to all."""
        self.usurpations: list[int] = []
        """When a pin was taken away that its holder may still trust in."""

    # What happens to the world

    def disturb(self, whom: object = None) -> None:
        """From now on ``whom``, a process, may not know what it should; None: nobody may."""
        self.disturbances.append((self._universe.monotonic_ns(), whom))

    def usurp(self) -> None:
        """Somebody took a pin away."""
        self.usurpations.append(self._universe.monotonic_ns())
        self.disturb()

    def forget(self) -> None:
        """A static group's consumer is deleted, and with it what is acknowledged, from now on."""
        self._keeps_acknowledged = False
        self.acknowledged.clear()

    def confirm(self, key: str, number: int) -> None:
        """The stream has this message."""
        self.confirmed[key] = number
        if number > self.completed[key]:
            self._confirmed_ns[key, number] = self._universe.monotonic_ns()
        self._open += 1

    # What the handlers do

    def start(self, key: str, number: int, generation: int, instance: Instance) -> Run:
        now_ns = self._universe.monotonic_ns()
        run = Run(key, number, generation, instance, now_ns)
        self._universe.note("start", key, number, generation, instance.name)
        self._check_exclusion(run)
        self._check_generation(run)
        self._check_order(run)
        self._check_confirmed(run)
        self.starts[key, number] += 1
        self.counts["run"] += 1
        if self.starts[key, number] > 1:
            self.counts["run again"] += 1
        self.runs[key].append(run)
        return run

    def is_told_to_be_owned(self, run: Run) -> None:
        """The message says that its instance surely owns the partition, now."""
        latest = self.latest[run.key]
        if latest.generation > run.generation and not self._is_usurped(run):
            self._broken(f"said to be owned, which it is not any more: {run}; now it is {latest}")

    def complete(self, run: Run) -> None:
        """Its work is done; it is about to be acknowledged."""
        self._universe.note("complete", run.key, run.number, run.instance.name)
        if run.number == self.completed[run.key] + 1:
            self.completed[run.key] = run.number
            now_ns = self._universe.monotonic_ns()
            since_ns = self._confirmed_ns.pop((run.key, run.number), now_ns)
            self.longest_wait = max(self.longest_wait, (now_ns - since_ns) / SECOND)
            self._open -= 1
        elif run.number > self.completed[run.key]:
            self._broken(f"{run}: completed when only {self.completed[run.key]} were")

    def acknowledge(self, run: Run) -> None:
        """Its acknowledgement is confirmed."""
        self._universe.note("acknowledged", run.key, run.number, run.instance.name)
        self.counts["acknowledgement confirmed"] += 1
        if self._keeps_acknowledged:
            self.acknowledged[run.key, run.number] = run

    def end(self, run: Run) -> None:
        """The handler returns, or raises."""
        run.ended = True
        runs = self.runs[run.key]
        if run in runs:
            runs.remove(run)

    def _broken(self, text: str) -> NoReturn:
        """The code under test may swallow what a handler raises, so it is kept, too."""
        self._universe.failures.append(text)
        raise Broken(text)

    # What must hold

    def _check_exclusion(self, run: Run) -> None:
        runs = self.runs[run.key]
        for other in list(runs):
            if other.instance.process.is_dead:
                runs.remove(other)
            elif other.instance is run.instance:
                self._broken(f"two runs at once in one instance: {other}, and {run}")
            elif other.generation == run.generation:
                self._broken(f"two runs at once in one generation: {other}, and {run}")
            elif not self._has_cause(other):
                self._broken(f"two runs at once for no reason: {other}, and {run}")
            else:
                self.counts["overlap with a cause"] += 1

    def _has_cause(self, run: Run) -> bool:
        """Whether another instance may begin while this run, which began earlier, goes on."""
        now_ns = self._universe.monotonic_ns()
        if now_ns - run.started_ns >= self._lease_ns:
            return True
        since_ns = run.started_ns - self._lease_ns
        return any(
            at_ns >= since_ns and whom in (None, run.instance.process)
            for at_ns, whom in reversed(self.disturbances)
        )

    def _check_generation(self, run: Run) -> None:
        latest = self.latest.get(run.key)
        if run.generation <= 0:
            self._broken(f"no generation: {run}")
        if latest is not None and latest.generation > run.generation:
            if not self._is_usurped(run):
                self._broken(f"an older generation begins after a newer one: {latest}, then {run}")
            self.counts["older generation with a cause"] += 1
            return
        if latest is not None and latest.instance is not run.instance:
            self.counts["key changed hands"] += 1
        self.latest[run.key] = run

    def _check_confirmed(self, run: Run) -> None:
        before = self.acknowledged.get((run.key, run.number))
        if before is None:
            return
        if before.generation <= run.generation or not self._is_usurped(run):
            self._broken(
                f"begun again though its acknowledgement was confirmed: {before}, and {run}"
            )
        self.counts["confirmed, and begun again with a cause"] += 1

    def _is_usurped(self, run: Run) -> bool:
        since_ns = run.started_ns - self._lease_ns
        return any(at_ns >= since_ns for at_ns in self.usurpations)

    def _check_order(self, run: Run) -> None:
        done = self.completed[run.key]
        if run.number > done + 1:
            self._broken(f"begun before {run.key}-{done + 1} was completed: {run}")

    # In the end

    @property
    def is_done(self) -> bool:
        """Whether all that was confirmed is completed."""
        return not self._open

    def missing(self) -> list[str]:
        """What was confirmed and is not completed."""
        return [
            f"{key}-{number}"
            for key, last in self.confirmed.items()
            for number in range(self.completed[key] + 1, last + 1)
        ]

    def oldest_wait(self) -> float:
        """For how many seconds the oldest message that is not done has waited."""
        since_ns = min(self._confirmed_ns.values(), default=None)
        return 0.0 if since_ns is None else (self._universe.monotonic_ns() - since_ns) / SECOND

    def repeated(self) -> list[str]:
        return [f"{key}-{number}" for (key, number), count in self.starts.items() if count > 1]
