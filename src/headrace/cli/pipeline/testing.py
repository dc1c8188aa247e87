"""``headrace pipeline test``: a pipeline with rows from files, without a server."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ...pipeline.model import PipelineError
from ...pipeline.testing.cases import folder_of, read_cases
from ...quantities import counted
from ..shared.errors import FAILED
from ..shared.output import Output, printable
from ..shared.verbs import offline
from .file import FILE, PROFILE, opened, tell_problems

if TYPE_CHECKING:
    from ...pipeline.testing.trial import Checked, Result

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
    from ...pipeline.testing.trial import Trial, session_for_tests

    with tempfile.TemporaryDirectory(prefix="headrace-test-") as folder:
        spark = session_for_tests(declared, Path(folder) / "spark.log")
        try:
            trial = Trial(declared, spark)
            results = []
            for case in found:
                results.append(trial.check(case, update=update))
                _tell(output, results[-1], folder_of(declared))
        finally:
            spark.stop()
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
