"""The file of a pipeline: as every verb takes it, how its problems are told, and ``pipeline graph``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from ...pipeline.declaring.reading import read
from ...pipeline.drawing import graph_of, mermaid_of, svg_of, tree_of
from ...pipeline.model import Declared, PipelineError, Problem, Unasked
from ..shared.errors import FAILED, UNREACHABLE
from ..shared.output import Output, printable
from ..shared.verbs import offline

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


@offline(
    FILE,
    PROFILE,
    click.option(
        "--as",
        "form",
        type=click.Choice(("tree", "mermaid", "svg")),
        default="tree",
        show_default=True,
        help="the picture",
    ),
)
def graph(output: Output, file: Path, profile: str, form: str) -> int:
    """Show how rows go from the sources of a pipeline's FILE to its sinks. No server is asked.

    Mermaid is drawn by GitHub and many wikis; SVG goes to a file: --as svg > orders.svg.
    """
    declared = opened(output, file, profile)
    if declared is None:
        return FAILED
    found = graph_of(declared)
    if form == "svg":
        text = svg_of(found)
    elif form == "mermaid":
        text = mermaid_of(found)
    else:
        text = "\n".join(map(printable, tree_of(found)))
    output.show(found.document(), text.rstrip("\n"))
    return 0
