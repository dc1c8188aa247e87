"""``headrace pipeline graph``: a picture of a pipeline's file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...pipeline.drawing import graph_of, mermaid_of, svg_of, tree_of
from ..shared.errors import FAILED
from ..shared.output import Output, printable
from ..shared.verbs import offline
from .file import FILE, PROFILE, opened

if TYPE_CHECKING:
    from pathlib import Path


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
