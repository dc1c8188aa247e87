"""``headrace errors …``: the numbers that JetStream's errors have."""

from __future__ import annotations

import re

import click

from ...api.errors import Errors, ErrorSpec
from ..commands import CommandEntry
from ..shared.errors import STEPS, Failure
from ..shared.output import Output, Sheet, Table
from ..shared.verbs import LazyGroup, offline


def _table() -> list[ErrorSpec]:
    rows = {each for each in vars(Errors).values() if isinstance(each, ErrorSpec)}
    return sorted(rows, key=lambda row: (row.err_code, row.description))


def _shown(row: ErrorSpec) -> dict[str, object]:
    return {**row.to_wire(), "next_steps": list(STEPS.get(row.err_code, ()))}


@offline(click.argument("match", metavar="[REGEX]", required=False))
def ls(output: Output, match: str | None) -> None:
    """List the errors that a server may answer with, or those whose text matches."""
    try:
        wanted = re.compile(match or "", re.IGNORECASE)
    except re.error as error:
        raise Failure(f"{match!r} is no regular expression: {error}", status=2) from None
    rows = [row for row in _table() if wanted.search(row.description)]
    table = Table(
        ("Number", "Code", "Text"), right=frozenset({"Number", "Code"}), empty="no error matches"
    )
    for row in rows:
        table.add(row.err_code, row.code, row.description)
    output.show([_shown(row) for row in rows], table)


@offline(click.argument("number", type=int))
def lookup(output: Output, number: int) -> None:
    """Show what the number of an error means, and what helps."""
    found = [row for row in _table() if row.err_code == number]
    if not found:
        raise Failure(
            f"no error has the number {number} here; servers may know more of them",
            "headrace errors ls    lists those there are",
        )
    sheet = Sheet(f"Error {number}")
    for row in found:
        steps = STEPS.get(number, ())
        texts = [("Text", row.description), ("Code", row.code)]
        sheet.section("", [*texts, *(("What helps", step) for step in steps)])
    output.show([_shown(row) for row in found], sheet)


errors = LazyGroup(
    "errors",
    {
        "ls": CommandEntry("list them", ls, ("list",)),
        "lookup": CommandEntry(
            "what a number means, and what helps", lookup, ("get", "find", "show")
        ),
    },
    "What the numbers of JetStream's errors mean.",
)
