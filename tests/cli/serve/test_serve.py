"""``headrace serve`` as a user and a harness meet it: a process, its log lines and its signals."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import main
from headrace.cli.serve.command import send_signal
from headrace.errors import ConfigurationError
from waiting import until_here

LOG_LINE = re.compile(
    r"\[\d+\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} \[(DBG|INF|WRN|ERR|FTL)\] (.*)"
)


class Served:
    """A running ``headrace serve`` and the lines it has said."""

    def __init__(self, *flags: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headrace", "serve", *flags],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        self.lines: list[tuple[str, str]] = []
        self._timer = threading.Timer(20, self.process.kill)  # a test must not hang
        self._timer.start()

    def wait_for(self, wanted: str) -> re.Match[str]:
        """Read the log until a line matches."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            parsed = LOG_LINE.fullmatch(line.rstrip("\n"))
            assert parsed is not None, line
            self.lines.append((parsed[1], parsed[2]))
            if found := re.fullmatch(wanted, parsed[2]):
                return found
        raise AssertionError(f"no line {wanted!r} in {self.lines}")

    def ready(self) -> int:
        """The port, once the server is ready."""
        found = self.wait_for(r"Listening for client connections on 127\.0\.0\.1:(\d+)")
        self.wait_for("Server is ready")
        return int(found[1])

    def end(self) -> int:
        """Read the rest of the log; the exit status."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            parsed = LOG_LINE.fullmatch(line.rstrip("\n"))
            self.lines.append((parsed[1], parsed[2]) if parsed else ("", line))
        return self.process.wait(10)

    def close(self) -> None:
        self._timer.cancel()
        self.process.kill()
        self.process.wait(10)
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    running: list[Served] = []

    def start(*flags: str) -> Served:
        running.append(Served(*flags))
        return running[-1]

    yield start
    for served in running:
        served.close()


def test_a_harness_finds_port_urls_and_readiness(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    served = serve("-p", "-1", "-m", "-1", "-js", "--ports_file_dir", str(tmp_path), "-n", "mill")
    port = served.ready()
    assert any("nats://127.0.0.1" in text and "headrace 0" in text for _, text in served.lines)
    ports_file = tmp_path / f"headrace_{served.process.pid}.ports"
    document = json.loads(ports_file.read_text())
    assert document["nats"] == [f"nats://127.0.0.1:{port}"]
    with urllib.request.urlopen(document["monitoring"][0] + "/varz", timeout=5) as answer:
        varz = json.load(answer)
    assert varz["server_name"] == "mill"
    assert varz["port"] == port
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        assert b'"jetstream":true' in client.recv(4096)
    served.process.send_signal(signal.SIGTERM)
    assert served.end() == 0
    assert ("INF", "Server Exiting..") in served.lines
    assert not ports_file.exists()


UNWANTED = {
    "bcrypt", "bz2", "cryptography", "difflib", "email", "http", "lzma", "rich", "shutil", "sysconfig",
    "tomllib", "urllib.request", "websockets", "zoneinfo", "concurrent.futures.thread",
    "headrace.client", "headrace.jobs", "headrace.cli.serve.nats", "headrace.cli.serve.console",
    "headrace.broker.core.auth.jwt", "headrace.broker.core.auth.jwt_auth", "headrace.broker.server.keys",
    "headrace.broker.server.monitor", "headrace.broker.server.config.accounts",
    "headrace.broker.server.config.syntax", "headrace.broker.server.connections.websocket",
    "headrace.broker.core.net.inprocess",
}  # fmt: skip
MODULES_MAX = 390  # 385 when this was written; a module costs 0.1 to 0.3 ms, whoever needs it


def test_a_start_loads_nothing_that_only_some_need(tmp_path: Path) -> None:
    """A start costs processor time, and most of it is loading modules."""
    program = (
        "import sys; from headrace.cli import main; "
        f"main(['serve', '-t', '-p', '0', '-sd', {str(tmp_path / 'store')!r}]); print(*sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(found.stdout.split())
    assert loaded & UNWANTED == set()
    assert len(loaded) <= MODULES_MAX


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_cleanly_with_clients_connected(
    serve: Callable[..., Served], signal_number: signal.Signals
) -> None:
    served = serve("-p", "0", "-DV")
    port = served.ready()
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        client.recv(4096)
        served.wait_for(".*Client connection created")
        served.process.send_signal(signal_number)
        assert served.end() == 0
        assert client.recv(4096) == b""


def test_a_lame_duck_tells_its_clients(serve: Callable[..., Served]) -> None:
    served = serve("-p", "0")
    port = served.ready()
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        client.recv(4096)
        served.process.send_signal(signal.SIGUSR2)
        assert b'"ldm":true' in client.recv(4096)
        served.process.send_signal(signal.SIGTERM)  # the second signal does not wait
        assert served.end() == 1


def test_a_hangup_without_a_file_changes_nothing(serve: Callable[..., Served]) -> None:
    served = serve("-p", "0")
    served.ready()
    served.process.send_signal(signal.SIGHUP)
    served.wait_for("Trapped hangup: no configuration file .*")
    served.process.send_signal(signal.SIGTERM)
    assert served.end() == 0


def test_a_log_file_is_opened_anew_and_a_process_file_is_there_while_serving(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    log, moved, pid = (tmp_path / name for name in ("a.log", "b.log", "a.pid"))
    flags = ("-l", str(log), "-P", str(pid), "--logtime_utc", "--ports_file_dir", str(tmp_path))
    served = serve("-p", "-1", *flags, "--cluster_name", "c")

    def wait_for(file: Path, text: str) -> None:
        def is_there() -> bool:
            assert served.process.poll() is None, file.read_text()
            return file.exists() and text in file.read_text()

        until_here(is_there, f"{text!r} is not in {file}", within=60)

    wait_for(log, "Server is ready")
    assert "--cluster_name: not supported, ignored" in log.read_text()
    assert int(pid.read_text()) == served.process.pid
    log.rename(moved)
    assert main(["serve", "-sl", f"reopen={pid}"]) == 0
    wait_for(log, "File log re-opened")
    assert main(["serve", "--signal=term=" + str(served.process.pid)]) == 0
    assert served.end() == 0
    assert served.lines == []
    assert "Server Exiting.." in log.read_text()
    assert [path.name for path in tmp_path.iterdir()] in (["a.log", "b.log"], ["b.log", "a.log"])


def _json_lines(flags: list[str]) -> list[dict[str, Any]]:
    """What a broker that is stopped once it is ready has logged."""
    command = [sys.executable, "-m", "headrace", "serve", "-p", "-1", *flags]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        timer = threading.Timer(20, process.kill)
        timer.start()
        lines = []
        for line in process.stderr:
            lines.append(json.loads(line))
            if lines[-1]["message"] == "Server is ready":
                process.send_signal(signal.SIGTERM)
        timer.cancel()
    assert all(line["pid"] == process.pid for line in lines)
    return lines


def test_log_lines_are_json_if_asked_for_by_flag_or_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("log_format = 'json'\nlogtime = false\n")
    for flags in (["--log-format=json", "-DV"], ["-c", str(file)]):
        lines = _json_lines(flags)
        assert lines[0]["message"] == "Starting headrace"
        assert lines[-1]["message"] == "Server Exiting.."
        assert lines[0]["time"].endswith("Z")
        assert {line["level"] for line in lines} <= {"debug", "info", "warning"}


def test_a_wrong_setting_is_told_as_json_if_the_flag_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["serve", "--log-format", "json", "--sync", "sometimes", "-t"]) == 1
    line = json.loads(capsys.readouterr().err)
    assert line["level"] == "critical"
    assert "'sometimes'" in line["message"]
    assert main(["serve", "--log-format", "xml", "-t"]) == 1
    assert "'text' or 'json'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("request_", "complaint"),
    [
        ("jump=1", "'jump'; accepted are ldm, stop, quit, term, reopen, reload"),
        ("reload", "whom to tell is missing; accepted is reload=<pid> or reload=<pid file>"),
        ("reload=/nowhere", "/nowhere: No such file or directory"),
        ("reload=0", "0: no process id, nor a file that has one"),
    ],
)
def test_a_signal_to_nobody_is_refused(request_: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(f"--signal: {complaint}")):
        send_signal(request_)


def test_without_a_log_file_there_is_none_to_open_anew(serve: Callable[..., Served]) -> None:
    served = serve("-p", "0", "-T=false")
    assert served.process.stderr is not None
    assert re.fullmatch(r"\[\d+\] \[INF\] Starting headrace\n", served.process.stderr.readline())
    for line in served.process.stderr:
        if "Server is ready" in line:
            break
    served.process.send_signal(signal.SIGUSR1)
    assert "[WRN] File log re-opening ignored" in served.process.stderr.readline()


def test_called_nats_server_it_serves_and_its_ports_are_found_by_that_name(tmp_path: Path) -> None:
    program = tmp_path / "nats-server"
    program.symlink_to(Path(sys.executable).with_name("headrace"))
    command: list[str | Path] = [program, "-p", "-1", "--ports_file_dir", tmp_path, "-m=-1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "Server is ready" in line:
                break
        assert (tmp_path / f"nats-server_{process.pid}.ports").exists()
        process.terminate()


@pytest.mark.parametrize(
    ("name", "flags", "serves"),
    [
        ("nats-server", [], False),
        ("nats-server", ["-sd", "data"], False),
        ("nats-server", ["-js"], True),
        ("headrace", ["serve"], True),
    ],
    ids=["nats-server", "with a directory alone", "with -js", "headrace serve"],
)
def test_called_nats_server_it_serves_streams_if_asked_to_as_that_does(
    tmp_path: Path, name: str, flags: list[str], serves: bool
) -> None:
    program = tmp_path / name
    program.symlink_to(Path(sys.executable).with_name("headrace"))
    command: list[str | Path] = [program, *flags, "-p", "-1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stderr is not None
        said = ""
        for line in process.stderr:
            said += line
            if "Server is ready" in line:
                break
        found = re.search(r"headrace \S+ at nats://127\.0\.0\.1:(\d+)", said)
        port = int(found[1]) if found else 0
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            info = client.recv(4096)
        process.terminate()
    assert (b'"jetstream":true' in info) == serves
    assert ("-js serves them" in said) != serves


def log_in(port: int, user: str) -> tuple[socket.socket, bytes]:
    """A client and the first thing it hears after CONNECT and PING."""
    client = socket.create_connection(("127.0.0.1", port), timeout=5)
    client.recv(4096)
    document = json.dumps({"user": user, "pass": "p", "verbose": False, "pedantic": False})
    client.sendall(f"CONNECT {document}\r\nPING\r\n".encode())
    return client, client.recv(4096)


def test_a_hangup_reloads_users_permissions_and_the_level_of_the_log(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    file = tmp_path / "nats.conf"
    file.write_text(
        "port: -1, host: 127.0.0.1\nauthorization { users: [ "
        "{user: ann, password: p}, {user: bob, password: p} ] }"
    )
    served = serve("-c", str(file))
    port = served.ready()
    ann, heard = log_in(port, "ann")
    bob, _ = log_in(port, "bob")
    assert heard == b"PONG\r\n"
    ann.sendall(b"SUB x 1\r\nSUB y 2\r\nPING\r\n")
    assert ann.recv(4096) == b"PONG\r\n"
    file.write_text(
        "port: -1, host: 127.0.0.2, debug: true\nauthorization { users: [ "
        "{user: ann, password: p, permissions: {subscribe: x}}, {user: eve, password: p} ] }"
    )
    served.process.send_signal(signal.SIGHUP)
    served.wait_for("Changed, but in need of a restart: host")
    served.wait_for("Reloaded server configuration")
    assert ann.recv(4096) == b'-ERR \'Permissions Violation for Subscription to "y" (sid "2")\'\r\n'
    assert bob.recv(4096) == b"-ERR 'Authorization Violation'\r\n"
    eve, heard = log_in(port, "eve")
    assert heard == b"PONG\r\n"
    served.wait_for(".*Client connection created")  # the level of the log has changed, too
    file.write_text("port: ")
    served.process.send_signal(signal.SIGHUP)
    served.wait_for("Nothing was reloaded: .*nats.conf:1:1: 'port' has no value")
    eve.sendall(b"PING\r\n")
    assert eve.recv(4096) == b"PONG\r\n"
    for client in (ann, bob, eve):
        client.close()


def test_a_hangup_reloads_accounts_and_the_ports_of_websockets_are_told(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    file = tmp_path / "nats.conf"
    head = (
        f'port: -1, host: 127.0.0.1, jetstream: on, ports_file_dir: "{tmp_path}"\n'
        "websocket { port: -1, no_tls: true }\n"
    )
    ann_of = "A {{ users: [ {{user: ann, password: p}} ], jetstream: {} }}".format

    def write(*accounts: str) -> None:
        file.write_text(f"{head} accounts {{ {', '.join(accounts)} }}")

    write(ann_of("{ max_streams: 0 }"))
    served = serve("-c", str(file))
    port = served.ready()
    (ports_file,) = tmp_path.glob("*.ports")
    (websocket,) = json.loads(ports_file.read_text())["websocket"]
    assert websocket.startswith("ws://127.0.0.1:")
    ann, _ = log_in(port, "ann")
    create = b'PUB $JS.API.STREAM.CREATE.S r 27\r\n{"name":"S","subjects":["s"]}\r\n'
    create = create.replace(b" 27\r", b" 31\r").replace(b'["s"]}', b'["s"]  }')
    ann.sendall(b"SUB r 1\r\n" + create)
    assert b'"err_code":10027' in ann.recv(4096)
    other = "B { users: [ {user: bob, password: p} ] }"
    write(ann_of("{ max_streams: 5 }"), other)
    served.process.send_signal(signal.SIGHUP)
    served.wait_for("Reloaded server configuration")
    bob, heard = log_in(port, "bob")
    assert heard == b"PONG\r\n"
    ann.sendall(create)
    assert b'"did_create":true' in ann.recv(4096)
    write(ann_of("off"))
    served.process.send_signal(signal.SIGHUP)
    served.wait_for("Changed, but in need of a restart: accounts.A.jetstream")
    assert b"Authorization Violation" in bob.recv(4096)
    for client in (ann, bob):
        client.close()


def test_settings_come_from_a_file_and_flags_win(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text('port = 1\nserver_name = "mill"\njetstream = false\nauth = "t"\n')
    served = serve("-c", str(file), "-p", "-1")
    port = served.ready()
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        info = json.loads(client.recv(4096)[5:])
    assert info["server_name"] == "mill"
    assert info["auth_required"] is True
    assert "jetstream" not in info


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["-p", "70000"], "port: 70000; accepted are 1 to 65535"),
        (["-a", "0.0.0.0", "-p", "0"], "host: '0.0.0.0' can be reached from other machines"),
        (["--tls"], "tls: tlscert and tlskey missing"),
        (["-c", "/nowhere.toml"], "/nowhere.toml: cannot read it: No such file or directory"),
        (["--sync", "now"], "--sync: 'now' is not accepted; it must be 'always'"),
    ],
)
def test_a_wrong_setting_is_one_fatal_line_and_status_1(
    serve: Callable[..., Served], flags: list[str], complaint: str
) -> None:
    served = serve(*flags)
    assert served.end() == 1
    level, text = served.lines[-1]
    assert level == "FTL"
    assert text.startswith(complaint)


def test_settings_can_be_checked_without_serving(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    file = tmp_path / "nats.conf"
    file.write_text("host: 127.0.0.1\nport: 4222\njetstream: off\nmax_conn: 3")
    served = serve("-t", "-c", str(file))
    assert served.end() == 0
    assert served.lines == [("INF", "The settings are valid")]
    file.write_text("gateways {}")
    served = serve("-t", "-c", str(file))
    assert served.end() == 1
    level, text = served.lines[0]
    assert level == "FTL"
    assert text.startswith(f"{file}:1:1: gateways: unknown or not supported; did you mean")


def test_certificates_of_every_listener_are_looked_at_when_settings_are_checked(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    path = tmp_path / "nats.conf"
    path.write_text("websocket { port: -1, tls { cert_file: nowhere.pem, key_file: nowhere.key } }")
    served = serve("-t", "-c", str(path))
    assert served.end() == 1
    assert "cannot use the certificate 'nowhere.pem'" in served.lines[-1][1]


def test_what_a_file_leaves_open_is_warned_about_unless_a_flag_says_it(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    file = tmp_path / "nats.conf"
    file.write_text("port: 4222")
    served = serve("-t", "-c", str(file))
    assert served.end() == 0
    assert [text.split(": ")[1] for level, text in served.lines if level == "WRN"] == [
        "host",
        "jetstream",
    ]
    served = serve("-t", "-c", str(file), "-js", "-a", "127.0.0.1")
    assert served.end() == 0
    assert [level for level, _ in served.lines] == ["INF"]


def test_a_busy_port_is_one_fatal_line(serve: Callable[..., Served]) -> None:
    port = serve("-p", "0")
    taken = port.ready()
    second = serve("-p", str(taken))
    assert second.end() == 1
    assert second.lines[-1][0] == "FTL"
    assert "another process is listening there" in second.lines[-1][1]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace", *arguments], capture_output=True, text=True, timeout=20
    )


def test_the_version_is_answered_without_importing_the_broker() -> None:
    code = (
        "import sys; from headrace.cli import main; main(['--version']); "
        "print([m for m in sys.modules if m.startswith(('headrace.b', 'asyncio', 'msgspec'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=True
    )
    version, modules = done.stdout.splitlines()
    assert re.fullmatch(r"headrace \d+\.\d+\.\d+\S*", version)
    assert modules == "[]"


def test_without_a_command_the_commands_are_listed() -> None:
    done = run()
    assert done.returncode == 0
    assert "serve" in done.stdout
    assert run("--help").stdout == done.stdout


def test_an_unknown_command_is_told_the_nearest_one() -> None:
    done = run("sevre")
    assert done.returncode == 2
    assert done.stderr == "headrace: no command 'sevre'; did you mean 'serve'?\n"


def test_the_help_of_serve_explains_its_flags() -> None:
    text = run("serve", "--help").stdout
    for flag in ("--addr", "--port", "-js", "-sd", "--http_port", "-DV", "--insecure", "--sync"):
        assert flag in text


def test_through_a_link_named_nats_server_it_says_its_version_as_that_does(tmp_path: Path) -> None:
    link = tmp_path / "nats-server"
    link.symlink_to(Path(sys.executable).with_name("headrace"))
    for flag in ("--version", "-v"):
        done = subprocess.run([link, flag], capture_output=True, text=True, check=True)
        assert re.fullmatch(r"nats-server: v\d+\.\d+\.\d+\n", done.stdout)
