"""Looks at a server, judged: for ``headrace doctor``, ``server check findings`` and the console alike.

``headrace.findings`` says what a finding is, and judges; ``streams``, ``groups`` and ``pipelines`` ask.
"""

from __future__ import annotations

from ..client.jetstream_context import JetStream
from ..findings.finding import Findings
from .groups import look_at_groups
from .pipelines import look_at_pipelines
from .streams import look_at_streams

__all__ = ["look_at_all"]


async def look_at_all(findings: Findings, js: JetStream) -> None:
    """Judge the streams, consumers, groups and pipelines of an account."""
    await look_at_streams(findings, js)
    await look_at_groups(findings, js)
    await look_at_pipelines(findings, js)
