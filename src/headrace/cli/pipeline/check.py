"""``headrace pipeline validate``: mistakes, found without Spark, or by its analysis alone."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ...pipeline.checking.gaps import gaps
from ...pipeline.checking.plans import told_of_order, why_not_replayed
from ...pipeline.checking.refusals import refusals
from ...pipeline.checking.sources_and_sinks import check, check_columns, check_options
from ...pipeline.checkpoints.checkpoint import checkpoint_of
from ...pipeline.checkpoints.fingerprints import mixture, noted, of_frame, plan_of, tell_changes
from ...pipeline.model import Declared, PipelineError
from ...pipeline.testing.cases import folder_of, read_cases
from ...quantities import counted
from ..shared.errors import FAILED
from ..shared.output import Output, printable
from ..shared.verbs import offline
from .file import FILE, PROFILE, opened, status_of_problems, tell_problems
from .stray_output import apart

if TYPE_CHECKING:
    from ...pipeline.testing.trial import Checked, Result


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


_SHOWN: Final = 20
"""Of each kind of difference so many rows are shown; --json has all."""


@offline(
    FILE,
    click.argument("cases", nargs=-1),
    PROFILE,
    click.option("--update", is_flag=True, help="write down what comes as what is expected"),
    name="test",
)
def run_tests(
    output: Output, file: Path, cases: tuple[str, ...], profile: str, update: bool
) -> int:
    """Give rows to the sources of a pipeline's FILE, and compare what its views and sinks get.

    The rows are in files beside it: orders.tests/CASE/sources/NAME.jsonl, and what is expected in views/ and
    sinks/ there. Everything runs as one batch on this machine, without a server; nothing is written but by
    --update. The status is 0 if all rows are as expected, else 1.
    """
    declared = opened(output, file, profile)
    if declared is None:
        return FAILED
    try:
        found = read_cases(declared, cases)
    except PipelineError as error:
        tell_problems(output, error.problems)
        return FAILED
    from ...pipeline.testing.trial import Trial, end_session_for_tests, session_for_tests

    with tempfile.TemporaryDirectory(prefix="headrace-test-") as folder:
        spark = session_for_tests(declared, Path(folder) / "spark.log")
        results: list[Result] = []
        try:
            trial = Trial(declared, spark)
            for case in found:
                results.append(trial.check(case, update=update))
                _tell(output, results[-1], folder_of(declared))
        finally:
            end_session_for_tests(spark, results)
    failed = sum(not each.ok for each in results)
    if output.is_text:
        output.show(None, f"{len(results) - failed} passed, {failed} failed")
    else:
        output.show({"ok": not failed, "cases": [_document(each) for each in results]})
    return FAILED if failed else 0


def _tell(output: Output, result: Result, folder: Path) -> None:
    if not output.is_text:
        return
    print(f"{result.case}: {'ok' if result.ok else 'FAILED'}")
    for each in result.checked:
        if each.written is not None:
            print(f"  {_shown(each, folder)}: {counted(each.written, 'row')} written")
        if each.difference:
            print(f"  {_shown(each, folder)}: {each.difference}")
            if not each.difference.columns:
                for line in each.difference.lines(_SHOWN):
                    print(f"    {printable(line)}")
    sys.stdout.flush()
    for problem in result.problems:
        print(problem, file=sys.stderr)


def _shown(each: Checked, folder: Path) -> str:
    return str(each.file.relative_to(folder.parent))


def _document(result: Result) -> dict[str, Any]:
    return {
        "case": result.case,
        "ok": result.ok,
        "checked": [
            {
                "file": str(each.file),
                "missing": list(each.difference.missing),
                "extra": list(each.difference.extra),
                "columns": each.difference.columns or None,
                "written": each.written,
            }
            for each in result.checked
        ],
        "problems": [
            {"file": str(each.place.file), "line": each.place.line, "text": each.text}
            for each in result.problems
        ],
    }
