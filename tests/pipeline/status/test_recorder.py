from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.pipeline.checkpoints.totals import Batch, Totals
from headrace.pipeline.declaring.reading import read as read_pipeline
from headrace.pipeline.model import Declared, LeaseSettings, Place, Problem
from headrace.pipeline.running.runner import Ended
from headrace.pipeline.standby.state import Ready
from headrace.pipeline.status import notes as files
from headrace.pipeline.status.notes import Notes, Process, birth_of, this_process
from headrace.pipeline.status.recorder import Recorder, told
from headrace.pipeline.status.status import status_of

from ..conftest import ORDERS

US = this_process()
NOWHERE = 'options = { stream = "ORDERS", servers = "nats://127.0.0.1:1" }'


class World:
    """A recorder on a clock of its own."""

    def __init__(self, declared: Declared, process: Process = US) -> None:
        self.declared = declared
        self.now = 1000.0
        self.recorder = Recorder(declared, process, lambda: self.now)

    @property
    def notes(self) -> Notes:
        found = files.read(files.file_of(self.declared))
        assert found is not None
        return found

    def batch(self, number: int) -> None:
        self.recorder.batch(Batch("out", number, 10, 0.5, behind=7), Totals(None))

    def fail(self) -> None:
        problem = Problem(Place(Path("orders.toml"), 8), "query 'out' failed: boom")
        self.recorder.ended(Ended("out", "failed", Totals(None), 0, 0, problem))


@pytest.fixture
def declared(write: Callable[..., Path]) -> Declared:
    return read_pipeline(write(ORDERS.replace('options = { stream = "ORDERS" }', NOWHERE)))


@pytest.fixture
def world(declared: Declared) -> World:
    return World(declared)


def test_a_query_that_fails_on_every_start_shows_its_error_from_the_next_start_on(
    world: World,
) -> None:
    for turn in range(1, 4):
        world.recorder.starting("Spark")
        world.recorder.started("out")
        (shown,) = status_of(world.declared)
        assert (shown.state, shown.told.failures) == ("running", turn - 1)
        assert bool(shown.told.error) == (turn > 1), "the error of the run before"
        world.now += 5
        world.fail()
        world.recorder.over()
        (shown,) = status_of(world.declared)
        assert (shown.state, shown.told.failures) == ("failed", turn)
        assert shown.told.error == "orders.toml:8: query 'out' failed: boom"
        assert shown.document()["since"] == shown.document()["error_at"]
    world.recorder.starting("Spark")
    world.recorder.started("out")
    world.now += 1
    world.batch(0)
    (shown,) = status_of(world.declared)
    assert (shown.told.error, shown.told.failures, shown.told.behind) == ("", 0, 7)


def test_a_runner_that_was_killed_is_told_from_one_that_runs_and_one_that_ended(
    declared: Declared,
) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    world = World(declared, Process(US.host, child.pid, birth_of(child.pid)))
    world.recorder.starting("Spark")
    world.recorder.started("out")
    (shown,) = status_of(declared)
    assert (shown.state, shown.is_live, len(shown.notes)) == ("running", True, 1)
    child.communicate()
    (shown,) = status_of(declared)
    assert (shown.state, shown.is_live) == ("killed", False)
    assert shown.notes[0] == (
        f"the runner, process {child.pid} on {US.host}, was killed; its last word was at "
        "1970-01-01T00:16:40Z"
    )
    (elsewhere,) = status_of(declared, Process("elsewhere", 1))
    assert (elsewhere.state, elsewhere.is_live) == ("running", True)
    assert "which is not seen from here" in elsewhere.notes[0]
    world.recorder.ended(Ended("out", "stopped", Totals(None), 1, 10))
    world.recorder.over()
    assert status_of(declared)[0].state == "stopped"


def test_batches_are_noted_once_a_second_and_turns_at_once(world: World) -> None:
    world.recorder.starting("Spark")
    world.recorder.started("out")
    world.batch(0)
    assert world.notes.of("out").behind is None
    world.now += 1
    world.batch(1)
    assert world.notes.of("out").behind == 7
    world.recorder.waiting("out", "for its time")
    assert (world.notes.of("out").state, world.notes.of("out").why) == ("waiting", "for its time")
    world.now += 9
    world.recorder.waiting("out", "for 10 messages")
    assert world.notes.of("out").since == 1001.0, "it has waited all the time"


def test_restarts_are_counted_with_their_cause(world: World) -> None:
    world.recorder.starting("Spark")
    for attempt in (1, 2):
        world.recorder.restarting("out", attempt, "a worker was lost", 2.0)
        world.recorder.started("out")
    found = world.notes.of("out")
    assert (found.state, found.restarts, found.error) == ("running", 2, "a worker was lost")


def test_a_run_that_did_not_begin_is_noted_unless_another_one_runs(world: World) -> None:
    world.recorder.refused("orders.toml:8: no such stream")
    assert world.notes.of("out").error == "orders.toml:8: no such stream"
    assert world.notes.life(US) == "ended"
    world.recorder.starting("Spark")
    second = Recorder(world.declared, US, lambda: 2000.0)
    second.refused("orders.toml:8: no such stream")
    second.broke("pipeline 'orders' is running already")
    assert world.notes.of("out").state == "starting"


def test_a_standby_leaves_the_notes_of_the_runner_that_has_the_lease(declared: Declared) -> None:
    leased = replace(declared, lease=LeaseSettings(Place(declared.file)))
    first, second = World(leased), World(leased)
    for world in (first, second):
        world.recorder.starting("Spark")
    assert not files.file_of(leased).exists()
    first.recorder.active(1, None)
    second.recorder.standby("the other", Ready())
    second.recorder.ended(Ended("out", "stopped", Totals(None), 0, 0))
    assert first.notes.token == 1
    second.recorder.active(2, 3.0)
    first.recorder.started("out")
    assert (first.notes.token, first.notes.of("out").state) == (2, "starting")


def test_a_disk_that_takes_no_notes_is_said_once_and_the_run_goes_on(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.recorder.starting("Spark")
    file = files.file_of(world.declared)
    file.unlink()
    file.mkdir()
    (file / "in the way").touch()
    with caplog.at_level(logging.WARNING, "headrace.pipeline"):
        world.recorder.started("out")
        world.recorder.waiting("out", "for its time")
    assert len(caplog.records) == 1
    assert "is not written" in caplog.text


def test_events_reach_the_watcher_and_those_who_hear_them(world: World) -> None:
    heard = []

    class Watcher:
        def starting(self, what: str) -> None:
            heard.append(what)

        def stopping(self, why: str) -> None:
            heard.append(why)

    both = told(Watcher(), world.recorder)  # type: ignore[arg-type]
    both.starting("Spark")
    both.stopping("asked to end")
    assert heard == ["Spark", "asked to end"]
    assert world.notes.of("out").state == "starting"
