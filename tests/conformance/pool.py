"""The two servers, one process each per setting, started when first needed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import peers
from conformance import driver
from conformance.table import Scenario, Settings


class Pool:
    """Runs scenarios against ``nats-server`` or ``headrace``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._servers: dict[tuple[str, Settings], peers.ServerProcess] = {}
        self._beside = ThreadPoolExecutor(1)

    def run(self, kind: str, scenario: Scenario) -> list[str]:
        """The scenario's transcript; the server is empty afterwards."""
        server = self._server(kind, scenario.settings)
        try:
            return driver.run(tuple(scenario.steps), server.host, server.port)
        finally:
            if scenario.settings.is_open:
                driver.clean_up(server.host, server.port)

    def run_both(self, scenario: Scenario) -> tuple[list[str], list[str]]:
        """The transcripts of nats-server and ours, played at the same time: both mostly wait."""
        theirs = self._beside.submit(self.run, "nats-server", scenario)
        ours = self.run("headrace", scenario)
        return theirs.result(), ours

    def _server(self, kind: str, settings: Settings) -> peers.ServerProcess:
        server = self._servers.get((kind, settings))
        if server is None or server.process.poll() is not None:
            directory = self._directory / f"{kind}-{len(self._servers)}"
            if kind == "nats-server":
                server = peers.start_nats_server(directory, config=settings.for_nats_server())
            else:
                server = peers.start_headrace(directory, config=settings.for_headrace())
            self._servers[kind, settings] = server
        return server

    def close(self) -> None:
        self._beside.shutdown()
        for server in self._servers.values():
            server.stop()
