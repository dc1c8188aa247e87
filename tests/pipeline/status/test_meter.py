from __future__ import annotations

import re
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import guides
import promtool
from headrace.errors import ConfigurationError
from headrace.pipeline.checkpoints.totals import Batch, Totals, ViewRows
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.model import Declared, PipelineError, Place, Problem
from headrace.pipeline.running.runner import Ended
from headrace.pipeline.standby.state import Ready
from headrace.pipeline.status.meter import FAILED, METRICS, STANDBYS, STATE, Meter
from headrace.pipeline.status.notes import this_process
from headrace.pipeline.status.recorder import Recorder, told
from headrace.spark.lost_messages import Loss

from ..conftest import ORDERS

ALERTS = guides.ROOT / "src/headrace/packaging/monitoring" / "headrace-pipeline-alerts.yml"
OF_OUT = '{pipeline="orders",query="out"}'


class World:
    """A run's events, and the page they make."""

    def __init__(self, declared: Declared) -> None:
        self.recorder = Recorder(declared, this_process(), lambda: 1000.0)
        self.meter = Meter(declared, self.recorder, lambda: 1000.0)
        self.tell = told(self.recorder, self.meter)  # type: ignore[arg-type]
        self.totals = Totals(None)

    def batch(self, number: int) -> None:
        views = {"v": ViewRows(10, {'a "b"': 2})}
        batch = Batch("out", number, 10, 0.5, behind=7, views=views, rows_out=8, late=1)
        self.totals.add(batch)
        self.tell.batch(batch, self.totals)

    def page(self) -> str:
        address = f"http://127.0.0.1:{self.meter.port}/metrics"
        with urllib.request.urlopen(address, timeout=10) as answer:
            return str(answer.read().decode())

    def values(self) -> dict[str, float]:
        lines = [line for line in self.page().splitlines() if not line.startswith("#")]
        found = (line.rpartition(" ") for line in lines)
        return {name.removeprefix("headrace_pipeline_"): float(value) for name, _, value in found}


@pytest.fixture
def declared(write: Callable[..., Path]) -> Declared:
    return read(write(ORDERS + "[metrics]\naddress = 0\n"))


@pytest.fixture
def world(declared: Declared) -> Iterator[World]:
    world = World(declared)
    yield world
    world.meter.close()


def test_the_page_tells_state_rates_lag_and_what_went_wrong(world: World) -> None:
    world.tell.starting("Spark")
    assert world.values()[f'state{OF_OUT[:-1]},state="starting"}}'] == 1
    assert f"behind_messages{OF_OUT}" not in world.values(), "it is not known yet"
    world.tell.started("out")
    for number in (0, 1):
        world.batch(number)
    world.tell.lost("out", Loss("S", 1, 5, 5))
    found = world.values()
    assert {name: found[f"{name}{OF_OUT}"] for name in (
        "behind_messages", "batch_seconds", "batches_total", "batch_seconds_total", "rows_total",
        "rows_out_total", "late_rows_total", "lost_messages_total", "last_batch_time_seconds",
    )} == {
        "behind_messages": 7, "batch_seconds": 0.5, "batches_total": 2, "batch_seconds_total": 1,
        "rows_total": 20, "rows_out_total": 16, "late_rows_total": 2, "lost_messages_total": 5,
        "last_batch_time_seconds": 1000,
    }  # fmt: skip
    failed = r'failed_rows_total{pipeline="orders",query="out",view="v",expectation="a \"b\""}'
    assert found[failed] == 4
    states = {name: value for name, value in found.items() if name.startswith("state{")}
    assert sum(states.values()) == states[f'state{OF_OUT[:-1]},state="running"}}'] == 1
    problem = Problem(Place(Path("f"), 1), "boom")
    world.tell.ended(Ended("out", "failed", world.totals, 2, 20, problem))
    found = world.values()
    assert found[f'state{OF_OUT[:-1]},state="failed"}}'] == found[f"failures{OF_OUT}"] == 1
    promtool.check("metrics", page=world.page())


def test_sums_go_on_where_the_run_before_ended(world: World, declared: Declared) -> None:
    from headrace.pipeline.checkpoints.checkpoint import checkpoint_of

    generation = checkpoint_of(declared, "out").current()
    (Path(generation.path) / "offsets").mkdir(parents=True)
    (Path(generation.path) / "offsets" / "0").touch()
    Totals(generation.totals).add(Batch("out", 0, 10, 0.5))
    world.tell.starting("Spark")
    world.tell.started("out")
    assert world.values()[f"rows_total{OF_OUT}"] == 10


def test_a_runner_that_stands_by_is_in_no_state(world: World) -> None:
    world.tell.starting("Spark")
    world.tell.standby("the other", Ready())
    states = [value for name, value in world.values().items() if name.startswith("state{")]
    assert set(states) == {0}


def test_an_address_that_is_taken_is_told_and_one_that_is_none_is_a_mistake(
    world: World, declared: Declared, write: Callable[..., Path]
) -> None:
    world.tell.starting("Spark")
    other = World(replace(declared, metrics=("127.0.0.1", world.meter.port)))
    with pytest.raises(ConfigurationError, match=r"\[metrics\] address 127.0.0.1:\d+ cannot be"):
        other.tell.starting("Spark")
    for given, said in (("address = 'x:y'", "accepted: a port, or host:port"), ("", "is missing")):
        with pytest.raises(PipelineError, match=said):
            read(write(ORDERS + f"[metrics]\n{given}\n"))


def test_without_an_address_nothing_is_served(write: Callable[..., Path]) -> None:
    world = World(read(write(ORDERS)))
    world.tell.starting("Spark")
    world.batch(0)
    assert world.meter.port == 0


def test_the_page_of_metrics_lists_all_and_alerts_use_what_is_there() -> None:
    known = [metric for metric, _ in METRICS] + [STATE, FAILED, STANDBYS]
    listed = guides.metrics_listed("headrace_pipeline_")
    assert listed == [tuple(metric) for metric in known]
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    used = {name for rule in rules for name in re.findall(r"headrace_pipeline_(\w+)", rule["expr"])}
    assert used <= {metric.name for metric in known}
    assert len(used) >= 5
    promtool.check("rules", str(ALERTS))
