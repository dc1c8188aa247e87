"""``headrace pipeline relocate``: results that were moved are taken where they lie."""

from __future__ import annotations

from pathlib import Path

import click

from ...pipeline import resets
from ...quantities import counted
from ..shared.output import Output
from ..shared.verbs import offline
from .file import FILE, PROFILE, opened


@offline(
    FILE,
    PROFILE,
    click.option(
        "--query", "queries", multiple=True, metavar="NAME", help="only this one; may be repeated"
    ),
)
def relocate(output: Output, file: Path, profile: str, queries: tuple[str, ...]) -> int:
    """Take the files of results where they lie now.

    Spark's list of the files in a folder of results has absolute paths. After the folder was moved, copied
    or mounted elsewhere this writes into the list where it lies now; the files stay as they are.
    """
    declared = opened(output, file, profile)
    if declared is None:
        return 1
    for name, place, count in resets.relocate(declared, resets.chosen(declared, queries)):
        document = {"query": name, "path": place, "files": count}
        what = (
            f"{counted(count, 'file')} taken from {place}"
            if count
            else f"nothing was moved, {place}"
        )
        output.line(document, f"{name}: {what}")
    return 0
