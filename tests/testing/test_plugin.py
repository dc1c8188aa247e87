"""The pytest plugin, as its users have it: in sessions of their own, warnings as errors."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import guides
from headrace import sync

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = any(each.value == "headrace.testing.plugin" for each in entry_points(group="pytest11"))

TESTS = """
import pytest
from headrace import NoRespondersError


@pytest.mark.{mark}
@pytest.mark.parametrize("turn", [1, 2])
async def test_streams(headrace_connection, turn):
    js = headrace_connection.jetstream()
    assert [name async for name in js.stream_names()] == []
    await js.create_stream(name="ORDERS", subjects=["orders.>"])
    await js.create_key_value("SETTINGS")
    assert (await js.publish("orders.1", b"two apples")).seq == 1


@pytest.mark.{mark}
async def test_both_kinds_of_connection(headrace_connection, headrace_sync_connection):
    with pytest.raises(NoRespondersError):
        await headrace_connection.jetstream().publish("orders.1")
    with headrace_sync_connection.subscribe("greet") as greetings:
        headrace_sync_connection.flush()
        await headrace_connection.publish("greet", b"hello")
        await headrace_connection.flush()
        assert greetings.next(5).payload == b"hello"


@pytest.mark.parametrize("turn", [1, 2])
def test_threads(headrace_broker, headrace_sync_connection, headrace_session_broker, turn):
    assert headrace_broker is headrace_session_broker
    assert headrace_broker.port == {port}
    js = headrace_sync_connection.jetstream()
    assert list(js.stream_names()) == []
    js.create_object_store("FILES").put("a", b"b")
"""

CONFTEST = """
import pytest


@pytest.fixture(scope="session")
def headrace_settings():
    return {{"port": {port}, "user": "joe", "password": "sesame"}}


@pytest.fixture
def anyio_backend():
    return "asyncio"
"""


def run(folder: Path, *arguments: str) -> str:
    """A session of pytest in ``folder``, of which every test must pass."""
    plugin = [] if INSTALLED else ["-p", "headrace.testing.plugin"]
    command = [sys.executable, "-m", "pytest", "-W", "error", *plugin, *arguments]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("mark", "arguments"),
    [
        ("asyncio", ["-o", "asyncio_default_fixture_loop_scope=function"]),
        ("anyio", ["-p", "no:asyncio"]),
    ],
)
def test_each_test_finds_the_one_broker_empty(
    tmp_path: Path, free_port: int, mark: str, arguments: list[str]
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST.format(port=free_port))
    (tmp_path / "test_it.py").write_text(TESTS.format(mark=mark, port=free_port))
    assert "5 passed" in run(tmp_path, *arguments)


def test_the_guide_does_what_it_says(tmp_path: Path) -> None:
    first, conftest, last = (block.code for block in guides.blocks_of(ROOT / "docs" / "testing.md"))
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_first.py").write_text(first)
    (tmp_path / "test_last.py").write_text(last)
    scope = "asyncio_default_fixture_loop_scope=function"
    assert "4 passed" in run(tmp_path, "-o", scope, "-o", "asyncio_mode=auto")


def test_nobody_pays_for_what_is_not_used() -> None:
    program = "import sys, headrace.testing.plugin; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert "headrace.testing.plugin" in said
    assert not {"msgspec", "headrace.client", "headrace.broker", "headrace.sync"} & set(said)


def test_it_is_installed_with_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"headrace": "headrace.testing.plugin"}


def test_a_broker_starts_in_less_than_a_tenth_of_a_second() -> None:
    """Of processor time, which a busy machine does not stretch; on a quiet one it takes 2 ms."""
    costs = []
    for _ in range(3):
        began = time.process_time()
        with sync.Broker(sync="os"):
            costs.append(time.process_time() - began)
    assert min(costs) < 0.1
