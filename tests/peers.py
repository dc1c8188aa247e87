"""Peers the tests compare with or talk to: nats-server, and our own broker in a process of its own.

The fixtures that use this stand in ``conftest.py``. The rule for a missing peer stands in one
place, ``missing_peer``: a laptop skips, ``CI=true`` fails.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest

from ports import Ports
from server_forks import Forks

INSTALL_NATS_SERVER = "run make env"
STARTUP_SECONDS = 60.0  # it says when it is ready; a busy machine takes long
STOP_SECONDS = 10.0
PORTS = Ports()
FORKS = Forks()
EITHER = ("nats-server", "headrace")
EVERY_SERVER = bool(os.environ.get("HEADRACE_EVERY_SERVER"))
PLAYED_ON = [
    "headrace",
    *([pytest.param("nats-server", marks=pytest.mark.peer)] if EVERY_SERVER else []),
]
"""The servers for what is decided beside the server, in Spark or in a pipeline: ours, in full both."""

__all__ = [
    "EITHER",
    "EVERY_SERVER",
    "PLAYED_ON",
    "ServerProcess",
    "either_running",
    "missing_peer",
    "nats_server_binary",
    "package",
    "start_either",
    "start_headrace",
    "start_nats_server",
]


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def missing_peer(what: str, remedy: str) -> NoReturn:
    """Skip on a laptop, fail where everything has to be there but what ``HEADRACE_WITHOUT`` lists."""
    text = f"{what} is missing: {remedy}"
    if in_ci() and what not in os.environ.get("HEADRACE_WITHOUT", "").split(","):
        pytest.fail(text, pytrace=False)
    pytest.skip(text, allow_module_level=True)


def package(name: str) -> Any:
    """A module of a package that the lock has; where it is not installed it is missing as a peer is."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing_peer(f"{name} ({error})", "run make env")


def nats_server_binary() -> Path | None:
    """The nats-server of this Python environment; one that is only on PATH is not used."""
    found = shutil.which("nats-server", path=sysconfig.get_path("scripts"))
    return Path(found) if found else None


def free_port() -> int:
    """A port nobody listens on; for flags that cannot report the port they chose."""
    return PORTS.next()


