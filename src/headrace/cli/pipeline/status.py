"""``headrace pipeline status`` and ``explain``: how each query is, and what it reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...pipeline.checking.explaining import Reads
from ...pipeline.checking.explaining import explain as reads_of
from ...pipeline.status.status import QueryStatus, rfc3339, status_of
from ..shared.output import Output, Table
from ..shared.verbs import offline
from .file import FILE, PROFILE, opened


@offline(FILE, PROFILE)
def status(output: Output, file: Path, profile: str) -> int:
    """Show how each query of a pipeline is: state, last error, batches, position, lag, rows.

    It reads what the runner has noted and the checkpoints, and asks the servers; no Spark is started. So it
    works while the pipeline runs, and after it was killed.
    """
    declared = opened(output, file, profile)
    if declared is None:
        return 1
    found = status_of(declared)
    queries = Table(
        ("QUERY", "STATE", "SINCE", "GEN", "BATCH", "POSITION", "LAG", "ROWS", "ROWS OUT"),
        right=frozenset(("GEN", "BATCH", "LAG", "ROWS", "ROWS OUT")),
    )
    for each in found:
        queries.add(*_row(each))
    tables = [
        queries,
        *_runners(found),
        *(each for each in (_quality(found), _time(found)) if each.rows),
    ]
    notes = [f"{each.query}: {note}" for each in found for note in _sentences(each)]
    output.show([each.document() for each in found], *tables, *notes)
    return 0


def _row(each: QueryStatus) -> tuple[Any, ...]:
    position = ", ".join(
        f"{s.stream} {s.sequence:,} of {s.last:,}" for s in each.sources if not s.error
    )
    return (
        each.query,
        each.state or "–",
        rfc3339(each.told.since) or "–",
        each.generation,
        _batch(each),
        position,
        _number(each.waiting),
        f"{each.totals.rows:,}",
        _number(each.totals.rows_out),
    )


def _batch(each: QueryStatus) -> str:
    batch = "–" if each.finished < 0 else f"{each.finished:,}"
    if each.planned <= each.finished:
        return batch
    is_running = each.state == "running" and each.is_live
    return f"{batch} (+1 {'under way' if is_running else 'unfinished'})"


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _sentences(each: QueryStatus) -> list[str]:
    found = list(each.notes)
    told = each.told
    if told.why:
        found.append(f"waits {told.why}")
    if told.restarts:
        found.append(f"started again {told.restarts} times in this run")
    if told.error:
        times = f" ({told.failures} times since a batch ended)" if told.failures > 1 else ""
        found.append(f"failed at {rfc3339(told.error_at)}{times}: {told.error}")
    return found


def _runners(found: list[QueryStatus]) -> list[Table]:
    """Of a pipeline with a lease: who runs it, and who stands by."""
    one = next(iter(found), None)
    if one is None or one.standbys is None:
        return []
    table = Table(("RUNNER", "IS", "SINCE", "WHY"))
    if one.runner:
        table.add(one.runner, "active", "–", "")
    for each in one.standbys:
        state = "ready" if each.is_ready else "not ready" if each.why else "getting ready"
        table.add(str(each.process), state, rfc3339(each.since) or "–", each.why)
    return [table] if table.rows else []


def _quality(found: list[QueryStatus]) -> Table:
    """How many rows failed each expectation."""
    table = Table(
        ("QUERY", "VIEW", "EXPECTATION", "FAILED", "OF"), right=frozenset(("FAILED", "OF"))
    )
    for each in found:
        for view, seen in each.totals.views.items():
            for name, count in seen.failed.items():
                table.add(each.query, view, name, f"{count:,}", f"{seen.rows:,}")
    return table


def _time(found: list[QueryStatus]) -> Table:
    """Of queries with a watermark: where it is, and how many rows came too late."""
    table = Table(
        ("QUERY", "WATERMARK", "LATE ROWS DROPPED"), right=frozenset(("LATE ROWS DROPPED",))
    )
    for each in found:
        if each.totals.watermark:
            table.add(each.query, each.totals.watermark, _number(each.totals.late))
    return table


@offline(FILE, PROFILE)
def explain(output: Output, file: Path, profile: str) -> int:
    """Show what each query of a pipeline reads: sequences from where to where, subjects, markers, how much.

    It asks the checkpoints and the servers; no Spark is started, and nothing is changed. Conditions of the
    SQL are not in it: Spark applies them to the rows that were read.
    """
    declared = opened(output, file, profile)
    if declared is None:
        return 1
    found = list(reads_of(declared))
    table = Table(
        (
            "QUERY",
            "SOURCE",
            "STREAM",
            "FIRST",
            "LAST",
            "MESSAGES",
            "BEGINS",
            "SUBJECTS",
            "MARKERS",
            "A BATCH",
        ),
        right=frozenset(("FIRST", "LAST", "MESSAGES")),
    )
    for each in found:
        table.add(*_query_row(each))
    notes = [f"{each.query}, {each.stream}: {each.error}" for each in found if each.error]
    output.show([each.document() for each in found], table, *notes)
    return 0


def _query_row(each: Reads) -> tuple[str, ...]:
    return (
        each.query,
        each.source,
        each.stream,
        _count_text(each.first),
        _count_text(each.last),
        _count_text(each.messages),
        each.because or "–",
        ", ".join(each.subjects) or "all",
        "rows, too" if each.markers else "left out",
        f"at most {each.at_a_time}" if each.at_a_time else "all there is",
    )


def _count_text(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
