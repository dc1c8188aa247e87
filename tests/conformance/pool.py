"""The two servers, one process each per configuration, started when first needed."""

from __future__ import annotations

from pathlib import Path

import peers
from conformance import driver
from conformance.table import Scenario


class Pool:
    """Runs scenarios against ``nats-server`` or ``headrace``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._servers: dict[tuple[str, str], peers.ServerProcess] = {}

    def run(self, kind: str, scenario: Scenario) -> list[str]:
        """The scenario's transcript; the server is empty afterwards."""
        server = self._server(kind, scenario.config)
        try:
            return driver.run(tuple(scenario.steps), server.host, server.port)
        finally:
            if not scenario.config:
                driver.clean_up(server.host, server.port)

    def _server(self, kind: str, config: str) -> peers.ServerProcess:
        server = self._servers.get((kind, config))
        if server is None or server.process.poll() is not None:
            directory = self._directory / f"{kind}-{len(self._servers)}"
            start = peers.start_nats_server if kind == "nats-server" else peers.start_headrace
            server = self._servers[kind, config] = start(directory, config=config)
        return server

    def close(self) -> None:
        for server in self._servers.values():
            server.stop()
