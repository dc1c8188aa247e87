"""Findings about a job service, as it tells of itself. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from ..quantities import counted, duration_text, moment_of
from .finding import Findings

FAILING_S: Final = 60.0
"""Time for which every call of an endpoint has failed before it is told. Endpoints are restarted at times."""


def judge_jobs(
    findings: Findings,
    status: Mapping[str, Any],
    feeds: Iterable[Mapping[str, Any]],
    now: datetime,
) -> None:
    """Judge a job service by its ``/_status`` and the feeds of its ``/v2/feeds``."""
    for part in status["failing"]:
        findings.problem(
            f"jobs: {part['part']}",
            f"fails, and is tried again: {part['reason']}",
            "headrace jobs serve    its log says more",
            name="jobs-part-fails",
            since=part["since"],
            tries=part["tries"],
        )
    for consumer in status["consumers"]:
        _judge_endpoint(findings, consumer, now)
    for feed in feeds:
        _judge_feed(findings, feed)


def _judge_endpoint(findings: Findings, consumer: Mapping[str, Any], now: datetime) -> None:
    names = f"{consumer['channel']} {consumer['consumer']}"
    what = f"jobs of {consumer['channel']} > {consumer['consumer']}"
    queued = int(consumer["jobs"].get("QUEUED", 0))
    since = consumer["failing_since"]
    if consumer["disabled_reason"] is not None:
        findings.problem(
            what,
            f"its endpoint is called no more: {consumer['disabled_reason']}; {counted(queued, 'job')} queued",
            f"headrace jobs enable {names}    once the endpoint works",
            name="endpoint-disabled",
            since=since or "",
            queued=queued,
        )
    elif since is not None:
        failing_s = (now - moment_of(since)).total_seconds()
        if failing_s > FAILING_S:
            findings.problem(
                what,
                f"every call of its endpoint has failed for {duration_text(failing_s)}, "
                f"{counted(queued, 'job')} queued",
                f"headrace jobs dead {names}    has what it answered",
                name="endpoint-fails",
                since=since,
                queued=queued,
                failing_s=round(failing_s, 3),
            )


def _judge_feed(findings: Findings, feed: Mapping[str, Any]) -> None:
    what, state, lag = f"feed {feed['channel']} > {feed['feed']}", feed["state"], feed["lag"] or 0
    mend = f"headrace jobs feed {feed['channel']}    says what it waits for"
    waiting = f"{counted(lag, 'message')} of stream {feed['stream']} to come"
    if state == "failing":
        text = f"fails, and is tried again: {feed['problem']}; {waiting}"
        findings.problem(what, text, mend, name="feed-stands", waiting=lag)
    elif state == "away" and lag:
        findings.problem(
            what,
            f"no process of the job service feeds it; {waiting} when one did",
            "headrace jobs serve    with this feed in its configuration",
            name="feed-stands",
            since=feed["seen_at"] or "",
            waiting=lag,
        )
    elif state == "backlog":
        text = f"waits, as {counted(feed['unfinished'], 'job')} are not finished; {waiting}"
        findings.note(
            what, text, mend, name="feed-stands", waiting=lag, unfinished=feed["unfinished"]
        )
