"""``headrace pipeline validate``: mistakes, found without Spark, or by its analysis alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...pipeline.checking.gaps import gaps
from ...pipeline.checking.plans import told_of_order, why_not_replayed
from ...pipeline.checking.refusals import refusals
from ...pipeline.checking.sources_and_sinks import check, check_columns, check_options
from ...pipeline.checkpoints.checkpoint import checkpoint_of
from ...pipeline.checkpoints.fingerprints import mixture, noted, of_frame, plan_of, tell_changes
from ...pipeline.model import PipelineError
from ..shared.verbs import offline
from .file import FILE, PROFILE, opened, status_of_problems, tell_problems
from .stray_output import apart

if TYPE_CHECKING:
    from pathlib import Path

    from ...pipeline.model import Declared
    from ..shared.output import Output


@offline(
    FILE,
    PROFILE,
    click.option("--plan", is_flag=True, help="start Spark, too, to analyse SQL and columns"),
    click.option("--no-server", is_flag=True, help="ask no server"),
)
def validate(output: Output, file: Path, profile: str, plan: bool, no_server: bool) -> int:
    """Look for mistakes in a pipeline's FILE: keys, options, streams, permissions.

    Each is told with its line. It takes less than a second, and no Spark, unless --plan is given.
    """
    declared = opened(output, file, profile)
    if declared is None:
        return 1
    problems, found = (check_options(declared), []) if no_server else check(declared)
    if not problems:
        problems = refusals(declared, again=no_server)
        mixed, changed = tell_changes(declared)
        problems, found = problems + mixed, found + changed
        if not problems and not no_server:
            problems = gaps(declared)
    columns: dict[str, str] = {}
    if plan and not problems:
        from ...pipeline.running.run import log_of

        try:
            with apart(log_of(declared), errors=True):
                columns, said = _plan(declared)
                found = found + said
        except PipelineError as error:
            problems = list(error.problems)
    if problems or not output.is_text:
        tell_problems(output, problems, found=found, columns=columns)
        return status_of_problems(problems)
    output.show(None, f"{file}: {_summary(declared)}")
    for sentence in found:
        output.show(None, f"  {sentence}")
    for name, text in columns.items():
        output.show(None, f"  {name}: {text}")
    return 0


def _summary(declared: Declared) -> str:
    def some(count: int, word: str) -> str:
        return f"{count} {word}{'' if count == 1 else 's'}"

    parts = (
        some(len(declared.sources), "source"),
        some(len(declared.views), "view"),
        some(sum(len(view.expectations) for view in declared.views.values()), "expectation"),
        some(len(declared.sinks), "sink"),
    )
    return f"no mistakes found; {', '.join(parts)}"


def _plan(declared: Declared) -> tuple[dict[str, str], list[str]]:
    """The columns of each sink, as Spark sees them; and what it would not do with a query."""
    from ...pipeline.queries.frames import Frames
    from ...pipeline.running.run import session_of
    from ...spark.sink.layout import columns_of

    spark = session_of(declared)
    found: dict[str, str] = {}
    said: list[str] = []
    try:
        for name, sink in declared.sinks.items():
            generation = checkpoint_of(declared, name).current()
            frame = Frames(spark, declared, name).of_sink(sink)
            columns = columns_of(frame.schema)
            check_columns(sink, columns)
            before = noted(generation, spark)
            now = of_frame(declared, sink, frame, spark)
            if before is not None and (problem := mixture(declared, sink, before, now)):
                raise PipelineError([problem])
            plan = plan_of(frame, spark)
            told = (
                why_not_replayed(declared, sink, plan),
                told_of_order(sink, plan, [column.name for column in columns]),
            )
            said += filter(None, told)
            found[name] = ", ".join(f"{column.name} {column.type}" for column in columns)
        return found, said
    finally:
        spark.stop()
