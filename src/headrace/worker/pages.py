"""What a worker says over HTTP: ``/healthz`` and ``/readyz`` for probes, ``/metrics`` for Prometheus."""

from __future__ import annotations

import json
from urllib.parse import SplitResult

from ..client.health import Health
from ..client.metrics import MetricsServer
from ..client.metrics import prometheus as of_connections
from ..web.pages import NUMBERS, Page, plain
from .metrics import prometheus
from .running import Running


class Pages(MetricsServer):
    """Serves them while it is entered.

    Args:
        running: the worker.
        host, port: where to listen; port 0 is any free one.
    """

    def __init__(self, running: Running, *, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__({}, host=host, port=port)
        self._running = running

    def _page(self, url: SplitResult) -> Page:
        running, path = self._running, url.path
        if path == "/healthz":
            return _probe(running.live())
        if path == "/readyz":
            return _probe(running.ready())
        if path == "/metrics":
            text = prometheus(running.rows())
            if running.connection is not None:
                labels = {"connection": running.worker.name}
                text += of_connections([(running.connection.stats(), labels)])
            return Page(200, NUMBERS, text.encode())
        return plain(404, "there are /healthz, /readyz and /metrics\n")


def _probe(health: Health) -> Page:
    told = {"status": "ok" if health else "unavailable", "reason": health.reason}
    return Page(200 if health else 503, "application/json", json.dumps(told).encode() + b"\n")
