"""One seed: a query from a stream to a stream, and what happens to its driver, its tasks and the broker."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from headrace.errors import HeadraceError
from headrace.spark.links.link import Link
from headrace.spark.options import Connection
from headrace.spark.sink.fenced import NotComparedError
from headrace.spark.sink.markers import FencedError, PlanChangedError
from headrace.wire import encode_headers
from sim.spark.engine import TASK_FAILURES_MAX, Attempt, Checkpoint, Driver, SparkError
from sim.spark.ledger import Ledger
from sim.spark.procs import Killed, here
from sim.spark.wire import Broker, VirtualSocket

__all__ = ["EVENTS", "World"]

EVENTS = (
    "cut",
    "kill task",
    "freeze",
    "twin",
    "kill broker",
    "cut power",
    "kill driver",
    "reset source",
    "reset target",
    "recut",
)
LIVES_MAX = 60
STEPS_MAX = 200_000
_workers = itertools.count(1)
OUT_SIZE_MAX = 1500


class World:
    """Plays one seed.

    Args:
        delivery: of the sink; None: the seed decides.
        faults: how many at most; None: the seed decides.
        die_at: a hook at which the driver dies once, instead of all other faults.
        recut: how likely a query that starts again has other options.
        slots: how many tasks run at once.
        events: what may happen.
    """

    def __init__(
        self,
        seed: int,
        *,
        delivery: str | None = None,
        faults: int | None = None,
        die_at: str = "",
        recut: float = 0.15,
        slots: int | None = None,
        events: Sequence[str] = EVENTS,
    ) -> None:
        self.rng = rng = random.Random(f"spark {seed}")
        self.counts: Counter[str] = Counter()
        self.broker = Broker(random.Random(rng.getrandbits(32)))
        self.broker.on_step = self._step
        self.delivery = delivery or rng.choice(
            ["exactlyOnce"] * 7 + ["dedupe"] * 2 + ["atLeastOnce"]
        )
        self.ledger = Ledger(self.delivery)
        self.faults = rng.randrange(3, 14) if faults is None else faults
        self._die_at = die_at
        self._events = events
        self._recut_likely = recut
        self._likely = rng.choice((0.006, 0.015, 0.04))
        self._rolls_up = rng.random() < 0.5
        self._poison = rng.random() < 0.5
        self._slots = slots or rng.randrange(1, 4)
        self._failures_max = rng.choice((1, TASK_FAILURES_MAX))
        self._bad_to = rng.choice(("skip", "deadletter:DEAD.bad"))
        self._cut = self._draw_cut()
        self._other_cut = self._cut
        self._may_refuse = False
        self._portions = rng.randrange(1, 4)
        self._is_quiet = True
        self._driver_dies = False
        self._twin_wanted: set[int] = set()
        self._zombies: list[Attempt] = []
        self._running: list[Attempt] = []
        self._checkpoint = Checkpoint()
        self._idle_workers: list[int] = []

    # -- the query

    def play(self) -> Counter[str]:
        """Run the query until it has read everything, whatever happens; then judge."""
        with self.broker.installed():
            try:
                self._create()
                self._publish()
                lives = 0
                while not self._live():
                    lives += 1
                    assert lives < LIVES_MAX, "the query never comes to its end"
                self._end_zombies()
                self._judge()
                self.counts["read by a consumer"] = self.broker.pulls
            finally:
                for attempt in [*self._zombies, *self._running]:
                    attempt.proc.kill()
        return self.counts

    def _live(self) -> bool:
        """One life of the driver; whether it has read everything."""
        self._recut()
        driver = None
        self._driver_dies = False
        self._is_quiet = False
        try:
            driver = Driver(
                self._checkpoint, self._source(), self._sink(), self._run_tasks, self._hook
            )
            while True:
                lives = self.ledger.lives
                if driver.run_batch():
                    self._may_refuse = False
                elif not self._portions and self.ledger.lives == lives:
                    return True
                if self._portions and self.rng.random() < 0.5:
                    self._publish()
        except Killed:
            self.counts["driver killed"] += 1
        except (HeadraceError, SparkError) as error:
            self._accept(error.__cause__ if isinstance(error, SparkError) else error)
        finally:
            self._is_quiet = True
            self._leave_tasks()
            if driver is not None:
                self.counts["handed over"] += driver.handed_over
                driver.close()
        return False

    def _accept(self, error: BaseException | None) -> None:
        """A query may die, but only of what may kill it."""
        self.counts["query died"] += 1
        if isinstance(error, PlanChangedError | NotComparedError):
            assert self._may_refuse or self.ledger.lives, f"refused without a reason: {error}"
            self.counts["recut refused"] += 1
            self._cut, self._other_cut = self._other_cut, self._cut
            return
        assert not isinstance(error, FencedError), f"who should write was refused: {error}"
        assert isinstance(error, HeadraceError), error
        self.counts[type(error).__name__] += 1

    def _draw_cut(self) -> dict[str, str]:
        return {
            "maxTasks": str(self.rng.randrange(1, 5)),
            "minMessagesPerTask": str(self.rng.choice((5, 20, 60))),
        }

    def _recut(self) -> None:
        """Now and then somebody restarts the query with other options, a batch being under way."""
        pending = max(self._checkpoint.offsets, default=-1) not in self._checkpoint.commits
        if self._may_refuse:
            return
        if (
            self.faults > 0
            and pending
            and not self._die_at
            and self.rng.random() < self._recut_likely
        ):
            self.counts["recut"] += 1
            self._other_cut, self._cut = self._cut, self._draw_cut()
            self._may_refuse = self.delivery == "exactlyOnce"
            self.ledger.is_recut = True

    def _source(self) -> dict[str, str]:
        rng = random.Random(len(self._checkpoint.offsets))
        return {
            "servers": "nats://virtual:4222",
            "stream": "IN",
            "includeHeaders": "true",
            "maxOffsetsPerTrigger": str(rng.choice((30, 80, 150))),
            "rowsPerBatch": str(rng.choice((7, 25))),
            "pollTimeout": "50ms",
            "onStreamReset": "earliest",
            "onBadMessage": self._bad_to,
            **self._cut,
        }

    def _sink(self) -> dict[str, str]:
        return {
            "servers": "nats://virtual:4222",
            "stream": "OUT",
            "subject": "OUT.rows",
            "delivery": self.delivery,
            "sinkId": "sink",
            "rowsPerAtomicBatch": str(self.rng.choice((3, 10, 999))),
            "maxInFlight": str(self.rng.choice((5, 8000))),
            "onBadRow": self._bad_to,
        }

    # -- tasks

    def _run_tasks(self, driver: Driver, batch: int, work: list[bytes]) -> list[bytes]:
        self.ledger.batch = batch
        if not driver.epoch:
            self.ledger.blind.add(batch)
        waiting = list(range(len(work)))
        results: dict[int, bytes] = {}
        failures: Counter[int] = Counter()
        numbers: Counter[int] = Counter()

        def launch(partition: int) -> None:
            attempt = Attempt(driver, batch, partition, numbers[partition], work[partition])
            numbers[partition] += 1
            attempt.proc.worker = self._idle_workers.pop() if self._idle_workers else next(_workers)
            self._running.append(attempt)

        for _ in range(STEPS_MAX):
            if self._driver_dies:
                raise Killed
            if len(results) == len(work):
                self._leave_tasks()
                return [results[partition] for partition in range(len(work))]
            busy = [each for each in self._running if not each.proc.is_frozen]
            if waiting and len(busy) < self._slots:
                launch(waiting.pop(0))
                continue
            for partition in sorted({each.partition for each in self._running} - results.keys()):
                working = sum(each.partition == partition for each in busy)
                if working == 0 or (working == 1 and partition in self._twin_wanted):
                    self.counts["second attempt"] += 1
                    launch(partition)
            self._twin_wanted.clear()
            attempt = self._one_step()
            if attempt is None or not attempt.proc.is_over or attempt not in self._running:
                continue
            self._running.remove(attempt)
            partition, error = attempt.partition, attempt.proc.error
            if error is None:
                results.setdefault(partition, attempt.proc.result)
                self._idle_workers.append(attempt.proc.worker)
                self._same_rows(attempt)
                continue
            if partition in results:
                continue
            if not isinstance(error, HeadraceError | Killed):
                raise error
            failures[partition] += 1
            if failures[partition] >= self._failures_max:
                raise SparkError(f"task {partition} of batch {batch} failed") from (
                    error if isinstance(error, HeadraceError) else _lost()
                )
            if not any(each.partition == partition for each in self._running):
                waiting.insert(0, partition)
        raise AssertionError(f"batch {batch} never comes to its end")

    def _one_step(self) -> Attempt | None:
        """Let one process go on, or time pass."""
        now = self.broker.now
        able = [each for each in self._running if each.proc.may_run(now)]
        undead = [each for each in self._zombies if each.proc.may_run(now)]
        if undead and (not able or self.rng.random() < 0.2):
            zombie = self.rng.choice(undead)
            zombie.proc.resume()
            if zombie.proc.is_over:
                self._bury(zombie)
            return None
        if able:
            attempt = self.rng.choice(able)
            attempt.proc.resume()
            return attempt
        asleep = [each.proc.wakes_at for each in self._running if not each.proc.is_frozen]
        self.broker.advance(max(0.001, min(asleep, default=now) - now))
        return None

    def _same_rows(self, attempt: Attempt) -> None:
        """A batch that runs again has the rows it had, byte by byte."""
        cut = json.dumps(self._cut)
        self.ledger.compare(attempt.batch, (attempt.partition, cut), attempt.seen)

    def _leave_tasks(self) -> None:
        """The stage is over: what still runs is killed, or left behind on a machine that does not hear."""
        for attempt in self._running:
            if attempt.proc.is_over:
                continue
            if self.rng.random() < 0.5:
                attempt.proc.kill()
            else:
                self.counts["left behind"] += 1
                attempt.proc.is_frozen = False
                self._zombies.append(attempt)
        self._running.clear()

    def _end_zombies(self) -> None:
        for zombie in list(self._zombies):
            for _ in range(STEPS_MAX):
                if zombie.proc.is_over:
                    break
                if not zombie.proc.may_run(self.broker.now):
                    self.broker.advance(max(0.001, zombie.proc.wakes_at - self.broker.now))
                zombie.proc.resume()
            self._bury(zombie)

    def _bury(self, zombie: Attempt) -> None:
        self._zombies.remove(zombie)
        error = zombie.proc.error
        if error is None:
            self.counts["zombie found all stored"] += 1
            return
        assert isinstance(error, HeadraceError | Killed), error
        self.counts["zombie refused" if isinstance(error, FencedError) else "zombie ended"] += 1

    # -- what happens

    def _hook(self, name: str) -> None:
        if self._die_at:
            if name == self._die_at:
                self._die_at = ""
                raise Killed
            return
        if self.faults > 0 and self.rng.random() < 0.02:
            self.faults -= 1
            self.counts["faults"] += 1
            raise Killed

    def _step(self, socket: VirtualSocket, sends: bool) -> None:
        """Before each use of a socket: perhaps something happens, perhaps others go on."""
        if self._is_quiet:
            return
        proc = here()
        if self.faults > 0 and not self._die_at and self.rng.random() < self._likely:
            self.faults -= 1
            self._happen(self.rng.choice(self._events), socket)
        if proc is not None and self.rng.random() < 0.3:
            proc.pause(0.0)

    def _happen(self, event: str, socket: VirtualSocket) -> None:
        proc, broker, rng = here(), self.broker, self.rng
        self.counts[event] += 1
        self.counts["faults"] += 1
        if event == "cut":
            socket.cut(tells_server=rng.random() < 0.7)
        elif event == "kill task":
            raise Killed
        elif event == "freeze" and proc is not None:
            proc.is_frozen = True
            proc.pause(0.0)
        elif event == "twin" and proc is not None:
            self._twin_wanted.add(int(proc.name.split(".")[1].split("#")[0]))
        elif event in ("kill broker", "cut power"):
            broker.kill(rng.choice((0.0, 0.3, 2.0)), power=event == "cut power")
        elif event == "kill driver":
            if proc is None:
                raise Killed
            self._driver_dies = True
        elif event == "reset source" and self.ledger.lives < 3:
            self._admin_soon(self._reset_source)
        elif event == "reset target":
            self._admin_soon(self._reset_target)

    def _admin_soon(self, action: Any) -> None:
        """Somebody else does something to a stream, at once."""
        was, self._is_quiet = self._is_quiet, True
        try:
            if self.broker.plant.is_up:
                action()
        finally:
            self._is_quiet = was

    @contextmanager
    def _admin(self) -> Iterator[Link]:
        was, self._is_quiet = self._is_quiet, True
        self.broker.advance(0.001)  # a stream that is made again is made later
        while not self.broker.plant.is_up:
            self.broker.advance(0.1)
        link = self.broker.connect(Connection(servers=("nats://virtual:4222",)))
        try:
            yield link
        finally:
            link.close()
            self._is_quiet = was

    def _call(self, link: Link, what: str, body: object = None) -> dict[str, Any]:
        payload = json.dumps(body).encode() if body is not None else b""
        answer: dict[str, Any] = json.loads(link.request(f"$JS.API.{what}", payload).payload)
        assert "error" not in answer, answer
        return answer

    def _create(self) -> None:
        with self._admin() as link:
            for name in ("IN", "OUT", "DEAD"):
                self._create_stream(link, name)

    def _create_stream(self, link: Link, name: str) -> None:
        config: dict[str, Any] = {"name": name, "subjects": [f"{name}.>"]}
        if name == "OUT":
            config |= {
                "subjects": ["OUT.>", "_sink.OUT.>"],
                "allow_atomic": True,
                "allow_rollup_hdrs": self._rolls_up,
                "max_msg_size": OUT_SIZE_MAX,
            }
        self._call(link, f"STREAM.CREATE.{name}", config)

    def _publish(self) -> None:
        """The next portion of what is to be read, poison among it."""
        self._portions -= 1
        rng = self.rng
        with self._admin() as link:
            self._fill(link, rng.randrange(20, 120))

    def _fill(self, link: Link, count: int) -> None:
        rng, subjects, blocks = self.rng, [], []
        for _ in range(count):
            subject, block, good = "IN.a", b"", True
            if self._poison and rng.random() < 0.05:
                good, block = False, b"NATS/1.0\r\nno colon\r\n\r\n"
            size = rng.choice((0, 10, 60))
            if self._poison and good and rng.random() < 0.05:
                good, size = False, OUT_SIZE_MAX
            subjects.append((subject, self.ledger.publish(good, size)))
            blocks.append(block or encode_headers([("n", "1")]))
        for reply in link.request_many(subjects, blocks):
            assert b'"seq"' in reply.payload, reply

    def _reset_source(self) -> None:
        with self._admin() as link:
            self._call(link, "STREAM.DELETE.IN")
            self._create_stream(link, "IN")
            self.ledger.source_is_reset()
            self._fill(link, self.rng.randrange(20, 80))
        self.counts["source was reset"] += 1

    def _reset_target(self) -> None:
        with self._admin() as link:
            self._call(link, "STREAM.DELETE.OUT")
            self._create_stream(link, "OUT")
        self.ledger.target_is_reset()
        self.counts["target was reset"] += 1

    # -- the end

    def _judge(self) -> None:
        with self._admin() as link:
            rows = [
                payload for subject, payload in self._read(link, "OUT") if subject == "OUT.rows"
            ]
            letters = [payload for _, payload in self._read(link, "DEAD")]
        self.ledger.judge(rows, letters if self._bad_to != "skip" else None)
        self.counts["rows"] += len(rows)

    def _read(self, link: Link, name: str) -> list[tuple[str, bytes]]:
        from headrace.spark.links.control import Control
        from headrace.spark.reading.gets import MessageGets

        control = Control(link, name)
        last = control.stream_info().state.last_seq
        gets = MessageGets(link, name, 5.0)
        gets.ask(range(1, last + 1))
        rows = gets.take()
        gets.close()
        return [*zip(map(bytes.decode, rows.subjects), rows.payloads, strict=True)]


def _lost() -> HeadraceError:
    return HeadraceError("the executor was lost")
