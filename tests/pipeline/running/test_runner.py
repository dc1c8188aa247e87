from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from headrace.errors import ConfigurationError, ConnectFailedError
from headrace.pipeline.checkpoints.totals import Batch, Totals
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.model import Declared, PipelineError, Problem, Sink
from headrace.pipeline.running.runner import ASKING_S, Ended, Phase, Runner
from headrace.pipeline.triggers import Trigger, parse_trigger
from headrace.spark.lost_messages import Loss

from ..conftest import ORDERS


class World:
    """Time that passes only where the runner sleeps, and queries that do what they are told at a time."""

    def __init__(self, declared: Declared) -> None:
        self.declared = declared
        self.now = 1_000_000.0
        self.queries: dict[str, list[FakeQuery]] = {name: [] for name in declared.sinks}
        self.plans: dict[str, Callable[[FakeQuery], None]] = {}
        self.backlog = 0
        self.heard: list[tuple[str, ...]] = []
        self.totals = {name: Totals(None) for name in declared.sinks}
        self.at: list[tuple[float, Callable[[], object]]] = []
        self.runner: Runner

    def make(self, **options: Any) -> Runner:
        self.runner = Runner(
            self.declared,
            self.start,
            lambda sink: self.totals[sink.name],
            self,
            lambda: self.now,
            self.sleep,
            self.waiting_for,
            **options,
        )
        return self.runner

    def run(self, **options: Any) -> dict[str, Ended]:
        return {each.query: each for each in self.make(**options).run()}

    def start(self, sink: Sink, trigger: Trigger) -> FakeQuery:
        query = FakeQuery(self, sink.name, trigger)
        self.queries[sink.name].append(query)
        plan = self.plans.get(sink.name)
        if plan is not None:
            plan(query)
        return query

    def waiting_for(self, sink: Sink) -> int:
        if self.backlog < 0:
            raise ConnectFailedError("nobody there")
        return self.backlog

    def after(self, seconds: float, do: Callable[[], object]) -> None:
        self.at.append((self.now + seconds, do))

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        due = [each for each in self.at if each[0] <= self.now]
        self.at = [each for each in self.at if each[0] > self.now]
        for _, do in due:
            do()
        assert self.now < 1_100_000.0, "it never ends"

    # what the runner tells

    def __getattr__(self, event: str) -> Callable[..., None]:
        return lambda *what, **more: self.heard.append((event, *map(str, what)))


class FakeQuery:
    """A query of Spark."""

    def __init__(self, world: World, name: str, trigger: Trigger) -> None:
        self.world = world
        self.name = name
        self.trigger = trigger
        self.active = True
        self.in_batch = False
        self.asking: Literal["", "asking"] = ""
        self.failure: BaseException | None = None
        self.finished: list[Batch] = []
        self.lost: list[Loss] = []
        self.stopped_at: float | None = None
        self.heeds = False
        self.told_to_finish = False

    def is_active(self) -> bool:
        return self.active

    def phase(self) -> Phase:
        return self.asking or ("batch" if self.in_batch else "idle")

    def error(self) -> BaseException | None:
        return self.failure

    def batches(self, after: int) -> list[Batch]:
        return [each for each in self.finished if each.number > after]

    def losses(self) -> list[Loss]:
        found, self.lost = self.lost, []
        return found

    def finish(self) -> bool:
        self.told_to_finish = True
        return self.heeds

    def stop(self) -> None:
        self.active, self.stopped_at = False, self.world.now

    def did(self, number: int, rows: int = 5) -> None:
        self.finished.append(Batch(self.name, number, rows, 0.1))
        self.in_batch = False

    def end(self, failure: BaseException | None = None) -> None:
        self.active, self.failure = False, failure


@pytest.fixture
def declared(write: Callable[..., Path]) -> Declared:
    more = '[sinks.other]\nfrom = "orders"\nformat = "noop"\n'
    return read(write(ORDERS + more))


def with_trigger(declared: Declared, raw: Any, on_failure: Any = "stop") -> Declared:
    trigger = parse_trigger(raw)
    sinks = {name: replace(sink, trigger=trigger) for name, sink in declared.sinks.items()}
    return replace(declared, sinks=sinks, on_failure=on_failure)


def test_once_ends_when_every_query_has_and_counts_the_last_batch(declared: Declared) -> None:
    world = World(declared)

    def plan(query: FakeQuery) -> None:
        assert query.trigger.kind == "available now"

        def do() -> None:
            query.did(0)
            query.did(1, rows=2)
            query.end()  # with its last batch

        world.after(1, do)

    world.plans = {"out": plan, "other": plan}
    ended = world.run(once=True)
    assert [each.state for each in ended.values()] == ["done", "done"]
    assert (ended["out"].rows, ended["out"].batches) == (7, 2)
    assert world.totals["out"].rows == 7


