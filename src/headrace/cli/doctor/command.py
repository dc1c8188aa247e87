"""The command ``headrace doctor``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from ...errors import HeadraceError
from ...findings.finding import MARKS, Finding, Findings
from ..server.pages import MONITOR
from ..shared.connection_options import connection_options, given_above, where
from ..shared.errors import explain
from ..shared.output import Output, output_options, printable, terminal
from ..shared.verbs import command_of, connected, output_above, own_values, run_loop
from .machine import look_at_machine, look_at_store
from .server import look_at

_COLOURS = {"ok": "green", "note": "yellow", "problem": "bold red"}


@click.pass_context
def _examine(context: click.Context, /, **values: Any) -> int:
    """Look for what is wrong here and at the server, and name the command that mends it.

    \b
    headrace doctor
    headrace doctor --store ./data --monitor http://127.0.0.1:8222

    It changes nothing. The status is 1 if there is a problem.
    """
    own = own_values(values)
    output = output_above(context)
    findings = Findings()
    look_at_machine(findings, os.environ)
    if own["store"] is not None:
        look_at_store(findings, own["store"])

    async def look() -> None:
        async with connected(where(given_above(context)), Output()) as session:
            await look_at(findings, session, own["monitor"])

    try:
        run_loop(look())
    except HeadraceError as error:
        told = explain(error)
        findings.problem("server", told.text, told.next_steps[0] if told.next_steps else "")
    output.show(findings.document(), *map(_text, findings.found), _end(findings))
    return 1 if findings.problems else 0


def _text(finding: Finding) -> str:
    mark = MARKS[finding.grade]
    if sys.stdout.isatty() and terminal() is not None and "NO_COLOR" not in os.environ:
        mark = click.style(mark, **_style(finding))
    text = f"{mark} {finding.what}: {printable(finding.text)}"
    return f"{text}\n    {finding.mend}" if finding.mend else text


def _style(finding: Finding) -> dict[str, Any]:
    *bold, colour = _COLOURS[finding.grade].split()
    return {"fg": colour, "bold": bool(bold)}


def _end(findings: Findings) -> str:
    count = findings.problems
    notes = sum(each.grade == "note" for each in findings.found)
    worth = f", and {notes} thing{'s' * (notes != 1)} worth knowing" if notes else ""
    if not count:
        return f"\nno problem found{worth}"
    return f"\n{count} problem{'s' * (count != 1)} found{worth}"


_OWN = (
    click.option(
        "--store",
        type=click.Path(path_type=Path),
        default=None,
        metavar="DIR",
        help="look at this directory of a broker, too",
    ),
    MONITOR,
)
doctor = command_of(_examine, _examine, "doctor", _OWN, [*output_options(), *connection_options()])
