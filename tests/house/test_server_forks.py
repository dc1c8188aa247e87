"""Servers of ours that are forked off another process are as if they had been started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import peers
from headrace import sync
from server_forks import Adopted, Forks

WITHIN_S = 60.0
SERVE = [sys.executable, "-m", "headrace", "serve"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are adopted on Linux")


@pytest.fixture(autouse=True)
def forks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Forks]:
    """Also in ``make test-all``, which starts servers anew."""
    forks = Forks()
    forks.are_wanted = True
    monkeypatch.setattr(peers, "FORKS", forks)
    yield forks
    forks.close()


def test_each_serves_as_itself_and_goes_on_where_the_last_one_was_killed(tmp_path: Path) -> None:
    server, other = (peers.start_headrace(tmp_path / name) for name in ("one", "other"))
    try:
        assert isinstance(server.process, Adopted)
        with sync.connect(server.url) as connection, sync.connect(other.url) as another:
            assert connection.server_info.server_id != another.server_info.server_id
            connection.jetstream().create_stream(name="S", subjects=["s"])
            connection.jetstream().publish("s", b"kept")
        server.kill()
        assert server.process.returncode == -signal.SIGKILL
        server.start_again()
        with sync.connect(server.url) as connection:
            assert connection.jetstream().stream("S").get_message(1).payload == b"kept"
    finally:
        assert (server.stop(), other.stop()) == (0, 0)
    assert "Server is ready" in server.log_text()


def test_its_words_and_its_status_are_its_own(tmp_path: Path, forks: Forks) -> None:
    said = subprocess.run([*SERVE, "--nonsense"], capture_output=True, cwd=tmp_path, check=False)
    process = forks.fork([*SERVE, "--nonsense"], tmp_path / "log")
    assert process is not None
    assert process.wait(WITHIN_S) == said.returncode == 2
    assert (tmp_path / "log").read_bytes() == said.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_it_has_the_environment_of_who_asks_and_the_folder_of_its_log(
    tmp_path: Path, forks: Forks, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = forks.fork([*SERVE, "--version"], tmp_path / "first.log")  # their parent has started
    assert first is not None
    assert first.wait(WITHIN_S) == 0
    (tmp_path / "here.conf").write_text("server_name: $SET_SINCE")
    for status in (1, 0):
        process = forks.fork([*SERVE, "-c", "here.conf", "-t"], tmp_path / "log")
        assert process is not None
        assert process.wait(WITHIN_S) == status
        monkeypatch.setenv("SET_SINCE", "one")


def test_what_python_reads_as_it_starts_needs_another_start(
    tmp_path: Path, forks: Forks, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert forks.fork([sys.executable, "-c", "pass"], tmp_path / "log") is None
    process = forks.fork([*SERVE, "--version"], tmp_path / "log")
    assert process is not None
    assert process.wait(WITHIN_S) == 0
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    assert forks.fork([*SERVE, "--version"], tmp_path / "log") is None
