"""The leader of ``examples``: its page, who goes on when it dies, and that a former one writes nothing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import guides
import peers
from headrace import KeyExistsError
from headrace.client import JetStream
from headrace.locks import LockLostError
from waiting import until

EXAMPLE = guides.ROOT / "examples" / "leader.py"
WITHIN_S = 90.0

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def example() -> Any:
    return guides.load(EXAMPLE)


def test_the_page_shows_the_example() -> None:
    shown = [block.code for block in guides.blocks_of(guides.ROOT / "docs" / "how-to" / "locks.md")]
    assert EXAMPLE.read_text() in shown


def started(name: str, url: str, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as sink:
        return subprocess.Popen(
            [sys.executable, str(EXAMPLE), name, url], stdout=sink, stderr=sink, cwd=log.parent
        )


async def test_another_process_goes_on_when_the_leader_is_killed(
    reference_server: peers.ServerProcess, js: JetStream, tmp_path: Path
) -> None:
    logs = {name: tmp_path / name for name in ("a", "b")}
    processes = {name: started(name, reference_server.url, log) for name, log in logs.items()}
    try:
        said = {name: log.read_text for name, log in logs.items()}
        first = await until(
            lambda: next((name for name in said if "wrote report 2" in said[name]()), ""),
            within=WITHIN_S,
        )
        second = "b" if first == "a" else "a"
        processes[first].kill()
        before = said[second]().count("wrote")
        await until(lambda: said[second]().count("wrote") >= before + 2, within=WITHIN_S)
    finally:
        for process in processes.values():
            process.kill()
            await asyncio.to_thread(process.wait)
    by = {
        name: [int(line.rpartition(" ")[2]) for line in log().splitlines() if "wrote" in line]
        for name, log in said.items()
    }
    assert max(by[second]) > max(by[first])
    assert not set(by["a"]) & set(by["b"])  # each report has one writer


def held(token: int) -> Any:
    """As one whose process stood still: it believes that it leads."""
    return SimpleNamespace(token=token, check=lambda: None)


async def test_a_former_leader_writes_nothing(
    reference_server: peers.ServerProcess, js: JetStream, example: Any
) -> None:
    reports = await js.create_key_value("REPORTS", storage="memory")
    assert await example.write(reports, held(3), "a") == 1
    assert await example.write(reports, held(7), "b") == 2
    with pytest.raises(LockLostError, match="a newer leader has written 2"):
        await example.write(reports, held(3), "a")
    assert await example.write(reports, held(7), "b") == 3

    class Late:
        """A bucket whose user stood still between reading and writing."""

        async def get(self, key: str) -> Any:
            entry = await reports.get(key)
            await example.write(reports, held(9), "c")
            return entry

        async def update(self, *arguments: Any) -> int:
            return await reports.update(*arguments)

    with pytest.raises(KeyExistsError):
        await example.write(Late(), held(8), "b")
    assert (await reports.get("report")).value == b"9 4 c"
