"""What every test gets: a clean environment, Hypothesis profiles, leak checks, brokers, peers."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import hypothesis
import pytest

import children
import java_start
import memory_disk
import peers
import portions
import suite_order
from shared_collection import SharedCollection

if TYPE_CHECKING:
    from headrace.broker.server import Broker

EXAMPLES: Final = 20
"""Of each property in ``make test``; ``make test-all`` tries as many as its profile says."""
COLLECT_AFTER: Final = (100_000, 50, 100)
"""How many objects, and passes over the generation before, between two passes of the garbage collector."""

SPARED_COLLECTION: Final = "400"
"""How much garbage nats-server makes, in hundredths of what it keeps, before it is collected: it keeps little
in tests. ``make test-all`` leaves that to Go."""

hypothesis.settings.register_profile(
    "dev",
    max_examples=50,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "ci",
    max_examples=100,  # the same ones at every run; `make soak` goes far beyond
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "soak",
    max_examples=5_000,
    stateful_step_count=200,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)


def pytest_configure(config: pytest.Config) -> None:
    children.hear_ctrl_c()
    profile = os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if peers.in_ci() else "dev")
    is_all = not config.getoption("markexpr")
    if is_all:
        os.environ[portions.EVERY] = "1"
    elif profile in ("ci", "dev"):
        usual = hypothesis.settings.get_profile(profile)
        hypothesis.settings.register_profile(profile, usual, max_examples=EXAMPLES)
    hypothesis.settings.load_profile(profile)
    # A developer's own NATS settings must not decide what a test sees.
    for name in [name for name in os.environ if name.startswith("NATS_")]:
        del os.environ[name]
    os.environ |= java_start.environment(os.environ, interpreted=not is_all)
    if not is_all:
        os.environ |= memory_disk.environment(os.environ)
        os.environ.setdefault("GOGC", SPARED_COLLECTION)
    peers.FORKS.are_wanted = not is_all
    if hasattr(config, "workerinput"):
        _say_less(config)
    if shared := SharedCollection.of_process(config, suite_order.in_order):
        config.pluginmanager.register(shared, "shared-collection")


def _say_less(config: pytest.Config) -> None:
    """A process that shares the tests tells what came of each, not that it begins one or has ended it; nor
    that it is set up or torn down well, unless somebody asks how long that took."""
    plugins = config.pluginmanager.get_plugins()
    (worker,) = [each for each in plugins if type(each).__name__ == "WorkerInteractor"]
    tell: Callable[..., None] = worker.sendevent
    of_times = config.option.xmlpath is not None or config.option.durations is not None

    def tell_less(name: str, **what: Any) -> None:
        is_told = name not in ("logstart", "logfinish")
        if name == "testreport" and not of_times:
            report = what["data"]
            is_told = (
                report["when"] == "call" or report["outcome"] != "passed" or report["sections"]
            )
        if is_told:
            tell(name, **what)

    worker.sendevent = tell_less


def pytest_unconfigure() -> None:
    peers.FORKS.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """What a test has written may have half characters in it; reports of them are handed over as UTF-8.

    Half of what tests cost that take next to nothing is handing over their reports; of one that passed,
    nobody asks for the keywords.
    """
    report = yield
    if report.passed and hasattr(item.config, "workerinput"):
        report.keywords = {}
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections
    ]
    return report


_told: pytest.TerminalReporter | None = None


def pytest_sessionstart(session: pytest.Session) -> None:
    """Whom a failure is told to while the others go on."""
    global _told
    _told = session.config.pluginmanager.get_plugin("terminalreporter")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A failure is named when it happens: a run that is broken off has said what was wrong with it."""
    if report.failed and _told is not None:
        _told.write_line("")
        _told.write_line(f"FAILED {report.nodeid}: {_reason(report)}", red=True)


