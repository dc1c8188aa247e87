"""Traces through jobs: what is published inside a trace takes it along to whoever works on the job.

With OpenTelemetry installed (``headrace[tracing]``) and a trace under way, ``publish`` stores its context
among the message's headers (``traceparent``, ``tracestate``). Endpoints that jobs are pushed to get these
headers, and workers go on with the trace. Messages fed from a stream bring theirs. Without a trace nothing is
added.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from ..._version import __version__

_propagate: Any = None
_trace: Any = None
with contextlib.suppress(ImportError):  # without it there are no traces
    _propagate = importlib.import_module("opentelemetry.propagate")
    _trace = importlib.import_module("opentelemetry.trace")

__all__ = ["processing", "publishing"]


@contextlib.contextmanager
def publishing(channel: str, metadata: Mapping[str, str] | None) -> Iterator[dict[str, str]]:
    """A message is published: the headers to store with it."""
    headers = dict(metadata or {})
    if _trace is None or not _trace.get_current_span().get_span_context().is_valid:
        yield headers
        return
    attributes = _attributes("send", "publish", channel)
    kind = _trace.SpanKind.PRODUCER
    tracer = _trace.get_tracer("headrace", __version__)
    with tracer.start_as_current_span(f"publish {channel}", kind=kind, attributes=attributes):
        carrier: dict[str, str] = {}
        _propagate.inject(carrier)
        yield {**carrier, **headers}


@contextlib.contextmanager
def processing(name: str, job_id: str, attempt: int, headers: Mapping[str, str]) -> Iterator[None]:
    """A job of the queue ``name`` is worked on, as a part of its publisher's trace."""
    if _trace is None:
        yield
        return
    attributes = _attributes("process", "process", name)
    attributes |= {"messaging.message.id": job_id, "headrace.job.attempt": attempt}
    context = _propagate.extract({header.lower(): text for header, text in headers.items()})
    kind = _trace.SpanKind.CONSUMER
    tracer = _trace.get_tracer("headrace", __version__)
    with tracer.start_as_current_span(
        f"process {name}", context=context, kind=kind, attributes=attributes
    ):
        yield


def _attributes(kind: str, verb: str, destination: str) -> dict[str, Any]:
    return {
        "messaging.system": "headrace.jobs",
        "messaging.operation.type": kind,
        "messaging.operation.name": verb,
        "messaging.destination.name": destination,
    }
