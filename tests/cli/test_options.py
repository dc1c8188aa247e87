"""The options of the commands: each is named on a page, and those that set a field stand in a table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import click
import pytest

from guides import ROOT, text_of
from headrace.cli import consumer
from headrace.cli.root import root
from headrace.cli.shared import buckets
from headrace.cli.stream import edit

REFERENCE = ROOT / "docs" / "reference" / "commands.md"
OF_ALL = {"--help", "--config", "--metadata", "--defaults"}
"""Of every command, or not of a field."""


@cache
def commands() -> dict[str, click.Command]:
    """All that there are, by what is typed."""
    return dict(_below(root, "headrace"))


def _below(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _below(below, f"{path} {name}")
    else:
        yield path, command


def options(command: click.Command) -> list[click.Option]:
    return [each for each in command.params if isinstance(each, click.Option)]


def pages() -> str:
    """What readers see of the pages, with the programs that they include."""
    found = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return "\n".join(text_of(page) for page in found)


def test_each_option_is_named_on_a_page() -> None:
    named = set(re.findall(r"(?<![\w-])--[\w-]*\w(?![\w-])", pages()))
    missing = {
        f"{path} {option.opts[-1]}"
        for path, command in commands().items()
        for option in options(command)
        if named.isdisjoint((*option.opts, *option.secondary_opts))
    }
    assert missing == set()


def test_no_option_is_hidden_but_those_that_ask_for_nothing() -> None:
    """A second spelling of what is there is one more to hold in mind."""
    hidden = {
        option.opts[-1]
        for command in commands().values()
        for option in options(command)
        if option.hidden
    }
    assert hidden == {"--defaults", "--force"}


def row(typed: str, command: click.Command, fields: Mapping[str, str]) -> str:
    """A line of the table: the options of a command, and their fields where they are called otherwise."""
    told = []
    for option in options(command):
        name, spelt = option.name or "", option.opts[-1]
        if spelt in OF_ALL or option.expose_value is False or _is_of_connections(spelt):
            continue
        field = fields.get(name, name)
        told.append(f"`{spelt}`" + (f" ({field})" if field != name else ""))
    return f"| {typed} | {', '.join(told)} |"


def _is_of_connections(spelt: str) -> bool:
    common = {option.opts[-1] for option in options(_command("server info"))}
    return spelt in common


def _command(typed: str) -> click.Command:
    return commands()[f"headrace {typed}"]


BUCKET: dict[str, Any] = buckets._FIELDS
ROWS = {
    "stream create": ("`stream create`, `edit`", edit._FIELDS),
    "consumer create": ("`consumer create`, `edit`, `copy`", consumer._FIELDS),
    "kv add": ("`kv add`", BUCKET),
    "object add": ("`object add`", BUCKET),
}


@pytest.mark.parametrize("typed", ROWS)
def test_the_table_of_fields_has_the_options_of(typed: str) -> None:
    said, fields = ROWS[typed]
    wanted = row(said, _command(typed), fields)
    assert wanted in REFERENCE.read_text(), f"docs/reference/commands.md should have:\n{wanted}"
