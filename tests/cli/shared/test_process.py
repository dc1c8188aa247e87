"""A process that serves: the service manager is told where it asks, and collecting garbage stops nobody."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli.shared.process import tell_manager

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="of systems with systemd")


def _listen(address: str) -> socket.socket:
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(address)
    manager.settimeout(30)
    return manager


def test_a_manager_is_told_at_a_file_or_a_name_of_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for asked, bound in [
        (str(tmp_path / "notify"), str(tmp_path / "notify")),
        (f"@headrace-{os.getpid()}", f"\0headrace-{os.getpid()}"),
    ]:
        monkeypatch.setenv("NOTIFY_SOCKET", asked)
        with _listen(bound) as manager:
            tell_manager("READY=1", "STATUS=serving")
            assert manager.recv(200) == b"READY=1\nSTATUS=serving"


def test_nobody_who_asks_and_nobody_who_listens_end_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    with caplog.at_level(logging.WARNING):
        tell_manager("READY=1")
        assert not caplog.records
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
        tell_manager("READY=1")
    assert "was not told" in caplog.text


@pytest.mark.parametrize(
    "command", [["serve", "-p", "-1"], ["jobs", "serve", "--port", "0"]], ids=["broker", "jobs"]
)
def test_a_server_is_ready_when_it_serves(tmp_path: Path, command: list[str]) -> None:
    with _listen(str(tmp_path / "notify")) as manager:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace", *command],
            cwd=tmp_path,
            env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            ready, status = manager.recv(500).decode().split("\n")
            assert ready == "READY=1"
            address = status.rpartition("//")[2]
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), 10).close()
            process.send_signal(signal.SIGTERM)
            assert manager.recv(500) == b"STOPPING=1"
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()


PROGRAM = """
import gc
from headrace.cli.shared.process import tune_collector

tune_collector()
passes = []
gc.callbacks.append(lambda phase, info: passes.append((phase, info["generation"])))
kept = [[] for _ in range(100_000)]
print(gc.get_freeze_count() > 0, gc.get_threshold(), {at for phase, at in passes if phase == "start"})
"""


def test_many_objects_that_stay_are_passed_over_in_small_passes_and_never_all_at_once() -> None:
    before = gc.get_threshold()
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "True (2000, 2, 125000) {0, 1}\n"
    assert gc.get_threshold() == before
