"""Restarts and outages as a runner of a pipeline carries them out, on a clock of its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ConnectFailedError
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.failures.causes import Poison, Verdict
from headrace.pipeline.failures.supervising import ONCE_WAITS_S, Supervisor
from headrace.pipeline.model import (
    DEFAULT_RESTARTS,
    NO_RESTARTS,
    Declared,
    Place,
    RestartSettings,
    Sink,
)
from headrace.pipeline.running import run
from headrace.pipeline.running.runner import Ended
from headrace.spark.sink.markers import FencedError, Plan, PlanId, next_plan

from ..conftest import ORDERS
from ..running.test_runner import FakeQuery, World, with_trigger


class Servers:
    """What is known of the servers, as it is told at a time."""

    def __init__(self) -> None:
        self.gone: tuple[str, float] | None = None
        self.is_noticed = True

    def away(self, query: str) -> tuple[str, float] | None:
        return self.gone if self.is_noticed else None

    def is_away_now(self, query: str) -> bool:
        self.is_noticed = True
        return self.gone is not None


class Supervised(World):
    def __init__(self, declared: Declared, settings: RestartSettings, wait_s: float) -> None:
        super().__init__(declared)
        self.servers = Servers()
        self.supervisor = Supervisor(settings, self.servers, wait_s, lambda: self.now)

    def run(self, **options: Any) -> dict[str, Ended]:
        return super().run(supervisor=self.supervisor, **options)

    def server_goes(self) -> None:
        self.servers.gone = ("nats://a:4222", self.now)

    def server_comes(self) -> None:
        self.servers.gone = None

    def told(self, event: str) -> list[tuple[str, ...]]:
        return [each[1:] for each in self.heard if each[0] == event]


@pytest.fixture
def declared(write: Callable[..., Path]) -> Declared:
    return read(write(ORDERS))


def failing(*failures: BaseException, batches: int = 0) -> Callable[[FakeQuery], None]:
    """Each start fails with the next one, after so many batches, and the one after them goes on."""
    left = list(failures)
    numbers = iter(range(10_000))

    def plan(query: FakeQuery) -> None:
        if not left:
            return
        error = left.pop(0)

        def do() -> None:
            for _ in range(batches):
                query.did(next(numbers))
            query.end(error)

        query.world.after(1, do)

    return plan


LOST = RuntimeError("Python worker exited unexpectedly (crashed)")


def test_a_query_that_lost_a_worker_is_begun_again_and_that_is_told(declared: Declared) -> None:
    world = Supervised(declared, DEFAULT_RESTARTS, math.inf)
    world.plans = {"out": failing(LOST, LOST)}
    began = world.now
    world.after(60, lambda: world.runner.stop("interrupted"))
    ended = world.run()["out"]
    assert (ended.state, ended.problem, ended.restarts) == ("stopped", None, 2)
    assert len(world.queries["out"]) == 3
    first, second = world.told("restarting")
    assert first[:2] == ("out", "1")
    assert first[2].startswith("Spark lost a Python worker")
    assert (first[3], second[3]) == ("1.0", "2.0")
    assert began + 5 <= world.now


def test_the_third_same_failure_at_the_same_place_stays_a_failure_with_that_said(
    declared: Declared,
) -> None:
    world = Supervised(declared, DEFAULT_RESTARTS, math.inf)
    boom = ValueError("boom")
    world.plans = {"out": failing(boom, boom, boom, boom)}
    ended = world.run()["out"]
    assert ended.state == "failed"
    assert str(ended.problem) == (
        f"{declared.file}:9: query 'out' failed: ValueError: boom; it failed in the same way at the same "
        "place 3 times, which is no accident"
    )
    assert len(world.queries["out"]) == 3
    elsewhere = Supervised(declared, RestartSettings(attempts=50), math.inf)
    elsewhere.plans = {"out": failing(*[boom] * 20, batches=1)}
    elsewhere.after(200, lambda: elsewhere.runner.stop("interrupted"))
    ended = elsewhere.run()["out"]
    assert (ended.state, ended.restarts, ended.batches) == ("stopped", 20, 20)


def test_once_without_restarts_fails_at_the_first_failure(declared: Declared) -> None:
    world = Supervised(declared, NO_RESTARTS, ONCE_WAITS_S)
    world.plans = {"out": failing(LOST)}
    assert world.run(once=True)["out"].state == "failed"
    assert world.told("restarting") == []


def test_a_schedule_does_not_wait_for_its_next_time_and_what_is_after_waits_for_the_restart(
    write: Callable[..., Path],
) -> None:
    more = '[sinks.last]\nfrom = "orders"\nformat = "noop"\nafter = "out"\n'
    both = with_trigger(read(write(ORDERS + more)), "available now")
    world = Supervised(both, DEFAULT_RESTARTS, math.inf)
    crash = failing(LOST)

    def out(query: FakeQuery) -> None:
        crash(query)
        if len(world.queries["out"]) == 2:
            world.after(3, query.end)

    world.plans = {"out": out, "last": lambda query: world.after(1, query.end)}
    ended = world.run()
    assert [each.state for each in ended.values()] == ["done", "done"]
    assert [each[0] for each in world.told("started")] == ["out", "out", "last"]

    hourly = Supervised(
        with_trigger(read(write(ORDERS)), {"schedule": "every 1h"}), DEFAULT_RESTARTS, 1.0
    )
    starts: list[float] = []

    def plan(query: FakeQuery) -> None:
        starts.append(hourly.now)
        if len(starts) == 1:
            hourly.after(1, lambda: query.end(LOST))
        else:
            hourly.after(1, query.end)

    hourly.plans = {"out": plan}
    hourly.after(6000, lambda: hourly.runner.stop("interrupted"))
    hourly.run()
    assert starts[1] - starts[0] == pytest.approx(2, abs=0.5)
    assert starts[2] - starts[0] == pytest.approx(3600, abs=5)


def poison(sequence: int) -> Poison:
    place = Place(Path("views.py"), 3)
    return Poison("orders", "ORDERS", sequence, "orders.new", "v", "half", place, "it is bad")


CODE = RuntimeError(
    'Traceback (most recent call last):\n  File "/home/me/views.py", line 3, in half\nValueError: bad'
)


def test_code_that_fails_again_is_searched_and_the_message_ends_the_query(
    declared: Declared,
) -> None:
    world = Supervised(declared, DEFAULT_RESTARTS, math.inf)
    world.plans = {"out": failing(CODE, CODE, CODE)}
    searched: list[str] = []

    def search(sink: Sink) -> Verdict:
        searched.append(sink.name)
        return Verdict(failed=poison(7))

    ended = world.run(search=search)["out"]
    assert len(world.queries["out"]) == 2, "the first failure may be an accident"
    assert searched == ["out"]
    assert str(ended.problem).endswith(f"(/home/me/views.py:3, in half); {poison(7)}")


def test_quarantine_searches_at_once_and_costs_no_attempt_and_what_is_not_found_does(
    write: Callable[..., Path],
) -> None:
    views = '[views.v]\nsql = "SELECT * FROM orders"\notherwise = "quarantine"\nletters = "dead"\n'
    declared = read(write(ORDERS.replace('from = "orders"', 'from = "v"') + views))
    world = Supervised(declared, RestartSettings(attempts=2), math.inf)
    world.plans = {"out": failing(*[CODE] * 9)}
    verdicts = [Verdict(quarantined=(poison(number),)) for number in range(5)]
    nothing = Verdict(why="each part of the batch passes by itself")

    ended = world.run(search=lambda sink: verdicts.pop(0) if verdicts else nothing)["out"]
    assert ended.restarts == 5 + 2
    assert len(world.told("poison")) == 5
    assert str(ended.problem).endswith(
        "3 times, which is no accident; each part of the batch passes by itself"
    )


def test_a_worker_that_crashes_again_is_searched_as_code_is_and_a_single_crash_is_an_accident(
    write: Callable[..., Path],
) -> None:
    views = '[views.v]\nsql = "SELECT * FROM orders"\notherwise = "quarantine"\nletters = "dead"\n'
    declared = read(write(ORDERS.replace('from = "orders"', 'from = "v"') + views))
    world = Supervised(declared, DEFAULT_RESTARTS, math.inf)
    world.plans = {"out": failing(LOST, LOST, LOST)}
    searched: list[float] = []

    def search(sink: Sink) -> Verdict:
        searched.append(world.now)
        return Verdict(quarantined=(poison(7),))

    world.after(60, lambda: world.runner.stop("interrupted"))
    ended = world.run(search=search)["out"]
    assert (ended.state, ended.restarts, len(searched)) == ("stopped", 3, 2)
    assert [each[3] for each in world.told("restarting")] == ["1.0", "0.0", "0.0"]
    worker = RuntimeError("Python worker failed to connect back.")
    world = Supervised(declared, DEFAULT_RESTARTS, math.inf)
    world.plans = {"out": failing(worker, worker, worker)}
    world.after(60, lambda: world.runner.stop("interrupted"))
    ended = world.run(search=search)["out"]
    assert (ended.state, ended.restarts) == ("stopped", 3), (
        "a busy machine is an accident each time"
    )
    assert len(searched) == 2, "such a worker had no row yet"


def test_a_stop_while_a_query_waits_to_be_begun_again_ends_it(declared: Declared) -> None:
    world = Supervised(declared, RestartSettings(backoff_s=50.0), math.inf)
    world.plans = {"out": failing(LOST)}
    world.after(10, lambda: world.runner.stop("asked to end"))
    assert world.run()["out"].state == "stopped"
    assert len(world.queries["out"]) == 1


@pytest.mark.parametrize("is_noticed", [True, False])
def test_a_server_that_is_away_is_told_after_five_seconds_and_waited_for_without_end(
    declared: Declared, is_noticed: bool
) -> None:
    world = Supervised(declared, RestartSettings(attempts=1), math.inf)
    world.servers.is_noticed = is_noticed
    away = ConnectFailedError("cannot reach a NATS server")

    def plan(query: FakeQuery) -> None:
        if len(world.queries["out"]) == 1:
            world.server_goes()
            world.after(1, lambda: query.end(away))

    world.plans = {"out": plan}
    world.after(7200, world.server_comes)
    world.after(7210, lambda: world.runner.stop("interrupted"))
    ended = world.run()["out"]
    assert (ended.state, ended.restarts) == ("stopped", 1)
    (told,) = world.told("away")
    assert told[1] == (
        "for nats://a:4222, which has been away for 5 s; it is waited for without end"
    )
    assert world.told("back") == [("out",)]
    assert len(world.queries["out"]) == 2


def test_an_outage_that_the_query_survives_is_told_and_so_is_its_end(declared: Declared) -> None:
    world = Supervised(declared, DEFAULT_RESTARTS, math.inf)
    world.plans = {"out": lambda query: None}
    world.after(10, world.server_goes)
    world.after(14, world.server_comes)  # too short to be told
    world.after(20, world.server_goes)
    world.after(40, world.server_comes)
    world.after(50, lambda: world.runner.stop("interrupted"))
    world.run()
    assert len(world.told("away")) == len(world.told("back")) == 1
    assert world.told("restarting") == []


def test_once_waits_two_minutes_and_the_error_names_the_option(declared: Declared) -> None:
    world = Supervised(declared, NO_RESTARTS, ONCE_WAITS_S)
    world.plans = {"out": lambda query: world.after(3, world.server_goes)}
    began = world.now
    ended = world.run(once=True)["out"]
    assert ended.state == "failed"
    assert str(ended.problem) == (
        f"{declared.file}:9: query 'out' failed: nats://a:4222 has been away for 120 s; wait_for_server says "
        "how long it is waited for"
    )
    assert world.now - began == pytest.approx(123, abs=1)
    assert world.queries["out"][0].stopped_at is not None


@pytest.mark.parametrize(
    ("line", "once", "expected"),
    [
        ("", False, (DEFAULT_RESTARTS, math.inf)),
        ("", True, (NO_RESTARTS, ONCE_WAITS_S)),
        ("restart = { attempts = 2 }", True, (RestartSettings(attempts=2), ONCE_WAITS_S)),
        ('wait_for_server = "15m"', True, (NO_RESTARTS, 900.0)),
        ('wait_for_server = "15m"', False, (DEFAULT_RESTARTS, 900.0)),
        ("restart = false", False, (NO_RESTARTS, 0.0)),
    ],
)
def test_run_begins_again_and_waits_without_end_where_the_file_says_nothing_and_once_does_not(
    write: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    once: bool,
    expected: tuple[RestartSettings, float],
) -> None:
    given: list[tuple[RestartSettings, float]] = []

    def noted(
        restart: RestartSettings, servers: object, wait_s: float, *rest: Any, **more: Any
    ) -> None:
        given.append((restart, wait_s))

    monkeypatch.setattr(run, "Supervisor", noted)
    declared = read(write(ORDERS.replace("[pipeline]", f"[pipeline]\n{line}")))
    run.supervisor_of(declared, Servers(), once=once)  # type: ignore[arg-type]
    assert given == [expected]


def test_without_restarts_a_server_that_is_away_is_what_the_query_makes_of_it(
    declared: Declared,
) -> None:
    world = Supervised(declared, NO_RESTARTS, 0.0)
    world.server_goes()
    world.plans = {"out": failing(ConnectFailedError("nobody there"))}
    ended = world.run()["out"]
    assert str(ended.problem).endswith("query 'out' failed: ConnectFailedError: nobody there")
    assert world.told("away") == []


def overtaken_by(batch: int) -> str:
    """What the sink says to a writer of batch 4 when a later run of a batch has begun."""
    with pytest.raises(FencedError) as caught:
        next_plan(Plan(batch, PlanId(2, "theirs"), False, 7), None, 4, PlanId(1, "ours"), "x")
    return f"headrace.spark.sink.markers.FencedError: {caught.value}"


@pytest.mark.parametrize("batch", [4, 5])
@pytest.mark.parametrize("is_leased", [True, False])
def test_a_batch_that_was_overtaken_is_run_again_by_whoever_has_the_lease(
    declared: Declared, is_leased: bool, batch: int
) -> None:
    """A runner that was frozen may begin a batch, or end it, before it learns that it has lost the lease."""
    world = Supervised(declared, DEFAULT_RESTARTS, math.inf)
    world.supervisor = Supervisor(DEFAULT_RESTARTS, clock=lambda: world.now, is_leased=is_leased)
    world.plans = {"out": failing(RuntimeError(overtaken_by(batch)))}
    world.after(60, lambda: world.runner.stop("interrupted"))
    ended = world.run()["out"]
    assert (ended.state, ended.restarts) == (("stopped", 1) if is_leased else ("failed", 0))


def test_a_checkpoint_that_is_not_the_sink_s_stops_whoever_has_the_lease_too(
    declared: Declared,
) -> None:
    world = Supervised(declared, DEFAULT_RESTARTS, math.inf)
    world.supervisor = Supervisor(DEFAULT_RESTARTS, clock=lambda: world.now, is_leased=True)
    world.plans = {"out": failing(*[RuntimeError(overtaken_by(5)) for _ in range(9)])}
    ended = world.run()["out"]
    assert (ended.state, ended.restarts) == ("failed", 2)
    assert "Use the checkpoint that wrote these batches" in str(ended.problem)