def _reason(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return crash.message.partition("\n")[0] if crash else report.longreprtext.rpartition("\n")[2]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """``--dist loadfile`` keeps together what ``suite_order`` says."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Sharing(LoadFileScheduling):  # type: ignore[misc]  # without types
        def _split_scope(self, nodeid: str) -> str:
            return suite_order.share_of(super()._split_scope(nodeid))

    return Sharing(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    """Processes that share the tests begin the longest files first; a process alone keeps pytest's order."""
    yield
    if hasattr(config, "workerinput"):
        items[:] = suite_order.in_order(items)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Next to nothing of what looking for tests makes is garbage: it is not searched for on the way."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """What stays to the end is not searched for garbage after every test that looks for leaks. What tests
    make is searched less often than Python does: that took a tenth of their processor time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """The rule for ``@pytest.mark.peer``: without nats-server skip on a laptop, fail in CI."""
    if item.get_closest_marker("peer") and peers.nats_server_binary() is None:
        peers.missing_peer("nats-server", peers.INSTALL_NATS_SERVER)


def _open_files() -> set[str]:
    """Descriptors that point at something of ours: sockets and files, not pytest's own pipes."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:
            continue  # the descriptor of the listing itself is gone by now
        if target.startswith("socket:") or (target.startswith("/") and "/dev/" not in target):
            found.add(f"{entry.name} -> {target}")
    return found


@pytest.fixture(autouse=True)
def _tracebacks_are_shown() -> Iterator[None]:
    """What a task of ours hides in a process of Spark's own, when it runs in this one, is not for the next
    Spark that is started here."""
    yield
    os.environ.pop("SPARK_HIDE_TRACEBACK", None)


@pytest.fixture
async def no_leaks() -> AsyncIterator[None]:
    """Fail a test that leaves a task, a thread or an open descriptor behind."""
    peers.free_port()  # the first one takes a lock, which stays
    gc.collect()
    gc.freeze()  # what outlived the tests before this one is not searched through at its end
    files = _open_files() if sys.platform == "linux" else set()
    threads = {thread.ident for thread in threading.enumerate()}
    tasks = asyncio.all_tasks()
    yield
    for _ in range(20):  # closing transports and finishing tasks takes a few turns of the loop
        await asyncio.sleep(0)
    gc.collect()
    # The task that runs this very line is the fixture's, not the test's.
    new_tasks = asyncio.all_tasks() - tasks - {asyncio.current_task()}
    left_tasks = [task for task in new_tasks if not task.done()]
    left_threads = [t for t in threading.enumerate() if t.ident not in threads and t.is_alive()]
    left_files = (_open_files() if sys.platform == "linux" else set()) - files
    assert not left_tasks, f"tasks still running: {left_tasks}"
    assert not left_threads, f"threads still running: {left_threads}"
    assert not left_files, f"descriptors still open: {sorted(left_files)}"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """Our broker inside the test's own loop, on a free port, storing on disk."""
    from headrace.broker.server import Broker

    async with Broker(store_dir=tmp_path / "broker") as embedded:
        yield embedded


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A folder where the system has temporary files: for tests of what becomes of them on a disk."""
    with tempfile.TemporaryDirectory(prefix="headrace-tests-") as folder:
        yield Path(folder)


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """A folder without a disk behind it, where the system has one: for tests to which it says nothing."""
    yield from _quick_path(tmp_path)


@pytest.fixture(scope="module")
def quick_path_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Such a folder for all tests of a module."""
    yield from _quick_path(tmp_path_factory.mktemp("module"))


def _quick_path(otherwise: Path) -> Iterator[Path]:
    if not os.access(memory_disk.IN_MEMORY, os.W_OK):
        yield otherwise
        return
    with tempfile.TemporaryDirectory(prefix="headrace-tests-", dir=memory_disk.IN_MEMORY) as folder:
        yield Path(folder)


@pytest.fixture
def free_port() -> int:
    return peers.free_port()


@pytest.fixture
def nats_server(tmp_path: Path) -> Iterator[Callable[..., peers.ServerProcess]]:
    """Start real nats-servers with ``nats_server(config=…)``; they end with the test."""
    yield from _factory(peers.start_nats_server, tmp_path, "nats-server")


@pytest.fixture
def headrace_server(tmp_path: Path) -> Iterator[Callable[..., peers.ServerProcess]]:
    """Start our broker in processes of their own with ``headrace_server(flags=…)``."""
    yield from _factory(peers.start_headrace, tmp_path, "headrace")


def _factory(
    start: Callable[..., peers.ServerProcess], tmp_path: Path, name: str
) -> Iterator[Callable[..., peers.ServerProcess]]:
    started: list[peers.ServerProcess] = []

    def make(**options: Any) -> peers.ServerProcess:
        server = start(tmp_path / f"{name}-{len(started)}", **options)
        started.append(server)
        return server

    yield make
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def reference_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[peers.ServerProcess]:
    """One nats-server with JetStream for the whole session; tests use stream names of their own."""
    server = peers.start_nats_server(tmp_path_factory.mktemp("reference"))
    yield server
    server.stop()


@pytest.fixture
def logs_stay_as_they_were() -> Iterator[None]:
    """A command in this process may log to its standard error, which ends with its test."""
    loggers = [logging.getLogger(name) for name in ("", "headrace", "asyncio")]
    before = [(each, list(each.handlers), each.level, each.propagate) for each in loggers]
    yield
    for logger, handlers, level, propagate in before:
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)
