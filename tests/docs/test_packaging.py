"""The files that are shipped: systemd takes the units, the broker the settings, a parser the others."""

from __future__ import annotations

import json
import os
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
from headrace import sync
from headrace.cli import main
from headrace.cli.packaging import FILES
from headrace.cli.pipeline.file import MISTAKEN
from headrace.cli.shared.errors import USAGE
from headrace.client import read_backup
from headrace.pipeline.declaring.keys import TABLES

pytestmark = pytest.mark.usefixtures("logs_stay_as_they_were")

IMAGES = ("Dockerfile", "Dockerfile.pipeline")
PACKAGING = guides.ROOT / "src" / "headrace" / "packaging"


@pytest.mark.parametrize("name", ["headrace.toml", "container.toml"])
def test_the_broker_takes_the_settings(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "-c", str(PACKAGING / name), "-t"]) == 0
    assert "warn" not in capsys.readouterr().err.lower().replace("[inf]", "")


@pytest.mark.parametrize(
    "name",
    [
        "headrace.service",
        "headrace-jobs.service",
        "headrace-pipeline@.service",
        "headrace-backup.service",
        "headrace-backup.timer",
    ],
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
    if name.endswith(".timer"):  # the unit that it starts has to be there, too
        service = unit.with_suffix(".service")
        service.write_text(f"[Service]\nType=oneshot\nExecStart={program}\n")
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


def test_the_unit_backs_up_every_account_and_names_the_one_that_it_could_not(
    tmp_path: Path, either_server: str
) -> None:
    """What the unit runs, as systemd reads it, with the page's permissions."""
    text = (PACKAGING / "headrace-backup.service").read_text()
    found = re.search(r"(?ms)^ExecStart=/bin/sh -uc '(.*?)'$", text)
    assert found is not None
    script = found[1].replace("\\\n", "").replace("%%", "%").replace("$$", "$")
    script = script.replace("/opt/headrace/bin/headrace", f"{sys.executable} -m headrace")
    rights = re.findall(r"`(\$JS[^`]+)`", (guides.ROOT / "docs/backup.md").read_text())
    assert len(rights) == 6
    may = f'permissions {{ publish: {json.dumps(rights)}, subscribe: "_INBOX.>" }}'
    accounts = "\n".join(
        f"{name}: {{ jetstream: enabled, users: [ {{ user: {name}, password: p }}, "
        f"{{ user: {name}-backup, password: p, {may} }} ] }}"
        for name in ("shop", "lab")
    )
    server = _with_accounts(either_server, tmp_path / "server", f"accounts {{ {accounts} }}\n")
    environment = {
        **os.environ,
        "XDG_CONFIG_HOME": str(tmp_path / "etc"),
        "STATE_DIRECTORY": str(tmp_path / "saved"),
        "LC_ALL": "C",
    }
    try:
        for account in ("shop", "lab", "gone"):
            words = ["context", "create", account, "--server", server.url]
            login = ["--user", f"{account}-backup", "--password", "p"]
            subprocess.run(
                [sys.executable, "-m", "headrace", *words, *login], check=True, env=environment
            )
        for account in ("shop", "lab"):
            url = server.url.replace("nats://", f"nats://{account}:p@")
            with sync.connect(url) as connection:
                js = connection.jetstream()
                js.create_stream(name=account.upper(), subjects=[f"{account}.>"])
                js.publish(f"{account}.1", account.encode())
                js.stream(account.upper()).create_consumer(durable_name="work")
        done = subprocess.run(
            ["sh", "-uc", script], capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == 1
        assert "account of context gone: not backed up" in done.stderr
        assert "lab: not" not in done.stderr and "shop: not" not in done.stderr
        (day,) = (tmp_path / "saved").iterdir()
        whole = [(each.parent.name, read_backup(each)) for each in sorted(day.glob("*/*"))]
        assert [(name, each.config.name, each.state.messages) for name, each in whole] == [
            ("lab", "LAB", 1),
            ("shop", "SHOP", 1),
        ]
        assert [
            line for line in server.log_text().splitlines() if "Permissions Violation" in line
        ] == []
        (tmp_path / "etc" / "nats" / "context" / "gone.json").unlink()
        again = subprocess.run(["sh", "-uc", script], env=environment, check=False)
        assert again.returncode == 0, "it replaces the backups of the week before"
    finally:
        server.stop()


@pytest.fixture(params=["headrace", pytest.param("nats-server", marks=pytest.mark.peer)])
def either_server(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _with_accounts(kind: str, directory: Path, conf: str) -> peers.ServerProcess:
    if kind == "nats-server":
        return peers.start_nats_server(directory, config=conf, flags=["-DV"])
    directory.mkdir(parents=True)
    file = directory / "accounts.conf"
    file.write_text(f"jetstream {{ store_dir: {str(directory / 'store')!r} }}\n{conf}")
    return peers.start_headrace(directory, flags=["-c", str(file), "-DV"])
