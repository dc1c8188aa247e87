"""The traced programs of ``examples``: one trace through both, as the collector takes it; its settings."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import guides
import peers
from example_programs import WITHIN_S, started
from headrace.client import JetStream
from waiting import until

EXAMPLES = guides.ROOT / "examples"
PAGE = guides.ROOT / "docs" / "how-to" / "tracing.md"
COLLECTOR = EXAMPLES / "collector.yaml"


class Collector:
    """What a collector would have: the spans by service and name."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.paths: set[str] = set()
        self.spans: list[tuple[str, Any]] = []

    def take(self, path: str, body: bytes) -> None:
        self.paths.add(path)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            said = {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [(said["service.name"], span) for span in scope.spans]

    def one(self, service: str, name: str) -> Any:
        (found,) = [span for who, span in self.spans if (who, span.name) == (service, name)]
        return found


@pytest.fixture
def collector() -> Iterator[Collector]:
    """Takes spans as the collector's receiver ``otlp`` does."""

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.take(self.path, self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        found = Collector(f"http://127.0.0.1:{server.server_address[1]}")
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield found
        finally:
            server.shutdown()
            serving.join()


def test_the_page_shows_the_program_and_the_settings_of_the_collector() -> None:
    (block,) = guides.blocks_of(PAGE)
    assert block.code == (EXAMPLES / "traced_shop.py").read_text()
    assert COLLECTOR.read_text() in guides.text_of(PAGE)


def test_the_collector_s_settings_fit_together_and_the_commands_of_the_program() -> None:
    settings = yaml.safe_load(COLLECTOR.read_text())
    for pipeline in settings["service"]["pipelines"].values():
        for kind in ("receivers", "processors", "exporters"):
            assert pipeline[kind]
            assert set(pipeline[kind]) <= settings[kind].keys()
    used = [settings["service"]["pipelines"][each] for each in ("traces", "metrics")]
    for kind in ("receivers", "processors", "exporters"):
        assert {name for each in used for name in each[kind]} == settings[kind].keys()
    otlp = settings["receivers"]["otlp"]["protocols"]["http"]["endpoint"]
    assert otlp == "127.0.0.1:4318", "where the SDK sends what nobody tells otherwise"
    jobs = settings["receivers"]["prometheus"]["config"]["scrape_configs"]
    targets = {each["job_name"]: each["static_configs"][0]["targets"] for each in jobs}
    text = COLLECTOR.read_text() + (EXAMPLES / "traced_shop.py").read_text()
    (worker,) = set(re.findall(r"--http (\d+)", text))
    (broker,) = set(re.findall(r"-m (\d+)", text))
    assert targets == {
        "headrace-worker": [f"127.0.0.1:{worker}"],
        "headrace-broker": [f"127.0.0.1:{broker}"],
    }


@pytest.mark.peer
async def test_what_is_published_and_handled_is_one_trace(
    reference_server: peers.ServerProcess, js: JetStream, collector: Collector, tmp_path: Path
) -> None:
    where: dict[str, Any] = {
        "url": reference_server.url,
        "folder": EXAMPLES,
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
    }
    command = ("-m", "headrace", "worker", "traced_shop:worker")
    async with started(*command, log=tmp_path / "worker", **where) as worker:
        async with started("traced_shop.py", log=tmp_path / "shop", **where) as shop:
            assert "Traceback" not in await shop.ended(told=False)
        stream = await js.stream("TRACED")

        async def is_billed() -> bool:
            assert "Traceback" not in worker.said, worker.said
            return (await stream.info()).state.messages == 2

        await until(is_billed, "the order is not billed", within=WITHIN_S)
        assert "Traceback" not in await worker.ended(told=True)
    assert collector.paths == {"/v1/traces"}
    order = collector.one("shop", "order")
    published = collector.one("shop", "publish traced.orders.*")
    handled = collector.one("billing", "process traced.orders.*")
    looked = collector.one("billing", "look up the price")
    billed = collector.one("billing", "publish traced.invoices.new")
    assert not order.parent_span_id
    pairs = ((published, order), (handled, published), (looked, handled), (billed, handled))
    for child, parent in pairs:
        assert (child.trace_id, child.parent_span_id) == (parent.trace_id, parent.span_id)
    said = {each.key: each.value for each in handled.attributes}
    assert said["messaging.system"].string_value == "nats"
