"""Ports of a suite that runs in several processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ports import BLOCK, FIRST, LAST, Ports

ASKS = "import sys; from pathlib import Path; from ports import Ports; "
ASKS += "print(Ports(Path(sys.argv[1])).next(), flush=True); sys.stdin.read()"


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Ports]:
    ports = Ports(tmp_path)
    yield ports
    ports.close()


def test_two_processes_are_never_given_the_same_port(ours: Ports, tmp_path: Path) -> None:
    mine = {ours.next() for _ in range(BLOCK)}
    command = [sys.executable, "-c", ASKS, str(tmp_path)]
    with subprocess.Popen(
        command, cwd=Path(__file__).parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = int(other.stdout.readline())
        other.communicate()
    assert FIRST <= theirs < LAST
    assert theirs not in mine


def test_a_forked_child_takes_a_block_of_its_own(ours: Ports) -> None:
    mine = {ours.next() for _ in range(BLOCK)}
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b"%d" % ours.next())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as told:
        theirs = int(told.read())
    assert os.waitpid(child, 0)[1] == 0
    assert theirs not in mine


def test_a_port_in_use_is_passed_over_and_all_of_them_used_is_said(ours: Ports) -> None:
    with ExitStack() as bound:
        given: list[int] = []
        with pytest.raises(RuntimeError, match=r"all ports from .* are in use"):
            while True:
                given.append(ours.next())
                taken = bound.enter_context(socket.socket())
                taken.bind(("127.0.0.1", given[-1]))
        assert len(set(given)) == len(given)


def test_no_block_left_is_said(
    ours: Ports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ports.LAST", FIRST + BLOCK)
    ours.next()
    with pytest.raises(RuntimeError, match=f"held by another process: {tmp_path}"):
        Ports(tmp_path).next()
    ours.close()
    again = Ports(tmp_path)
    assert FIRST <= again.next() < FIRST + BLOCK
    again.close()
