"""The two servers, started when first needed, and scenarios played on them, several at a time.

Most scenarios mostly wait: for silence, for a deadline, for a lifetime. So what the tests ask for one
after the other is played ahead on a few servers of each kind; a server plays one scenario at a time
and is empty when it begins.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import peers
from conformance import driver
from conformance.table import Scenario, Settings

__all__ = ["KINDS", "Pool"]

KINDS = ("nats-server", "headrace")
SERVERS = 4  # of a kind with the usual settings; more would crowd the cores and change who is late
REMOVAL_SECONDS = 2.0
STREAMS = "jetstream/$G/streams"  # where nats-server keeps them
KEPT = ".kept"


class Pool:
    """Runs scenarios against ``nats-server`` or ``headrace``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._players = ThreadPoolExecutor(len(KINDS) * SERVERS)
        self._beside = ThreadPoolExecutor(len(KINDS))  # what is played now waits behind nothing
        self._ahead: dict[tuple[str, str], Future[list[str]]] = {}
        self._changed = threading.Condition()
        self._idle: dict[tuple[str, Settings], list[peers.ServerProcess]] = defaultdict(list)
        self._busy: dict[tuple[str, Settings], int] = defaultdict(int)
        self._numbers = itertools.count()
        self._started: list[peers.ServerProcess] = []

    def play_ahead(self, scenarios: Iterable[Scenario], kinds: Sequence[str] = KINDS) -> None:
        """Begin with these, in this order; ``transcript`` waits for each."""
        for scenario in scenarios:
            for kind in kinds:
                played = self._players.submit(self.run, kind, scenario)
                self._ahead[kind, scenario.name] = played

    def transcript(self, kind: str, scenario: Scenario) -> list[str]:
        """What was played ahead, once; after that it is played now."""
        played = self._ahead.pop((kind, scenario.name), None)
        return self.run(kind, scenario) if played is None else played.result()

    def run_both(self, scenario: Scenario) -> tuple[list[str], list[str]]:
        """The transcripts of nats-server and ours, played at the same time."""
        theirs, ours = (self._beside.submit(self.transcript, kind, scenario) for kind in KINDS)
        return theirs.result(), ours.result()

    def run(self, kind: str, scenario: Scenario) -> list[str]:
        """Play it now; the scenario's transcript."""
        with self._server(kind, scenario.settings) as server:
            try:
                return driver.run(tuple(scenario.steps), server.host, server.port)
            finally:
                if scenario.settings.is_open:
                    driver.clean_up(server.host, server.port)
                    _wait_until_files_are_gone(server)

    @contextmanager
    def _server(self, kind: str, settings: Settings) -> Iterator[peers.ServerProcess]:
        """A server for one scenario alone."""
        key = kind, settings
        most = SERVERS if settings == Settings() else 1
        with self._changed:
            self._changed.wait_for(lambda: self._busy[key] < most)
            self._busy[key] += 1
            server = self._idle[key].pop() if self._idle[key] else None
        try:
            if server is None or server.process.poll() is not None:
                server = self._start(kind, settings)
            yield server
        finally:
            with self._changed:
                self._busy[key] -= 1
                if server is not None:
                    self._idle[key].append(server)
                self._changed.notify_all()

    def _start(self, kind: str, settings: Settings) -> peers.ServerProcess:
        directory = self._directory / f"{kind}-{next(self._numbers)}"
        if kind == "nats-server":
            server = peers.start_nats_server(
                directory, config=settings.for_nats_server(), limits=settings.limits
            )
            _keep_directory(server)
        elif settings.nats_conf or settings.limits:
            file = directory / "nats.conf"
            directory.mkdir(parents=True)
            limits = f"jetstream {{ limits {{ {settings.limits} }} }}\n" if settings.limits else ""
            file.write_text(limits + settings.nats_conf)
            server = peers.start_headrace(directory, flags=["-c", str(file)])
        else:
            server = peers.start_headrace(directory, config=settings.for_headrace())
        self._started.append(server)
        return server

    def close(self) -> None:
        """Finish what is being played, play nothing more, stop the servers."""
        self._players.shutdown(cancel_futures=True)
        self._beside.shutdown()
        for server in self._started:
            server.stop()


def _keep_directory(server: peers.ServerProcess) -> None:
    """nats-server may remove the empty directory of all streams, and fail to make one meanwhile."""
    directory = server.store_dir / STREAMS
    directory.mkdir(parents=True, exist_ok=True)
    (directory / KEPT).touch()


def _wait_until_files_are_gone(server: peers.ServerProcess) -> None:
    """nats-server removes files after its answer; a stream made meanwhile may find old messages."""
    if server.name == "nats-server":
        deadline = time.monotonic() + REMOVAL_SECONDS
        while os.listdir(server.store_dir / STREAMS) != [KEPT] and time.monotonic() < deadline:
            time.sleep(0.002)  # another process removes them; there is no event to wait for
