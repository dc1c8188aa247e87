"""``headrace pipeline explain``: what each query reads of its streams."""

from __future__ import annotations

from pathlib import Path

from ...pipeline.checking.explaining import Reads
from ...pipeline.checking.explaining import explain as reads_of
from ..shared.output import Output, Table
from ..shared.verbs import offline
from .file import FILE, PROFILE, opened


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
        table.add(*_row(each))
    notes = [f"{each.query}, {each.stream}: {each.error}" for each in found if each.error]
    output.show([each.document() for each in found], table, *notes)
    return 0


def _row(each: Reads) -> tuple[str, ...]:
    return (
        each.query,
        each.source,
        each.stream,
        _number(each.first),
        _number(each.last),
        _number(each.messages),
        each.because or "–",
        ", ".join(each.subjects) or "all",
        "rows, too" if each.markers else "left out",
        f"at most {each.at_a_time}" if each.at_a_time else "all there is",
    )


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
