"""``headrace pipeline reset``: queries begin again elsewhere, and nothing is destroyed."""

from __future__ import annotations

from pathlib import Path

import click

from ...pipeline import resets
from ...quantities import counted
from ..shared.asking import may_go_on
from ..shared.output import Output
from ..shared.verbs import offline
from .file import FILE, PROFILE, opened


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
