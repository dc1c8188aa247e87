"""server info, ping, report, top and check, against both servers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import peers
from headrace import __version__, sync
from headrace.cli.server.check import judge_meta, time_in
from headrace.cli.server.verdict import Verdict
from headrace.cli.shared.errors import Failure
from token_forge import Key, credentials, token

Run = Callable[..., Any]

ACCOUNTS = """
host: 127.0.0.1
port: %d
accounts {
  APP { jetstream: enabled, users [{user: app, password: app}] }
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
    (row,) = at_server("server", "report", "cpu", "--monitor", monitor, "--json").told
    assert row["mem"] > 1_000_000
    assert row["cores"] >= 1
    lines = at_server("server", "report", "mem", "--monitor", monitor).lines
    assert lines[0].split() == ["SERVER", "CPU", "CORES", "MEMORY", "CONNECTIONS", "UP"]
    done = at_server("server", "check", "meta", "--monitor", monitor)
    assert (done.status, done.out.startswith("CRITICAL meta: Crit: the server belongs to no")) == (
        2,
        True,
    )


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
        assert as_system("server", "check", "server", "--conn-critical", "1").status == 2
        connection.jetstream().delete_stream("A")


def test_checks_speak_nagios(at_server: Run, js: sync.JetStream) -> None:
    done = at_server("server", "check", "connection")
    assert done.status == 0
    assert done.out.startswith("OK connection: connected to nats://127.0.0.1:")
    assert " | connect_time=" in done.out
    done = at_server("server", "check", "stream", "A")
    assert (done.status, done.out.startswith("CRITICAL stream A: Crit: ")) == (2, True)
    stream = js.create_stream(name="A", subjects=["a"])
    js.publish("a", b"1")
    stream.create_consumer(durable_name="c")
    assert at_server("server", "check", "stream", "A", "--msgs-warn", "5").out.startswith(
        "WARNING stream A: Warn: messages 1 (at most 5) | messages=1;5"
    )
    done = at_server("server", "check", "consumer", "A", "c", "--unprocessed-critical", "1")
    assert (done.status, "Crit: unprocessed 1 (at least 1)" in done.out) == (2, True)
    assert (
        at_server("server", "check", "jetstream", "--format", "json").told["metrics"]["streams"]
        == 1
    )
    text = at_server("server", "check", "jetstream", "--format", "prometheus").out
    assert 'headrace_check_status{check="jetstream"} 0' in text
    js.create_key_value("b").put("k", b"1")
    assert at_server("server", "check", "kv", "b", "--key", "k").status == 0
    assert at_server("server", "check", "kv", "b", "--key", "l").status == 2


def test_a_check_of_nothing_is_critical(headrace: Run) -> None:
    done = headrace("server", "check", "connection", "-s", "nats://127.0.0.1:1")
    assert done.status == 2
    assert done.out.startswith("CRITICAL connection: Crit: no server could be reached")


def test_the_worst_counts() -> None:
    verdict = Verdict("x")
    verdict.judge("a", 5, 3, 10)
    assert (verdict.status, verdict.warnings) == (1, ["a 5 (at least 3)"])
    verdict.judge("b", 1, 3, 2, unit="s", below=True)
    assert (verdict.status, verdict.criticals) == (2, ["b 1s (at most 2)"])


def test_the_account_and_the_way_there_have_the_names_of_the_nats_tool(
    at_server: Run, js: sync.JetStream
) -> None:
    told = at_server("account", "info", "--json").told
    assert told["account"]["streams"] == 0
    told = at_server("rtt", "--iterations", "2", "--json").told
    assert len(told["rtt_ms"]) == 2


def test_the_newest_message_is_checked(at_server: Run, js: sync.JetStream) -> None:
    js.create_stream(name="A", subjects=["a.*"])
    check = ("server", "check", "message", "A")
    done = at_server(*check)
    assert (done.status, "no message found" in done.out) == (2, True)
    js.publish("a.1", b"all is well")
    js.publish("a.2", b"12")
    done = at_server(*check, "--subject", "a.1", "--content", "w.ll", "--age-critical", "1h")
    assert (done.status, done.out.startswith("OK message A: message 1 on a.1 | age=")) == (0, True)
    done = at_server(*check, "--subject", "a.1", "--content", "ill")
    assert (done.status, "Crit: its payload does not have 'ill'" in done.out) == (2, True)
    done = at_server(*check, "--body-timestamp", "--age-warn", "1h")  # the 12th second of 1970
    assert (done.status, done.out.startswith("WARNING message A: Warn: age ")) == (1, True)
    done = at_server(*check, "--subject", "a.1", "--body-timestamp")
    assert (done.status, "no time: accepted are" in done.out) == (2, True)
    done = at_server(*check, "--content", "(")
    assert (done.status, "no regular expression" in done.out) == (2, True)
    assert time_in("1970-01-01T01:00:00+01:00\n") == 0
    for wrong in ("1970-01-01T00:00:00", "", "soon", "9" * 400):
        with pytest.raises(Failure, match="no time"):
            time_in(wrong)


def test_the_servers_of_a_cluster_are_checked() -> None:
    peer = {"name": "b", "current": True, "active": 2_000_000_000, "lag": 7}
    cluster = {"leader": "a", "cluster_size": 2, "replicas": [peer]}
    none: dict[str, float | None] = dict.fromkeys(
        ("lag_warn", "lag_critical", "seen_warn", "seen_critical")
    )

    def judged(cluster: Any, expect: int | None = None, **limits: float | None) -> Verdict:
        verdict = Verdict("meta")
        judge_meta(verdict, cluster, expect, **{**none, **limits})
        return verdict

    fine = judged(cluster, 2)
    assert (fine.status, fine.fine) == (0, ["2 servers, led by a"])
    assert judged(cluster, 3).criticals == ["2 servers, not 3"]
    assert judged(cluster, lag_warn=7).warnings == ["lag_b 7 (at least 7)"]
    assert judged(cluster, seen_critical=1.0).criticals == ["seen_b 2s (at least 1)"]
    away = {**cluster, "leader": "", "replicas": [{**peer, "offline": True}, {"peer": "c"}]}
    assert judged(away).criticals == ["there is no leader", "b is offline", "c is behind"]
    nothings: tuple[Any, ...] = (None, {}, [], "x")
    for nothing in nothings:
        assert judged(nothing).status == 2


def test_how_long_credentials_are_valid_is_checked(headrace: Run, tmp_path: Path) -> None:
    account, user = Key("A"), Key("U")
    file = tmp_path / "user.creds"

    def check(exp: int, *flags: str) -> Any:
        file.write_text(credentials(token(account, user, "user", exp=exp), user))
        return headrace("server", "check", "credential", str(file), *flags)

    now = int(time.time())
    assert check(0).status == 2
    assert "it never ends" in check(0, "--no-require-expiry").out
    assert check(0, "--no-require-expiry").status == 0
    done = check(now + 100_000)
    assert (done.status, "it is valid until 20" in done.out) == (0, True)
    assert check(now + 100_000, "--validity-warn", "48h").status == 1
    assert check(now + 100_000, "--validity-critical", "48h").status == 2
    done = check(now - 100_000)
    assert (done.status, "it has ended at 20" in done.out) == (2, True)
    assert user.seed not in done.out
    assert headrace("server", "check", "credential", str(tmp_path / "none")).status == 2
    file.write_text(credentials("no.token", user))
    done = headrace("server", "check", "credential", str(file), "--format", "json")
    assert (done.status, "its token cannot be read" in done.out) == (2, True)