@dataclass
class ServerProcess:
    """A server we started and must stop."""

    name: str
    process: subprocess.Popen[bytes]
    host: str
    port: int
    store_dir: Path
    log: Path
    monitoring_port: int = 0
    credentials: Mapping[str, str] = field(default_factory=dict)
    scheme: str = "nats"
    command: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def kill(self) -> None:
        """End it the hard way: SIGKILL, nothing is flushed."""
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def start_again(self) -> None:
        """Start it as before, once it has ended: on its port, with its store."""
        self.process = _spawn(self.command, self.log, self.env)
        try:
            _wait_until_it_answers(self)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> int:
        """End it politely; returns the exit status, which is negative if it had to be killed."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait(STOP_SECONDS)


def _wait_until_it_answers(server: ServerProcess) -> None:
    """Connect until the INFO line arrives: having the port is not yet being ready to speak."""
    deadline = time.monotonic() + STARTUP_SECONDS
    while True:
        if server.process.poll() is not None:
            raise RuntimeError(
                f"{server.name} ended with status {server.process.returncode} while starting:\n"
                f"{server.log_text()}"
            )
        try:
            with socket.create_connection((server.host, server.port), timeout=1.0) as probe:
                if probe.recv(5) == b"INFO ":
                    return
        except OSError:
            pass  # not listening yet: the deadline below decides
        if time.monotonic() > deadline:
            server.kill()
            raise RuntimeError(f"{server.name} did not start in time:\n{server.log_text()}")
        time.sleep(0.005)  # nothing to wait for: a port opening raises no event in another process


def _spawn(command: Sequence[str], log: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    if FORKS.are_wanted and not env and (fork := FORKS.fork(command, log)) is not None:
        return fork
    with log.open("ab") as sink:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            cwd=log.parent,
            env={**os.environ, **env},
        )


def _launch(
    name: str,
    command: Sequence[str],
    port: int,
    store_dir: Path,
    log: Path,
    env: Mapping[str, str] | None = None,
) -> ServerProcess:
    env = env or {}
    process = _spawn(command, log, env)
    server = ServerProcess(
        name, process, "127.0.0.1", port, store_dir, log, command=command, env=env
    )
    try:
        _wait_until_it_answers(server)
    except BaseException:
        server.kill()
        raise
    return server


def start_nats_server(
    directory: Path,
    *,
    config: str = "",
    flags: Sequence[str] = (),
    jetstream: bool = True,
    sync: str = "",
    limits: str = "",
    port: int = 0,
    env: Mapping[str, str] | None = None,
) -> ServerProcess:
    """Start the reference server; ``config`` is appended to a generated configuration file.

    ``sync`` sets ``sync_interval`` (``"always"``, ``"2m"``; empty: the server's default), ``limits`` is
    what stands in ``jetstream { limits { … } }``.
    """
    binary = nats_server_binary()
    if binary is None:
        missing_peer("nats-server", INSTALL_NATS_SERVER)
    directory.mkdir(parents=True, exist_ok=True)
    store_dir = directory / "store"
    port = port or free_port()
    lines = ['host: "127.0.0.1"', f"port: {port}"]
    if jetstream:
        settings = [f'store_dir: "{store_dir}"', *([f"sync_interval: {sync}"] if sync else [])]
        settings += [f"limits {{ {limits} }}"] if limits else []
        lines.append(f"jetstream {{ {', '.join(settings)} }}")
    lines.append(config)
    config_file = directory / "nats.conf"
    config_file.write_text("\n".join(lines) + "\n")
    command = [str(binary), "-c", str(config_file), *flags]
    return _launch("nats-server", command, port, store_dir, directory / "nats-server.log", env)


def start_headrace(
    directory: Path,
    *,
    config: str = "",
    flags: Sequence[str] = (),
    jetstream: bool = True,
    store_dir: Path | None = None,
    port: int = 0,
    env: Mapping[str, str] | None = None,
) -> ServerProcess:
    """Start ``headrace serve`` in a process of its own, storing in ``directory/store``.

    ``config`` is the text of a configuration file (TOML).
    """
    directory.mkdir(parents=True, exist_ok=True)
    if config:
        config_file = directory / "headrace.toml"
        config_file.write_text(config + "\n")
        flags = [*flags, "-c", str(config_file)]
    store_dir = store_dir or directory / "store"
    port = port or free_port()
    command = [sys.executable, "-m", "headrace", "serve", "-a", "127.0.0.1", "-p", str(port)]
    if jetstream:
        command += ["-js", "-sd", str(store_dir)]
    return _launch("headrace", [*command, *flags], port, store_dir, directory / "headrace.log", env)


def either_running(
    kind: str, directory: Path, *, port: int = 0, flags: Sequence[str] = (), durable: bool = False
) -> Iterator[ServerProcess]:
    """The server of this name (``EITHER``), for a fixture to yield; stopped when the fixture ends."""
    server = start_either(kind, directory, port=port, flags=flags, durable=durable)
    yield server
    server.stop()


def start_either(
    kind: str, directory: Path, *, port: int = 0, flags: Sequence[str] = (), durable: bool = False
) -> ServerProcess:
    """Start the server of this name. ``durable``: what it acknowledges is on disk, with both.

    Otherwise both leave that to the system, as nats-server does unless it is told otherwise.
    """
    if kind == "headrace":
        sync = [] if durable else ["--sync", "os"]
        return start_headrace(directory, port=port, flags=[*sync, *flags])
    return start_nats_server(directory, port=port, flags=flags, sync="always" if durable else "")


def info_of(server: ServerProcess) -> dict[str, Any]:
    """The server's INFO, as it greets."""
    with socket.create_connection((server.host, server.port), timeout=5.0) as probe:
        line = probe.makefile("rb").readline()
    info: dict[str, Any] = json.loads(line[5:])
    return info


def java_is_there() -> bool:
    return shutil.which("java") is not None or "JAVA_HOME" in os.environ
