from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import peers
from headrace import sync
from headrace.cli.doctor import _judge_clock, look_at_machine, look_at_store
from headrace.findings.finding import Findings

Run = Callable[..., Any]


def test_nothing_wrong(
    at_server: Run, either_server: peers.ServerProcess, js: sync.JetStream
) -> None:
    js.create_stream(name="A", subjects=["a"])
    monitor = f"http://127.0.0.1:{either_server.monitoring_port}"
    done = at_server("doctor", "--monitor", monitor)
    assert done.status == 0, done.out
    assert "✓ server: nats://127.0.0.1:" in done.out
    assert "✓ clock: as the server's" in done.out
    assert "✓ health: ok, up for" in done.out
    assert "are free at" in done.out
    assert "nothing wrong in 1 stream" in done.out
    assert "no problem found" in done.out


def test_a_problem_comes_with_the_command_that_mends_it(at_server: Run, js: sync.JetStream) -> None:
    js.create_stream(name="WORK", subjects=["w"], retention="workqueue")
    js.publish("w", b"1")
    done = at_server("doctor")
    assert done.status == 1
    assert "    headrace consumer create WORK NAME" in done.out.splitlines()
    assert done.out.splitlines()[-1].startswith("1 problem found")
    found = at_server("doctor", "--json")
    assert found.status == 1


def test_no_server_is_a_problem_with_the_command_that_runs_one(headrace: Run) -> None:
    done = headrace("doctor", "-s", "nats://127.0.0.1:1")
    assert done.status == 1
    assert "✗ server: no server could be reached" in done.out
    assert "headrace serve -js" in done.out


def test_the_machine_is_looked_at(tmp_path: Path) -> None:
    findings = Findings()
    variables = {"XDG_CONFIG_HOME": str(tmp_path), "NATS_CONTEXT": "nope"}
    look_at_machine(findings, variables)
    (problem,) = [each for each in findings.found if each.grade == "problem"]
    assert problem.what == "context"
    context = tmp_path / "nats" / "context" / "nope.json"
    context.parent.mkdir(parents=True)
    context.write_text("{}")
    context.chmod(0o644)
    findings = Findings()
    look_at_machine(findings, {**variables, "NATS_URL": "nats://ann:s3cret@h"})
    notes = [each.text for each in findings.found if each.what == "context"]
    assert notes[1] == "NATS_URL (nats://h) wins over the server of context nope"
    assert notes[2].startswith("others can read")


def test_a_store_is_looked_at(tmp_path: Path) -> None:
    findings = Findings()
    look_at_store(findings, tmp_path / "none")
    look_at_store(findings, tmp_path)
    assert (findings.found[0].mend, findings.found[1].what) == (f"mkdir -p {tmp_path}/none", "disk")


def test_a_clock_that_is_off_is_a_problem() -> None:
    findings = Findings()
    _judge_clock(findings, 5.0, 0.1)
    _judge_clock(findings, -0.5, 0.1)
    assert [each.grade for each in findings.found] == ["problem", "ok"]
    assert "5s ahead" in findings.found[0].text
