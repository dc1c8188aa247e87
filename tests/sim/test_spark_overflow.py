"""A query that takes a surplus, under simulation: workers beside it, and whatever may happen to all of them.

``HEADRACE_SPARK_SEEDS`` and ``HEADRACE_SPARK_SEED`` as in ``test_spark.py``. Each message is handled at least
once: by a worker who acknowledged it, or as a row of a batch; where nothing happened, exactly once.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import peers
from headrace.errors import HeadraceError, RequestTimeoutError
from headrace.spark.links.control import Control
from headrace.spark.links.link import Link
from headrace.spark.options import Connection
from headrace.spark.overflow import query as overflow_query
from headrace.spark.overflow.consumer import acknowledge
from headrace.spark.overflow.query import OverflowQuery
from headrace.spark.reading.gets import MessageGets
from sim.spark.engine import Attempt, Checkpoint, Driver, SparkError
from sim.spark.procs import Killed, here
from sim.spark.wire import Broker, VirtualSocket

peers.package("pyspark")

SEEDS = int(os.environ.get("HEADRACE_SPARK_SEEDS", "12"))
FIRST = int(os.environ.get("HEADRACE_SPARK_SEED", "0"))
FOUND_OUT_BY = 25  # seeds, at the latest
COVERED_FROM = 12  # so many seeds do everything
ROUNDS = 40
ROUNDS_AT_THE_END = 200
ACK_WAIT_S = 2.0
SERVERS = "nats://virtual:4222"
CONSUMER = {
    "durable_name": "workers",
    "ack_policy": "explicit",
    "ack_wait": int(ACK_WAIT_S * 1e9),
    "priority_policy": "overflow",
    "priority_groups": ["spill"],
}


class World:
    """One seed."""

    def __init__(self, seed: int, *, faults: int | None = None) -> None:
        self.rng = rng = random.Random(f"surplus {seed}")
        self.counts: Counter[str] = Counter()
        self.broker = Broker(random.Random(rng.getrandbits(32)))
        self.broker.on_step = self._step
        self.faults = rng.randrange(2, 12) if faults is None else faults
        self.mark = rng.randrange(5, 30)
        self._retention = rng.choice(("workqueue", "workqueue", "limits"))
        self._likely = rng.choice((0.01, 0.03))
        self._is_quiet = True
        self._checkpoint = Checkpoint()
        self._driver: Driver | None = None
        self._handled: Counter[str] = Counter()
        self._held: list[tuple[str, str]] = []
        self._published = 0

    def play(self) -> Counter[str]:
        with self.broker.installed(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(overflow_query.OverflowQuery.__init__, "__defaults__", (_NoKeeper,))
            try:
                self._create()
                for _ in range(ROUNDS):
                    self._round()
                self._end()
            finally:
                self._leave()
        return self.counts

    # -- what goes on

    def _round(self) -> None:
        step = self.rng.choice(("publish", "worker", "worker", "query", "query", "time"))
        if step == "publish":
            self._publish(self.rng.randrange(1, 60))
        elif step == "worker":
            self._work(self.rng.randrange(1, 12), self.rng.randrange(8))
        elif step == "query":
            self._trigger()
        elif self.faults:
            self.counts["time"] += 1  # what is held comes again
            self.broker.advance(self.rng.choice((0.1, ACK_WAIT_S + 0.1)))

    def _trigger(self) -> bool:
        """One trigger of the query; whether it ran a batch."""
        self._is_quiet = False
        try:
            if self._driver is None:
                self._driver = Driver(
                    self._checkpoint, self._source(), _SINK, self._run_tasks, self._hook
                )
            before = len(self._checkpoint.commits)
            self._driver.run_batch()
            if len(self._checkpoint.commits) == before:
                return False
            self.counts["batches"] += 1
            return True
        except Killed:
            self.counts["driver killed"] += 1
        except (HeadraceError, SparkError):
            self.counts["query died"] += 1
        finally:
            self._is_quiet = True
        self._leave()
        return True

    def _leave(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None

    def _source(self) -> dict[str, str]:
        return {
            "servers": SERVERS,
            "stream": "IN",
            "consumer": "workers",
            "minPending": str(self.mark),
            "pollTimeout": "50ms",
            "includeHeaders": "true",
            "maxOffsetsPerTrigger": str(self.rng.choice((7, 40, 400))),
            "rowsPerBatch": str(self.rng.choice((3, 100))),
            "maxTasks": "3",
            "minMessagesPerTask": "4",
        }

    def _run_tasks(self, driver: Driver, batch: int, work: list[bytes]) -> list[bytes]:
        results = []
        for partition, each in enumerate(work):
            attempt = Attempt(driver, batch, partition, 0, each)
            while not attempt.proc.is_over:
                if not attempt.proc.may_run(self.broker.now):
                    self.broker.advance(max(0.001, attempt.proc.wakes_at - self.broker.now))
                attempt.proc.resume()
            error = attempt.proc.error
            if isinstance(error, HeadraceError | Killed):
                raise SparkError(f"task {partition} of batch {batch} failed") from error
            if error is not None:
                raise error
            results.append(attempt.proc.result)
        return results

    def _work(self, most: int, keeps: int = 0) -> None:
        """A worker acknowledges what it has, but for so many, and takes some."""
        request = {"batch": most, "no_wait": True, "group": "spill", "expires": 10**8}
        self.rng.shuffle(self._held)
        done, self._held = self._held[keeps:], self._held[:keeps]
        with _QuietLink(self) as link:
            for payload, subject in done:
                try:
                    link.request(subject, b"+ACK")
                except RequestTimeoutError:
                    # The server was killed before it had written that it delivered this: it comes again.
                    self.counts["forgotten"] += 1
                else:
                    self._handled[payload] += 1
            inbox, sid = link.subscribe()
            body = json.dumps(request).encode()
            link.publish("$JS.API.CONSUMER.MSG.NEXT.IN.workers", body, inbox)
            while frames := link.poll(0.3):
                self._held += [(f[5].decode(), f[3].decode()) for f in frames if f[3]]
                if not all(frame[3] for frame in frames):
                    break
            link.unsubscribe(sid)

    def _publish(self, count: int) -> None:
        with _QuietLink(self) as link:
            first, self._published = self._published, self._published + count
            asked = [("IN.n", b"m%d" % number) for number in range(first, self._published)]
            for reply in link.request_many(asked):
                assert b'"seq"' in reply.payload, reply

    def _create(self) -> None:
        with _QuietLink(self) as link:
            for name, retention in (("IN", self._retention), ("OUT", "limits")):
                config = {"name": name, "subjects": [f"{name}.>"], "retention": retention}
                _call(link, f"STREAM.CREATE.{name}", config)
            body = {"stream_name": "IN", "config": CONSUMER}
            _call(link, "CONSUMER.CREATE.IN.workers", body)

    # -- what happens

    def _hook(self, name: str) -> None:
        if self.faults > 0 and self.rng.random() < 0.04:
            self.faults -= 1
            self.counts[f"killed {name}"] += 1
            raise Killed

    def _step(self, socket: VirtualSocket, sends: bool) -> None:
        if self._is_quiet or self.faults <= 0 or self.rng.random() > self._likely:
            return
        self.faults -= 1
        event = self.rng.choice(("cut", "kill broker", "cut power", "kill", "long"))
        self.counts[event] += 1
        if event == "cut":
            socket.cut(tells_server=self.rng.random() < 0.7)
        elif event in ("kill broker", "cut power"):
            self.broker.kill(self.rng.choice((0.0, 0.5)), power=event == "cut power")
        elif event == "kill":
            raise Killed
        elif here() is None:
            self.broker.advance(ACK_WAIT_S * 1.5)

    # -- the end

    def _end(self) -> None:
        """Nothing happens any more: query and worker do what is left; then each message is accounted."""
        happened = self.counts.total() - self.counts["batches"]
        self.faults = 0
        for _ in range(ROUNDS_AT_THE_END):
            batched = self._trigger()
            self._work(20)
            if batched or self._held:
                continue
            self.broker.advance(ACK_WAIT_S + 0.1)
            self._work(20)
            if not self._held and not self._trigger():
                break
        else:
            raise AssertionError("it never comes to its end")
        with _QuietLink(self) as link:
            out, left = Control(link, "OUT"), Control(link, "IN").stream_info().state.messages
            last = out.stream_info().state.last_seq
            gets = MessageGets(link, "OUT", 5.0)
            gets.ask(range(1, last + 1))
            rows = Counter(payload.decode() for payload in gets.take().payloads)
        everything = {f"m{number}" for number in range(self._published)}
        handled = self._handled + rows
        assert set(handled) == everything, f"lost: {sorted(everything - set(handled))[:10]}"
        if self._retention == "workqueue":
            assert left == 0, f"{left} messages stay"
        if not happened:
            assert set(handled.values()) <= {1}
        self.counts["rows"] += rows.total()
        self.counts["by workers"] += self._handled.total()


_SINK = {"servers": SERVERS, "stream": "OUT", "subject": "OUT.rows"}


class _NoKeeper:
    """In this world messages come again when their time is over, so that others get them, too."""

    def __init__(self, *_: object) -> None:
        pass

    def hold(self, subjects: list[str]) -> None: ...
    def release(self) -> None: ...
    def close(self) -> None: ...


class _QuietLink:
    """A link of somebody to whom nothing happens."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __enter__(self) -> Link:
        broker = self._world.broker
        while not broker.plant.is_up:
            broker.advance(0.1)
        self._link = broker.connect(Connection(servers=(SERVERS,)))
        return self._link

    def __exit__(self, *_: object) -> None:
        self._link.close()


