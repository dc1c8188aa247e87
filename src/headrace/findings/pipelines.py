"""Findings about a pipeline, as its runner tells it. Pure."""

from __future__ import annotations

from ..api.pipelines import SILENT_S, PipelineRecord
from ..api.times import format_time
from ..quantities import counted, duration_text
from .finding import Findings


def judge_pipeline(findings: Findings, record: PipelineRecord, now_s: float) -> None:
    """Judge one pipeline and its queries; ``now_s`` since the epoch."""
    what = f"pipeline {record.name} on {record.host}"
    silent_s = record.silent_s(now_s)
    if silent_s is not None and silent_s > SILENT_S:
        text = f"its runner has said nothing for {duration_text(silent_s)}: killed, or cut off"
        findings.problem(
            what,
            text,
            "headrace pipeline run DIR    starts it again",
            name="pipeline-silent",
            since=_time_text(record.written),
            silent_s=round(silent_s, 3),
        )
        return
    for name, query in record.queries.items():
        place = f"query {record.name} > {name}"
        if query.state == "failed":
            findings.problem(
                place,
                f"it has failed, and runs no more: {query.error or query.why}",
                "headrace pipeline status DIR",
                name="query-failed",
                since=_time_text(query.error_at or query.since),
                failures=query.failures,
                behind=query.behind if query.behind is not None else -1,
            )
        elif query.state == "restarting":
            failed = counted(query.failures, "time")
            findings.problem(
                place,
                f"it has failed {failed} in a row, and is begun again: {query.error or query.why}",
                "headrace pipeline status DIR",
                name="query-restarting",
                since=_time_text(query.error_at or query.since),
                failures=query.failures,
            )


def _time_text(seconds: float) -> str:
    return format_time(int(seconds * 1e9)) if seconds else ""
