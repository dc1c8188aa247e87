"""The small files of runners that stand by: who they are, and whether they could take over."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.pipeline.declaring.reading import read
from headrace.pipeline.model import Declared, LeaseSettings, Place, Problem
from headrace.pipeline.standby.state import Ready
from headrace.pipeline.status.meter import Meter
from headrace.pipeline.status.notes import (
    GONE_S,
    Presence,
    Process,
    bystanders,
    file_of,
    sentence_about,
    this_process,
)
from headrace.pipeline.status.recorder import Recorder
from headrace.pipeline.status.status import status_of

from ..conftest import ORDERS

HERE = this_process()
NOW = 1_000.0


@pytest.fixture
def declared(write: Callable[..., Path]) -> Declared:
    declared = read(write(ORDERS))
    return replace(declared, lease=LeaseSettings(Place(declared.file)))


def presence(declared: Declared, process: Process, now: float = NOW) -> Presence:
    return Presence(declared, process, lambda: now)


def test_runners_that_stand_by_are_listed_those_that_are_ready_first(declared: Declared) -> None:
    problem = Problem(Place(declared.file, 7), "there is no stream 'ORDERS'")
    presence(declared, HERE).standby("the other", Ready(False, 900.0, (problem,)))
    away = Process("elsewhere", 12)
    presence(declared, away).standby("the other", Ready(True, 950.0))
    found = bystanders(declared, HERE, NOW + 1)
    assert [(each.process, each.is_ready, each.since) for each in found] == [
        (away, True, 950.0),
        (HERE, False, 900.0),
    ]
    assert found[1].why.endswith("orders.toml:7: there is no stream 'ORDERS'")
    assert sentence_about(declared, found) == ""


def test_who_is_not_ready_or_not_there_is_said_to_whoever_relies_on_it(declared: Declared) -> None:
    assert sentence_about(declared, []).startswith("no runner stands by")
    problem = Problem(Place(declared.file, 7), "there is no stream 'ORDERS'")
    presence(declared, HERE).standby("the other", Ready(False, 900.0, (problem,)))
    said = sentence_about(declared, bystanders(declared, HERE, NOW))
    assert said.startswith(f"no standby is ready: {HERE}: ")
    assert said.endswith("there is no stream 'ORDERS'")
    assert sentence_about(replace(declared, lease=None), []) == ""


def test_who_has_gone_is_not_listed_and_who_takes_over_leaves_no_file(declared: Declared) -> None:
    here = presence(declared, HERE)
    here.standby("", Ready())
    here.standing(Ready(True, 950.0))
    assert bystanders(declared, HERE, NOW)[0].is_ready
    assert not bystanders(declared, HERE, NOW + GONE_S)
    here.active(3, None)
    assert not list(file_of(declared).parent.glob("standby-*.json"))
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    presence(declared, Process(HERE.host, dead.pid)).standby("", Ready())
    assert bystanders(declared, HERE, NOW) == []


def test_a_file_that_is_none_of_ours_is_passed_over(declared: Declared) -> None:
    folder = file_of(declared).parent
    folder.mkdir(parents=True)
    known = {
        "process": {"host": HERE.host, "number": 1},
        "is_ready": True,
        "since": 1,
        "written": NOW,
    }
    wrong = [{**known, name: value} for name in known for value in ("x", None, {"host": 1})]
    wrong.append({**known, "process": {"host": HERE.host, "number": 10**30}})
    texts = ("", "[]", '{"process": 1}', "\0", "[" * 100_000, *map(json.dumps, wrong))
    for number, text in enumerate(texts):
        (folder / f"standby-x-{number}.json").write_text(text)
    assert bystanders(declared, HERE, NOW) == []


def test_metrics_count_them_and_status_says_that_none_is_ready(declared: Declared) -> None:
    metered = replace(declared, metrics=("127.0.0.1", 0))
    recorder = Recorder(metered, HERE, lambda: NOW)
    meter = Meter(metered, recorder, lambda: NOW)
    presence(declared, HERE).standby("the other", Ready(True, 900.0))
    assert 'headrace_pipeline_standbys{pipeline="orders",ready="true"} 1' in meter._standbys()
    assert 'headrace_pipeline_standbys{pipeline="orders",ready="false"} 0' in meter._standbys()
    recorder.active(1, None)
    (out,) = status_of(declared, HERE)
    assert out.runner == str(HERE)
    assert "no runner stands by: if this one ends, nobody takes over" in out.notes
    assert out.document()["standbys"] == []
