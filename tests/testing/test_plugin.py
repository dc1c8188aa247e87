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
    assert (len(fixtures), count) == (2, 11)
    assert "11 passed" in run(tmp_path)


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


def test_a_broker_starts_in_less_than_a_tenth_of_a_second() -> None:
    """Of processor time, which a busy machine does not stretch; on a quiet one it takes 2 ms."""
    costs = []
    for _ in range(3):
        began = time.process_time()
        with sync.Broker(sync="os"):
            costs.append(time.process_time() - began)
    assert min(costs) < 0.1


COUNTED = """
import time

import pytest

costs = []


def measured():  # what takes a usual processor 2.5 ms takes so long here and now
    began = time.process_time()
    table = {}
    for number in range(5_000):
        table[f"k{number % 997}"] = table.get(f"k{number * 7 % 997}", 0) + 1
    return time.process_time() - began


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    began = time.process_time()  # of all threads: the broker's, too
    try:
        return (yield)
    finally:
        cost = time.process_time() - began
        costs.append(2.5 * cost / measured())


def pytest_unconfigure():
    print("\\ncosts", *(f"{cost:.2f}" for cost in costs))
"""

CHEAP = """
import pytest

from headrace.testing import handled, made_message
from headrace.worker import Worker


@pytest.mark.parametrize("turn", range(20))
def test_a_stream(headrace_published, headrace_sync_connection, turn):
    seen = headrace_published("orders.>")
    js = headrace_sync_connection.jetstream()
    stream = js.create_stream(name="ORDERS", subjects=["orders.>"])
    js.publish("orders.1", b"two apples")
    assert stream.create_consumer(durable_name="billing").next(30).payload == b"two apples"
    assert seen == [("orders.1", b"two apples")]


@pytest.mark.parametrize("turn", range(20))
async def test_a_stream_with_asyncio(headrace_connection, turn):
    js = headrace_connection.jetstream()
    await js.create_stream(name="ORDERS", subjects=["orders.>"])
    assert (await js.publish("orders.1", b"two apples")).seq == 1


@pytest.mark.parametrize("turn", range(20))
def test_a_handler_by_itself(turn):
    message = made_message({"customer": "eve"})
    message.ack()
    with handled(Worker("shop")) as seen:
        assert seen == []
    assert message.is_answered
"""


def test_a_test_takes_less_than_ten_milliseconds(tmp_path: Path) -> None:
    """Of a usual processor's time, with all its fixtures. Others may slow all but one of a kind, and a
    processor may be slow: so each is weighed against a loop beside it."""
    (tmp_path / "conftest.py").write_text(COUNTED)
    (tmp_path / "test_it.py").write_text(CHEAP)
    mode = ["-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function"]
    said = run(tmp_path, "-p", "no:cacheprovider", "-q", *mode)
    (line,) = [each for each in said.splitlines() if each.startswith("costs ")]
    costs = [float(each) for each in line.split()[1:]]
    assert len(costs) == 60
    for kind in range(3):
        of_kind = sorted(costs[20 * kind : 20 * kind + 20])
        assert of_kind[0] < 10, of_kind
