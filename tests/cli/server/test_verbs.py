"""server info, ping, report, top and check, against both servers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import peers
from headrace import __version__, sync
from headrace.cli.server.check import Verdict

Run = Callable[..., Any]

ACCOUNTS = """
host: 127.0.0.1
port: %d
accounts {
  APP { jetstream: enabled, users [{user: app, password: app}] }
  BARE { users [{user: bare, password: bare}] }
  SYS { users [{user: sys, password: sys}] }
}
system_account: SYS
jetstream { store_dir: "%s" }
"""


@pytest.fixture(
    scope="module", params=["headrace", pytest.param("nats-server", marks=pytest.mark.peer)]
)
def with_accounts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[peers.ServerProcess]:
    directory: Path = tmp_path_factory.mktemp("accounts")
    config = directory / "accounts.conf"
    port = peers.free_port()
    config.write_text(ACCOUNTS % (port, directory / "streams"))
    if request.param == "headrace":
        flags = ["-c", str(config), "--sync", "os"]
        server = peers.start_headrace(directory, flags=flags, port=port)
    else:
        accounts = ACCOUNTS.split("\n", 3)[3].rsplit("jetstream", 1)[0]
        server = peers.start_nats_server(directory, config=accounts)
    yield server
    server.stop()


@pytest.fixture
def as_system(
    headrace: Run, with_accounts: peers.ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> Run:
    monkeypatch.setenv("NATS_URL", f"nats://sys:sys@127.0.0.1:{with_accounts.port}")
    return headrace


def test_info_says_where_we_are_and_what_we_have(
    at_server: Run, either_server: peers.ServerProcess, js: sync.JetStream
) -> None:
    js.create_stream(name="A", subjects=["a"])
    text = at_server("server", "info").out
    assert text.startswith("Server ")
    assert "JetStream:       yes" in text
    assert "Streams:         1 of unlimited" in text
    assert "Load:" not in text
    monitor = f"http://127.0.0.1:{either_server.monitoring_port}"
    assert "Load:" in at_server("server", "info", "--monitor", monitor).out
    told = at_server("server", "info", "--json").told
    assert (told["account"]["streams"], told["server"]["jetstream"]) == (1, True)
    assert at_server("server", "ping", "--count", "2", "--json").told["median_ms"] > 0


def test_versions_are_headrace_s_and_what_it_is_compatible_with(
    at_server: Run, either_server: peers.ServerProcess
) -> None:
    with sync.connect(either_server.url) as connection:
        info = connection.server_info
    said = info.version
    if either_server.name == "headrace":
        assert (info.headrace, info.version) == (__version__, "2.14.0")
        said = f"Headrace {__version__}, compatible with nats-server 2.14.0"
    sheet = at_server("server", "info")
    assert f"  Version:         {said}" in sheet.out
    assert sheet.lines[0] == f"Server at {either_server.url}"
    assert f"✓ server: {either_server.url} answers: {said}\n" in at_server("doctor").out


def test_who_may_not_ask_is_told_what_to_do(
    at_server: Run, either_server: peers.ServerProcess
) -> None:
    done = at_server("server", "report", "health")
    assert done.status == 1
    assert "a user of the system account" in done.err
    done = at_server("server", "report", "health", "--monitor", "http://127.0.0.1:1")
    assert (done.status, "http://127.0.0.1:1/healthz" in done.err) == (3, True)
    monitor = f"http://127.0.0.1:{either_server.monitoring_port}"
    rows = at_server("server", "report", "connections", "--monitor", monitor, "--json").told
    assert len(rows) >= 2
    assert at_server("server", "report", "health", "--monitor", monitor).lines[1] == "ok"


def test_the_system_account_sees_everything(
    as_system: Run, with_accounts: peers.ServerProcess
) -> None:
    url = f"nats://app:app@127.0.0.1:{with_accounts.port}"
    with sync.connect(url, name="an app") as connection:
        connection.jetstream().create_stream(name="A", subjects=["a"])
        rows = as_system("server", "report", "connections", "--json").told
        assert "an app" in [row.get("name") for row in rows]
        lines = as_system("server", "report", "accounts").lines
        assert {"APP", "SYS"} <= {line.split()[0] for line in lines[1:]}
        assert as_system("server", "report", "jetstream", "--json").told[0]["streams"] == 1
        assert as_system("server", "report", "health").lines[1] == "ok"
        assert "Load:" in as_system("server", "info").out
        look = as_system("server", "top", "--interval", "1ms", "--count", "1", "--json")
        assert "an app" in [row["name"] for row in json.loads(look.out)["connections"]]
        shown = as_system("server", "top", "--interval", "1ms", "--count", "1").lines
        assert shown[3].split()[0] == "CID"
        connection.jetstream().delete_stream("A")


def test_checks_speak_nagios(at_server: Run, js: sync.JetStream) -> None:
    done = at_server("server", "check", "connection")
    assert done.status == 0
    assert done.out.startswith("OK connection: connected to nats://127.0.0.1:")
    assert " | connect_time=" in done.out
    js.create_stream(name="A", subjects=["a"])
    assert (
        at_server("server", "check", "jetstream", "--format", "json").told["metrics"]["streams"]
        == 1
    )
    text = at_server("server", "check", "jetstream", "--format", "prometheus").out
    assert 'headrace_check_status{check="jetstream"} 0' in text


def test_what_the_doctor_finds_is_critical_or_a_warning(at_server: Run, js: sync.JetStream) -> None:
    done = at_server("server", "check", "findings")
    assert (done.status, done.out) == (
        0,
        "OK findings: nothing stands still | problems=0 notes=0\n",
    )
    js.create_stream(name="WORK", subjects=["w"])
    js.create_consumer("WORK", durable_name="late")
    js.publish("w", b"1")
    assert at_server("consumer", "pause", "WORK", "late", "1h").status == 0
    done = at_server("server", "check", "findings")
    assert done.status == 1
    assert done.out.startswith("WARNING findings: Warn: consumer WORK > late: paused for ")
    js.create_stream(name="KEPT", subjects=["k"], retention="workqueue")
    js.publish("k", b"1")
    done = at_server("server", "check", "findings", "--format", "json")
    assert done.status == 2
    said = json.loads(done.out)
    assert said["metrics"] == {"problems": 1, "notes": 1}
    assert said["criticals"] == [
        "stream KEPT: 1 message and no consumer: a work queue keeps them for good"
    ]
    (problem,) = [
        each for each in json.loads(at_server("doctor", "--json").out) if each["grade"] == "problem"
    ]
    assert said["criticals"] == [f"{problem['what']}: {problem['text']}"]


def test_the_system_account_is_told_what_stands_still_in_all_accounts(
    as_system: Run, with_accounts: peers.ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = as_system("doctor")
    assert done.status == 0, done.out
    assert "✓ jetstream: account SYS has none: all accounts were looked at" in done.out
    with sync.connect(f"nats://app:app@127.0.0.1:{with_accounts.port}") as connection:
        js = connection.jetstream()
        js.create_stream(name="KEPT", subjects=["k"], retention="workqueue")
        js.create_stream(name="LATE", subjects=["l"])
        js.create_consumer("LATE", durable_name="late").pause(3600.0)
        js.publish("k", b"1")
        js.publish("l", b"1")
        done = as_system("doctor")
        assert done.status == 1
        assert "✗ account APP: stream KEPT: 1 message and no consumer" in done.out
        assert "! account APP: consumer LATE > late: paused for" in done.out
        assert as_system("server", "check", "findings").status == 2
        for name in ("KEPT", "LATE"):
            js.delete_stream(name)
    monkeypatch.setenv("NATS_URL", f"nats://bare:bare@127.0.0.1:{with_accounts.port}")
    done = as_system("doctor")
    assert done.status == 1
    assert "✗ jetstream: account BARE has no JetStream, and this user may not look" in done.out


def test_a_check_of_nothing_is_critical(headrace: Run) -> None:
    done = headrace("server", "check", "connection", "-s", "nats://127.0.0.1:1")
    assert done.status == 2
    assert done.out.startswith("CRITICAL connection: Crit: no server could be reached")


def test_the_worst_counts() -> None:
    verdict = Verdict("x")
    verdict.judge("a", 5, 3, 10)
    assert (verdict.status, verdict.warnings) == (1, ["a 5 (at least 3)"])
    verdict.judge("b", 2, 1, 2, unit="s")
    assert (verdict.status, verdict.criticals) == (2, ["b 2s (at least 2)"])


def test_the_account_and_the_way_there_have_the_names_of_the_nats_tool(
    at_server: Run, js: sync.JetStream
) -> None:
    told = at_server("account", "info", "--json").told
    assert told["account"]["streams"] == 0
    told = at_server("rtt", "--iterations", "2", "--json").told
    assert len(told["rtt_ms"]) == 2
