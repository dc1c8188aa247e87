"""A look at the streams and consumers of an account, judged."""

from __future__ import annotations

from datetime import UTC, datetime

from ..client.jetstream_context import JetStream
from ..findings.consumers import judge_consumer
from ..findings.finding import Findings
from ..findings.streams import judge_stream
from ..quantities import counted


async def look_at_streams(findings: Findings, js: JetStream) -> None:
    """Judge each stream, and each of its consumers."""
    streams, before = 0, len(findings.found)
    async for stream in js.streams():
        streams += 1
        consumers = [each async for each in js.consumers(stream.config.name)]
        now = datetime.now(UTC)
        judge_stream(findings, stream, consumers)
        for consumer in consumers:
            judge_consumer(findings, consumer, now)
    if all(each.grade == "ok" for each in findings.found[before:]):
        findings.ok(
            "streams",
            f"nothing wrong in {counted(streams, 'stream')}" if streams else "there are none",
        )
