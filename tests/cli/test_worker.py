"""``headrace worker``: a program's worker in a process of its own, as it is typed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import peers
from headrace import sync
from headrace.cli import main
from headrace.worker.reloading import changed, run_anew, seen
from waiting import until, until_here

APP = """
import logging
from headrace import ConsumerConfig, DeadLetter
from headrace.worker import Worker

worker = Worker("shop")
nothing = Worker("nothing")
other = 5

@worker.consumer("ORDERS", "shop", config=ConsumerConfig(filter_subject="orders.*"),
                 on_failure=DeadLetter("dead.shop", after=2, backoff=(0.01,)))
async def sell(order: dict) -> None:
    logging.getLogger("shop").info("sold %s in {town}", order["item"])
"""


@pytest.fixture(autouse=True)
def _log_of_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command sets up the log of its process, which is the tests' where it is called here."""
    monkeypatch.setattr("headrace.cli.worker.log_as", lambda form, level: None)


@contextmanager
def typed(
    directory: Path, url: str, *arguments: str
) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], str]]]:
    """The command, typed in ``directory``; and what it has logged so far."""
    log = directory / "log"
    with log.open("ab") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace", "worker", "app:worker", "-s", url, *arguments],
            cwd=directory,
            stderr=sink,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
    try:
        yield process, log.read_text
    finally:
        process.kill()
        process.wait()


def ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def test_it_handles_logs_as_json_answers_probes_and_ends_on_sigterm(
    headrace_server: Callable[..., peers.ServerProcess], free_port: int, tmp_path: Path
) -> None:
    server = headrace_server()
    (tmp_path / "app.py").write_text(APP.format(town="Bath"))
    with sync.connect(server.url) as connection:
        js = connection.jetstream()
        js.create_stream(name="ORDERS", subjects=["orders.*", "dead.*"])
        options = ("--http", str(free_port), "--log-format", "json")
        with typed(tmp_path, server.url, *options) as (process, log):
            until_here(lambda: ready(free_port), "it is not ready", within=30)
            js.publish("orders.1", b'{"item":"plum"}')
            js.publish("orders.2", b"nonsense")
            line = until_here(
                lambda: next((each for each in log().splitlines() if "sold" in each), "")
            )
            until_here(lambda: js.stream("ORDERS").info().state.messages == 3)
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
    document = json.loads(line)
    assert document["message"] == "sold plum in Bath"
    assert (document["stream"], document["sequence"], document["subject"]) == (
        "ORDERS",
        1,
        "orders.1",
    )
    assert "Traceback" not in [each for each in log().splitlines() if "has ended" in each][-1]


def test_while_developing_it_starts_anew_when_a_file_changes(
    headrace_server: Callable[..., peers.ServerProcess], tmp_path: Path
) -> None:
    server = headrace_server()
    (tmp_path / "app.py").write_text(APP.format(town="Bath"))
    with sync.connect(server.url) as connection:
        js = connection.jetstream()
        js.create_stream(name="ORDERS", subjects=["orders.*", "dead.*"])
        with typed(tmp_path, server.url, "--reload") as (process, log):
            js.publish("orders.1", b'{"item":"plum"}')
            until_here(lambda: "sold plum in Bath" in log(), within=30)
            (tmp_path / "app.py").write_text(APP.format(town="Wells"))
            until_here(lambda: log().count("taking messages") == 2, within=30)
            js.publish("orders.2", b'{"item":"pear"}')
            until_here(lambda: "sold pear in Wells" in log(), within=30)
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
    assert "changed: " in log()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("app", "accepted is module:attribute"),
        ("nowhere:worker", "there is no module 'nowhere' here"),
        ("app:other", "accepted is a headrace.worker.Worker; the module has nothing, worker"),
        ("app:nothing", "handles nothing"),
    ],
)
def test_a_worker_that_is_none_is_told_in_a_sentence(
    name: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "app", raising=False)
    assert main(["worker", name]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
    sys.modules.pop("app", None)


def test_a_port_that_is_none_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["worker", "app:worker", "--http", "x:y"]) == 2
    assert "accepted is a port" in capsys.readouterr().err
    sys.modules.pop("app", None)


def test_changed_files_are_those_that_are_new_gone_or_different(tmp_path: Path) -> None:
    for name in ("a.py", "b.py", "c.txt", "__pycache__/d.py", ".hidden/e.py", "deep/f.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1")
    before = seen([tmp_path])
    assert {Path(name).name for name in before} == {"a.py", "b.py", "f.py"}
    (tmp_path / "a.py").unlink()
    (tmp_path / "g.py").write_text("1")
    os.utime(tmp_path / "deep" / "f.py", ns=(1, 1))
    assert [Path(name).name for name in changed(before, seen([tmp_path]))] == [
        "a.py",
        "f.py",
        "g.py",
    ]


async def test_a_program_that_does_not_end_is_killed_and_one_that_ended_waits_for_a_change(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.py").write_text("1")
    log = tmp_path / "log"
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"open({str(log)!r}, 'a').write('x'); time.sleep(60)"
    )
    over = asyncio.Event()
    running = asyncio.create_task(
        run_anew([sys.executable, "-c", stubborn], [tmp_path], over, stop_timeout=0.1, every=0.02)
    )
    await until(lambda: log.exists() and log.read_text() == "x")
    (tmp_path / "b.py").write_text("1")
    await until(lambda: log.read_text() == "xx")
    over.set()
    async with asyncio.timeout(10):
        await running