def test_ctrl_c_waits_for_the_running_batch_and_for_no_other(declared: Declared) -> None:
    world = World(declared)

    def busy(query: FakeQuery) -> None:
        query.in_batch = True
        world.after(7, lambda: query.did(0))

    world.plans = {"out": busy}
    world.after(2, lambda: world.runner.stop("interrupted"))
    began = world.now
    ended = world.run()
    assert [each.state for each in ended.values()] == ["stopped", "stopped"]
    assert ended["out"].batches == 1
    stopped = {name: queries[0].stopped_at for name, queries in world.queries.items()}
    assert stopped["out"] == pytest.approx(began + 7, abs=0.3)
    assert stopped["other"] == pytest.approx(began + 2, abs=0.3), "it was between two batches"
    assert ("stopping", "interrupted") in world.heard


def test_sources_that_offer_nothing_more_let_a_query_end_after_its_batch(
    declared: Declared,
) -> None:
    """The last one too, which moves a watermark and reads nothing: it is not cut off."""
    world = World(declared)

    def busy(query: FakeQuery) -> None:
        query.in_batch = query.heeds = True
        world.after(7, lambda: query.did(0))
        world.after(7, lambda: setattr(query, "in_batch", True))
        world.after(9, lambda: query.did(1))

    world.plans = {"out": busy}
    world.after(2, lambda: world.runner.stop("interrupted"))
    began = world.now
    assert world.run()["out"].batches == 2
    (query,) = world.queries["out"]
    assert query.told_to_finish
    assert query.stopped_at == pytest.approx(began + 9, abs=0.3)


def test_a_query_that_asks_its_sources_may_begin_a_batch(declared: Declared) -> None:
    world = World(declared)
    began = world.now

    def asks(query: FakeQuery) -> None:
        query.asking = "asking"
        if query.name == "out":
            world.after(2.1, lambda: setattr(query, "asking", ""))
            world.after(2.1, lambda: setattr(query, "in_batch", True))
            world.after(5, lambda: query.did(0))

    world.plans = {"out": asks, "other": asks}
    world.after(2, lambda: world.runner.stop("interrupted"))
    assert world.run()["out"].batches == 1
    stopped = {name: queries[0].stopped_at for name, queries in world.queries.items()}
    assert stopped["out"] == pytest.approx(began + 5, abs=0.3)
    assert stopped["other"] == pytest.approx(began + 2 + ASKING_S, abs=0.3), "it waits for rows"


def test_a_bounded_query_that_is_told_to_finish_has_not_read_all(declared: Declared) -> None:
    world = World(declared)

    def bounded(query: FakeQuery) -> None:
        query.in_batch = query.heeds = True
        world.after(7, lambda: query.did(0))
        world.after(7, query.end)  # Spark ends it: there is nothing more

    world.plans = {"out": bounded}
    world.after(2, lambda: world.runner.stop("interrupted"))
    assert world.run(once=True)["out"].state == "stopped"


@pytest.mark.parametrize(("again_after", "stops_after"), [(3.0, 3.0), (None, 62.0)])
def test_a_second_ctrl_c_or_a_batch_without_end_ends_at_once(
    declared: Declared, again_after: float | None, stops_after: float
) -> None:
    world = World(declared)
    world.plans = {"out": lambda query: setattr(query, "in_batch", True)}
    world.after(2, lambda: world.runner.stop("interrupted"))
    if again_after is not None:
        world.after(again_after, lambda: world.runner.stop("interrupted", at_once=True))
    began = world.now
    assert world.run()["out"].state == "stopped"
    stopped = world.queries["out"][0].stopped_at
    assert stopped == pytest.approx(began + stops_after, abs=0.3)


@pytest.mark.parametrize(("on_failure", "other"), [("stop", "stopped"), ("continue", "done")])
def test_a_failed_query_has_its_line_and_the_fate_of_the_others_is_declared(
    declared: Declared, on_failure: str, other: str
) -> None:
    world = World(with_trigger(declared, "available now", on_failure))
    world.plans = {
        "out": lambda query: world.after(1, lambda: query.end(RuntimeError("boom"))),
        "other": lambda query: world.after(5, query.end),
    }
    ended = world.run()
    assert ended["out"].state == "failed"
    assert str(ended["out"].problem) == (
        f"{declared.file}:9: query 'out' failed: RuntimeError: boom"
    )
    assert ended["other"].state == other