def _call(link: Link, what: str, body: object) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(
        link.request(f"$JS.API.{what}", json.dumps(body).encode()).payload
    )
    assert "error" not in answer, answer
    return answer


def play(seed: int, **cast: Any) -> Counter[str]:
    try:
        return World(seed, **cast).play()
    except AssertionError as error:
        raise AssertionError(f"seed {seed} {cast or ''}: {error}") from error


@pytest.mark.timeout(3600)
def test_each_message_is_handled_whatever_happens() -> None:
    events: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + SEEDS):
        events += play(seed)
    print(events)
    if SEEDS >= COVERED_FROM:
        for event in ("cut", "kill broker", "cut power", "kill", "long", "driver killed"):
            assert events[event], f"never happened: {event}"
        assert events["rows"] > 500
        assert events["by workers"] > 500


def test_where_nothing_happens_each_message_is_handled_once() -> None:
    assert sum(play(seed, faults=0)["batches"] for seed in range(8)) > 8


def _acks_what_it_takes(patch: pytest.MonkeyPatch) -> None:
    take = OverflowQuery._take

    def wrong(self: OverflowQuery, control: Control, committed: Any) -> Any:
        taken = take(self, control, committed)
        if taken is not None:
            assert self._info is not None
            acknowledge(control, taken, self._meet(control))
        return taken

    patch.setattr(OverflowQuery, "_take", wrong)


@pytest.mark.parametrize("breaks", [_acks_what_it_takes])
def test_a_query_that_acknowledges_too_early_is_found_out(
    breaks: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch)
    with pytest.raises(AssertionError, match=r"^seed \d+ .*lost"):
        for seed in range(FOUND_OUT_BY):
            play(seed)
