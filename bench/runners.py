"""Runners of a pipeline under a lease, of which one is killed: their events, and what they have written."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from headrace import sync
from processes import with_those_below

SECONDS = 6.0
WITHIN_S = 600.0
EVERY_S = 0.02
WRITTEN = "WRITTEN"
URGENT = "HEADRACE_BENCH_URGENT"

LEASE = """
[lease]
servers = "{url}"
kind = "{kind}"
bucket = "takeover-{kind}"
seconds = "{seconds:g}s"
"""


@dataclass(frozen=True)
class Takeover:
    """Seconds of one: until the lease was had, the query had started, its first row was stored."""

    lease: float
    plan: float
    batch: float

    @property
    def after_lease(self) -> float:
        return self.plan + self.batch

    @property
    def total(self) -> float:
        return self.lease + self.after_lease


class Run:
    """A runner and the events it tells."""

    def __init__(self, file: Path, number: int, **environment: str) -> None:
        self.lines = file.with_name(f"{number}.jsonl")
        self.began = time.time()
        with self.lines.open("w") as lines:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headrace", "pipeline", "run", str(file)],
                stdout=lines,
                start_new_session=True,
                env={**os.environ, **environment},
            )

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = self.lines.read_text().splitlines(keepends=True)
        found = [json.loads(line) for line in lines if line.endswith("\n")]
        return [each for each in found if each["event"] == kind]

    def at(self, kind: str) -> float:
        """When it told the last event of a kind."""
        return datetime.fromisoformat(self.events(kind)[-1]["time"]).timestamp()

    def until(self, is_so: Callable[[], object]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not is_so():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the runner did not get on; see {self.lines}")
            threading.Event().wait(EVERY_S)

    @property
    def is_ready(self) -> bool:
        told = self.events("standby")
        return bool(told) and bool(told[-1]["ready"])

    def end(self, number: int = signal.SIGKILL) -> None:
        """Java is in a group of its own; without its runner it ends, too."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)
            self.process.wait(WITHIN_S)


class Written:
    """The stream that the query writes to."""

    def __init__(self, js: sync.JetStream) -> None:
        self._js = js

    def messages(self) -> int:
        found = self._js.stream(WRITTEN).info(subjects="written").state.subjects
        return int((found or {}).get("written", 0))

    def first_after(self, moment: float) -> float | None:
        """When the first message was stored after a moment; None if none was."""
        stream = self._js.stream(WRITTEN)
        start = datetime.fromtimestamp(moment).astimezone()
        consumer = stream.ordered_consumer(
            filter_subjects=["written"], deliver_policy="by_start_time", opt_start_time=start
        )
        for message in consumer.fetch(1, max_wait=0.2):
            return message.metadata.timestamp_ns / 1e9
        return None


@contextlib.contextmanager
def folder_of() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="headrace-takeover-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measured(standby: Run, written: Written, killed: float) -> Takeover:
    active, started = standby.at("active"), standby.at("started")
    first: list[float] = []

    def is_stored() -> bool:
        moment = written.first_after(active)
        first.extend([] if moment is None else [moment])
        return bool(first)

    standby.until(is_stored)
    return Takeover(active - killed, started - active, first[0] - started)


@contextlib.contextmanager
def urgent(*processes: int) -> Iterator[None]:
    """These processes and those they start go before all others of the machine, if ``URGENT`` is set.

    So that a takeover is measured on a machine that has other work; Linux lets only root ask for it.
    """
    if not os.environ.get(URGENT):
        yield
        return
    _schedule(processes, os.SCHED_RR, 1)
    try:
        yield
    finally:
        _schedule(processes, os.SCHED_OTHER, 0)


def _schedule(processes: tuple[int, ...], policy: int, priority: int) -> None:
    for process in with_those_below(processes):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            for thread in Path(f"/proc/{process}/task").iterdir():
                os.sched_setscheduler(int(thread.name), policy, os.sched_param(priority))
