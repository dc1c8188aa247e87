"""A look at the running pipelines that tell the server of themselves, judged."""

from __future__ import annotations

import time

from ..api.pipelines import BUCKET, decode
from ..client.jetstream_context import JetStream
from ..errors import JetStreamApiError, StreamNotFoundError
from ..findings.finding import Findings
from ..findings.pipelines import judge_pipeline
from ..quantities import counted


async def look_at_pipelines(findings: Findings, js: JetStream) -> None:
    """Judge each pipeline that has run within the last day. A server without any says nothing."""
    before, pipelines = len(findings.found), 0
    try:
        stream = await js.stream(f"KV_{BUCKET}")
        messages = await stream.get_last_messages(f"$KV.{BUCKET}.>")
    except StreamNotFoundError:
        return  # no pipeline ever told this server
    except JetStreamApiError as error:
        findings.note("pipelines", f"they could not be looked at: {error.description}")
        return
    for message in messages:
        record = decode(message.payload)
        if record is not None:
            pipelines += 1
            judge_pipeline(findings, record, time.time())
    if pipelines and len(findings.found) == before:
        findings.ok("pipelines", f"nothing wrong in {counted(pipelines, 'pipeline')}")
