"""``headrace pipeline validate | reset``: what needs no Spark, or only its analysis."""

from __future__ import annotations

from pathlib import Path

import click

from ...pipeline import resets
from ...pipeline.checking import standing
from ...pipeline.checking.edges import why_not_replayed
from ...pipeline.checking.gaps import gaps
from ...pipeline.checking.options import check_columns, check_options
from ...pipeline.checking.servers import check
from ...pipeline.checkpoints.checkpoint import checkpoint_of
from ...pipeline.checkpoints.fingerprints import mixture, noted, of_frame, plan_of, tell_changes
from ...pipeline.model import Declared
from ...pipeline.problems import PipelineError
from ..shared.asking import may_go_on
from ..shared.output import Output
from ..shared.verbs import offline
from .apart import apart
from .file import CACHE, FILE, PROFILE, opened, status_of_problems, tell_problems


@offline(
    FILE,
    PROFILE,
    CACHE,
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
        problems = standing.refusals(declared, again=no_server)
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
            if text := why_not_replayed(declared, sink, plan_of(frame, spark)):
                said.append(text)
            found[name] = ", ".join(f"{column.name} {column.type}" for column in columns)
        return found, said
    finally:
        spark.stop()


@offline(
    FILE,
    PROFILE,
    click.option(
        "--to", required=True, metavar="WHERE", help="earliest, latest, a sequence or a time"
    ),
    click.option(
        "--query", "queries", multiple=True, metavar="NAME", help="only this one; may be repeated"
    ),
    destroys=True,
)
def reset(output: Output, file: Path, profile: str, to: str, queries: tuple[str, ...]) -> int:
    """Let queries begin again at another place of their streams.

    They get new checkpoints; those that are there stay, and so do the results. What the queries write
    afterwards is set apart: files go to a folder of their own.
    """
    declared = opened(output, file, profile)
    if declared is None:
        return 1
    sinks = resets.chosen(declared, queries)
    where = resets.parse_position(to)
    names = ", ".join(sink.name for sink in sinks)
    if not may_go_on(output, f"begin {names} again at {where}"):
        return 0
    for sink, generation, consequence in resets.reset(declared, sinks, where):
        starts = {source: str(start) for source, start in generation.starts.items()}
        begins = ", ".join(f"{source} at {start}" for source, start in starts.items())
        document = {"query": sink.name, "generation": generation.number, "starts": starts}
        text = f"{sink.name}: generation {generation.number} begins {begins}; {consequence}"
        output.line(document, text)
    return 0
