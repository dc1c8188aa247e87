"""What a worker says over HTTP: ``/healthz`` and ``/readyz`` for probes, ``/metrics`` for Prometheus."""

from __future__ import annotations

import json
from typing import Final

from ..client.health import Health
from ..client.metrics import MetricsServer
from ..client.metrics import prometheus as of_connections
from .metrics import prometheus
from .running import Running

PLAIN: Final = "text/plain; version=0.0.4"


class Pages(MetricsServer):
    """Serves them while it is entered.

    Args:
        running: the worker.
        host, port: where to listen; port 0 is any free one.
    """

    def __init__(self, running: Running, *, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__({}, host=host, port=port)
        self._running = running

    def _page(self, path: str) -> tuple[str, str, str]:
        running = self._running
        if path == "/healthz":
            return _probe(running.live())
        if path == "/readyz":
            return _probe(running.ready())
        if path == "/metrics":
            text = prometheus(running.rows())
            if running.connection is not None:
                labels = {"connection": running.worker.name}
                text += of_connections([(running.connection.stats(), labels)])
            return "200 OK", PLAIN, text
        return "404 Not Found", "text/plain", "there are /healthz, /readyz and /metrics\n"


def _probe(health: Health) -> tuple[str, str, str]:
    status = "200 OK" if health else "503 Service Unavailable"
    text = json.dumps({"status": "ok" if health else "unavailable", "reason": health.reason})
    return status, "application/json", text + "\n"
