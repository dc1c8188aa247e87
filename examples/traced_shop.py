"""A worker that is traced, and who publishes to it: the spans of both are one trace.

pip install "headrace[cli,tracing]" opentelemetry-sdk opentelemetry-exporter-otlp-proto-http
headrace worker traced_shop:worker --http 8080
python traced_shop.py

Spans go to the collector on this machine, or to OTEL_EXPORTER_OTLP_ENDPOINT.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import headrace
from headrace import Connection, ConsumerConfig
from headrace.worker import Worker

SUBJECTS = ["traced.orders.*", "traced.invoices.*"]


@contextlib.contextmanager
def exported(service: str) -> Iterator[None]:
    """Spans are sent in batches; the last one when the program ends."""
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        provider.shutdown()


@contextlib.asynccontextmanager
async def lifespan(connection: Connection) -> AsyncIterator[None]:
    with exported("billing"):
        await connection.jetstream().create_or_update_stream(name="TRACED", subjects=SUBJECTS)
        yield


worker = Worker("billing", lifespan=lifespan, tracing=True)


@worker.consumer(
    "TRACED",
    "billing",
    config=ConsumerConfig(filter_subject="traced.orders.*"),
    publish="traced.invoices.new",
)
async def bill(message: headrace.JetStreamMessage) -> bytes:
    with trace.get_tracer("shop").start_as_current_span("look up the price"):
        return b"300 cents"


async def order(url: str) -> None:
    async with headrace.connect(url, name="shop", tracing=True) as connection:
        js = connection.jetstream()
        await js.create_or_update_stream(name="TRACED", subjects=SUBJECTS)
        with trace.get_tracer("shop").start_as_current_span("order"):
            await js.publish("traced.orders.7", b"plums")


if __name__ == "__main__":
    with exported("shop"):
        asyncio.run(order(os.environ.get("NATS_URL", "nats://127.0.0.1:4222")))