@pytest.mark.parametrize("on_failure", ["stop", "continue"])
def test_what_is_after_a_failed_query_is_not_run_and_that_is_said(
    declared: Declared, on_failure: str
) -> None:
    declared = with_trigger(declared, "available now", on_failure)
    out, other = declared.sinks["out"], declared.sinks["other"]
    last = replace(other, name="last", after=("other",))
    sinks = {"last": last, "out": out, "other": replace(other, after=("out",))}
    world = World(replace(declared, sinks=sinks))
    world.plans = {"out": lambda query: world.after(1, lambda: query.end(RuntimeError("boom")))}
    ended = world.run()
    assert world.queries["other"] == world.queries["last"] == []
    assert ended["out"].state == "failed"
    assert ended["other"].state == "not run"
    assert str(ended["other"].problem) == (
        f"{declared.file}:13: query 'other' was not run: it is after 'out', which failed"
    )
    if on_failure == "continue":
        assert str(ended["last"].problem).endswith("it is after 'other', which was not run")
    told = [what for event, what in world.heard if event == "ended"]
    assert sum("state='not run'" in what for what in told) >= 1


def test_a_query_that_cannot_start_is_a_failed_one(declared: Declared) -> None:
    world = World(declared)

    def refuse(query: FakeQuery) -> None:
        raise PipelineError([Problem(declared.sinks["out"].place, "no such column")])

    world.plans = {"out": refuse}
    ended = world.run()
    assert (ended["out"].state, ended["other"].state) == ("failed", "stopped")
    assert str(ended["out"].problem).endswith(":9: no such column")


def test_a_query_after_another_begins_when_that_one_is_done(declared: Declared) -> None:
    sinks = {**declared.sinks, "out": replace(declared.sinks["out"], after=("other",))}
    world = World(replace(declared, sinks=sinks))
    world.plans = {
        "other": lambda query: world.after(5, query.end),
        "out": lambda query: world.after(1, query.end),
    }
    began = world.now
    ended = world.run(once=True)
    assert [each.state for each in ended.values()] == ["done", "done"]
    started = [event for event in world.heard if event[0] == "started"]
    assert started == [("started", "other"), ("started", "out")]
    assert world.now > began + 6
    world.plans = {}
    world.after(2, lambda: world.runner.stop("interrupted"))
    assert world.run()["out"].state == "stopped", "queries without an end run beside each other"
    assert len(world.queries["out"]) == 2


def test_a_checkpoint_that_cannot_be_read_fails_its_query(declared: Declared) -> None:
    world = World(declared)

    def refuse(query: FakeQuery) -> None:
        raise ConfigurationError("the log is of version 'v9'")

    world.plans = {"out": refuse}
    problem = world.run()["out"].problem
    assert str(problem).endswith(":9: query 'out': the log is of version 'v9'")


def test_a_schedule_starts_bounded_runs_at_its_times(declared: Declared) -> None:
    world = World(with_trigger(declared, {"schedule": "every 1m"}))
    starts: list[float] = []

    def plan(query: FakeQuery) -> None:
        starts.append(world.now)
        world.after(5, lambda: query.did(len(starts)))
        world.after(6, query.end)

    world.plans = {"out": plan}
    world.after(200, lambda: world.runner.stop("interrupted"))
    ended = world.run()
    assert [round(start % 60) % 60 for start in starts] == [0, 0, 0]
    assert ended["out"].batches == 3
    assert ended["out"].state == "stopped"


def test_a_backlog_starts_a_run_by_its_size_or_by_its_age(declared: Declared) -> None:
    world = World(with_trigger(declared, {"lag": 100, "after": "1m"}))
    starts: list[float] = []
    began = world.now

    def plan(query: FakeQuery) -> None:
        starts.append(world.now - began)
        world.backlog = 0
        world.after(1, query.end)

    world.plans = {"out": plan}
    world.after(5, lambda: setattr(world, "backlog", -1))
    world.after(10, lambda: setattr(world, "backlog", 99))  # old after a minute
    world.after(100, lambda: setattr(world, "backlog", 100))
    world.after(150, lambda: world.runner.stop("interrupted"))
    world.run()
    assert starts == [pytest.approx(71, abs=2), pytest.approx(101, abs=2)]
    assert ("waiting", "out", "for 100 messages") in world.heard
    away = "for the server to say what waits: nobody there"
    assert ("waiting", "out", away) in world.heard, "and it goes on"


def test_a_query_that_somebody_stopped_ends_the_run(declared: Declared) -> None:
    world = World(declared)
    world.plans = {"out": lambda query: world.after(1, query.end)}
    ended = world.run()
    assert [each.state for each in ended.values()] == ["stopped", "stopped"]
