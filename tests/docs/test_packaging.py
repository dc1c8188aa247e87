"""The files that are shipped: systemd takes the units, the broker the settings, a parser the others."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import guides
import peers
from headrace.cli import main
from headrace.cli.packaging import FILES
from headrace.cli.pipeline.file import MISTAKEN
from headrace.cli.shared.errors import USAGE
from headrace.pipeline.declaring.keys import TABLES

pytestmark = pytest.mark.usefixtures("logs_stay_as_they_were")

IMAGES = ("Dockerfile", "Dockerfile.pipeline")
PACKAGING = guides.ROOT / "src" / "headrace" / "packaging"


@pytest.mark.parametrize("name", ["headrace.toml", "container.toml"])
def test_the_broker_takes_the_settings(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "-c", str(PACKAGING / name), "-t"]) == 0
    assert "warn" not in capsys.readouterr().err.lower().replace("[inf]", "")


@pytest.mark.parametrize(
    "name", ["headrace.service", "headrace-jobs.service", "headrace-pipeline@.service"]
)
def test_systemd_takes_the_unit(name: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        peers.missing_peer("systemd-analyze", "install Debian's package systemd")
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


@pytest.mark.parametrize("name", IMAGES)
def test_the_image_copies_only_what_is_there(name: str) -> None:
    for line in (PACKAGING / name).read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (guides.ROOT / source).exists(), source


@pytest.mark.parametrize("name", IMAGES)
def test_both_stages_of_the_image_stand_on_one_base_that_can_be_chosen(name: str) -> None:
    lines = (PACKAGING / name).read_text().splitlines()
    assert [line for line in lines if line.startswith(("ARG ", "FROM "))] == [
        "ARG BASE=python:3.13-slim",
        "FROM ${BASE} AS build",
        "FROM ${BASE}",
    ]


def test_the_image_of_a_pipeline_has_java_spark_a_command_that_there_is_and_a_place_for_checkpoints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (PACKAGING / "Dockerfile.pipeline").read_text()
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", text)
    project = tomllib.loads((guides.ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert "spark" in extras.split(",") and "apt-get install -y" in text and "jre-headless" in text
    (command,) = re.findall(r"(?m)^CMD (\[.*\])$", text)
    _takes(json.loads(command), capsys)
    page = (guides.ROOT / "docs/how-to/deploy.md").read_text()
    (place,) = re.findall(r"(?m)^VOLUME (\S+)$", text)
    (mounted, waits) = re.findall(r"-v \w+:(\S+) --stop-timeout (\d+) headrace-pipeline", page)[0]
    assert mounted == place
    stop = next(key.default for key in TABLES["pipeline"] if key.name == "stop_timeout")
    assert int(waits) > float(str(stop).removesuffix("s"))


def test_the_command_knows_every_file_and_no_other() -> None:
    files = {str(path.relative_to(PACKAGING)) for path in PACKAGING.rglob("*") if path.is_file()}
    assert set(FILES) == files


def _documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((PACKAGING / name).read_text()))


def _takes(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The command line is one that Headrace takes."""
    assert command[0] == "headrace"
    with pytest.raises(SystemExit) as left:
        sys.exit(main([*command[1:], "--help"]))
    assert left.value.code == 0
    shown = capsys.readouterr().out
    for word in command:
        if word.startswith("--"):
            assert word in shown, f"{word} in {command}"


def test_the_containers_run_commands_that_there_are_and_reach_each_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (compose,) = _documents("compose.yaml")
    services = compose["services"]
    for name, service in services.items():
        assert set(service.get("depends_on", ())) <= set(services), name
        for volume in service.get("volumes", ()):
            assert volume.partition(":")[0] in compose["volumes"], name
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), f"{name} is open to other machines"
        if command := service.get("command"):
            _takes(command, capsys)
            for host in re.findall(r"(?:nats://|http://|@)(\w+)", " ".join(command)):
                assert host in services, f"{name} speaks to {host}"
    image = (PACKAGING / "Dockerfile").read_text()
    published = {
        port.rpartition(":")[2]
        for service in services.values()
        for port in service.get("ports", ())
    }
    assert set(re.search(r"(?m)^EXPOSE (.*)$", image)[1].split()) == published  # type: ignore[index]


def test_the_broker_takes_the_settings_for_kubernetes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, service, workload = _documents("kubernetes.yaml")
    monkeypatch.setenv("HEADRACE_PASSWORD", "secret")
    path = tmp_path / "headrace.conf"
    path.write_text(settings["data"]["headrace.conf"])
    assert main(["serve", "-c", str(path), "-t"]) == 0
    pod = workload["spec"]["template"]["spec"]
    (broker,) = pod["containers"]
    _takes(broker["args"], capsys)
    assert broker["args"][-1] == "/etc/headrace/" + next(iter(settings["data"]))
    ports = {port["name"]: port["containerPort"] for port in broker["ports"]}
    assert f"port: {ports['nats']}" in path.read_text()
    assert f"http_port: {ports['monitoring']}" in path.read_text()
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert broker[probe]["httpGet"]["port"] in ports
    assert [each["targetPort"] for each in service["spec"]["ports"]] == ["nats"]
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == workload["spec"]["selector"]["matchLabels"] == labels
    assert workload["spec"]["replicas"] == 1
    claimed = {claim["metadata"]["name"] for claim in workload["spec"]["volumeClaimTemplates"]}
    there = claimed | {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in broker["volumeMounts"]} == there
