"""What the verbs of ``headrace pipeline`` have in common: file, profile, and how problems are told."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ...pipeline.declaring.reading import read
from ...pipeline.model import Declared, PipelineError, Problem, Unasked
from ..shared.errors import FAILED, UNREACHABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..shared.output import Output

FILE = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
PROFILE = click.option("--profile", default="", metavar="NAME", help="whose values take precedence")


def opened(output: Output, file: Path, profile: str) -> Declared | None:
    """The pipeline of a file; None after its problems were told."""
    try:
        return read(file, profile)
    except PipelineError as error:
        tell_problems(output, error.problems)
        return None


def tell_problems(output: Output, problems: Sequence[Problem], **more: Any) -> None:
    """Each on a line, as compilers do: ``file:line: what``. For programs one document on standard output."""
    if not output.is_text:
        listed = [
            {"file": str(each.place.file), "line": each.place.line, "text": each.text}
            for each in problems
        ]
        output.show({"ok": not problems, "problems": listed, **more})
        return
    sys.stdout.flush()
    for each in problems:
        print(each, file=sys.stderr)


MISTAKEN: Final = 4
"""The exit status of what is to run a file that has mistakes, or whose checkpoint and results do not go
together: another start changes nothing."""


def status_of_problems(problems: Sequence[Problem], mistaken: int = FAILED) -> int:
    """The exit status: a file with mistakes is told apart from a server that could not be asked."""
    if not problems:
        return 0
    return UNREACHABLE if all(isinstance(each, Unasked) for each in problems) else mistaken
