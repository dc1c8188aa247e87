"""The pytest plugin, as its users have it: in sessions of their own, warnings as errors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import guides
from headrace import sync
from machine import pieces

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


def pytest_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A session of pytest in ``folder``, warnings as errors."""
    plugin = [] if INSTALLED else ["-p", "headrace.testing.plugin"]
    plugin += ["-p", "no:hypothesispytest"]  # a second for each session, and none has properties
    command = [sys.executable, "-m", "pytest", "-W", "error", *plugin, *arguments]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100
    )


def run(folder: Path, *arguments: str) -> str:
    """A session of pytest in ``folder``, of which every test must pass."""
    done = pytest_in(folder, *arguments)
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


GUIDE = ROOT / "docs" / "testing.md"


def test_the_guide_does_what_it_says(tmp_path: Path) -> None:
    (settings,) = re.findall(r"(?ms)^```toml\n(.*?)^```$", GUIDE.read_text())
    (tmp_path / "pyproject.toml").write_text(settings)
    fixtures, count = [], 0
    for block in guides.blocks_of(GUIDE):
        if "@pytest.fixture" in block.code:
            fixtures.append(block.code)
        else:
            count += len(re.findall(r"(?m)^(?:async )?def test_", block.code))
            (tmp_path / f"test_line_{block.line}.py").write_text(block.code)
    (tmp_path / "conftest.py").write_text("\n".join(fixtures))
    assert (len(fixtures), count) == (2, 12)
    assert "12 passed" in run(tmp_path)


def test_the_guide_says_how_a_test_without_the_mode_fails(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(guides.blocks_of(GUIDE)[0].code)
    said = pytest_in(tmp_path, "-o", "asyncio_default_fixture_loop_scope=function")
    assert said.returncode == 1
    assert "async def functions are not natively supported" in said.stdout
    assert "async def functions are not natively" in GUIDE.read_text()


def test_nobody_pays_for_what_is_not_used() -> None:
    program = "import sys, headrace.testing.plugin; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert "headrace.testing.plugin" in said
    assert not {"msgspec", "headrace.client", "headrace.broker", "headrace.sync"} & set(said)


def test_it_is_installed_with_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"headrace": "headrace.testing.plugin"}


def test_a_broker_starts_with_little_work() -> None:
    costs = []
    for _ in range(3):
        began = time.process_time()
        with sync.Broker(sync="os"):
            costs.append(time.process_time() - began)
    assert pieces(min(costs)) < 40
