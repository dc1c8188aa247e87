"""The unit and the settings that are shipped: systemd takes the one, the broker the others."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import guides
from headrace.cli import main
from headrace.cli.pipeline.file import MISTAKEN
from headrace.cli.shared.errors import USAGE
from headrace.pipeline.keys import TABLES

PACKAGING = guides.ROOT / "packaging"


@pytest.mark.parametrize("name", ["headrace.toml", "container.toml"])
def test_the_broker_takes_the_settings(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "-c", str(PACKAGING / name), "-t"]) == 0
    assert "warn" not in capsys.readouterr().err.lower().replace("[inf]", "")


@pytest.mark.parametrize("name", ["headrace.service", "headrace-pipeline@.service"])
def test_systemd_takes_the_unit(name: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here")
    # The program has to be there to be verified; where it is installed is the administrator's.
    program = tmp_path / "headrace"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / name.replace("@", "@orders")
    text = (PACKAGING / name).read_text()
    unit.write_text(text.replace("/opt/headrace/bin/headrace", str(program)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    complaints = [line for line in done.stderr.splitlines() if "headrace" in line]
    assert not complaints


def test_the_unit_of_a_pipeline_waits_longer_for_its_end_than_the_batch_may_take() -> None:
    text = (PACKAGING / "headrace-pipeline@.service").read_text()
    found = re.search(r"(?m)^TimeoutStopSec=(\d+)s$", text)
    stop_timeout = next(key.default for key in TABLES["pipeline"] if key.name == "stop_timeout")
    assert found is not None
    assert int(found[1]) >= stop_timeout + 30


def test_the_unit_of_a_pipeline_starts_again_what_another_start_may_mend_and_nothing_else() -> None:
    text = (PACKAGING / "headrace-pipeline@.service").read_text()
    assert re.search(r"(?m)^Restart=on-failure$", text)
    found = re.search(r"(?m)^RestartPreventExitStatus=(.*)$", text)
    assert found is not None
    assert set(map(int, found[1].split())) == {USAGE, MISTAKEN}


def test_the_unit_needs_no_program_but_ours_and_a_shell() -> None:
    text = (PACKAGING / "headrace.service").read_text()
    programs = re.findall(r"(?m)^Exec\w+=(\S+)", text)
    assert programs == ["/opt/headrace/bin/headrace", "/bin/sh"]


def test_the_unit_leaves_little_open() -> None:
    text = (PACKAGING / "headrace.service").read_text()
    for line in (
        "DynamicUser=yes",
        "ProtectSystem=strict",
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=",
        "StateDirectory=headrace",
    ):
        assert re.search(f"(?m)^{re.escape(line)}$", text), line


def test_the_image_copies_only_what_is_there() -> None:
    for line in (PACKAGING / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (guides.ROOT / source).exists(), source


def test_both_stages_of_the_image_stand_on_one_base_that_can_be_chosen() -> None:
    lines = (PACKAGING / "Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith(("ARG ", "FROM "))] == [
        "ARG BASE=python:3.13-slim",
        "FROM ${BASE} AS build",
        "FROM ${BASE}",
    ]
