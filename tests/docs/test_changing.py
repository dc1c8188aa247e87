"""The commands of the page about changing things can be typed so."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from guides import ROOT, commands_of
from headrace.cli.root import root

PAGE = ROOT / "docs" / "how-to" / "changing.md"
ELSEWHERE = ("headrace serve",)
"""Not read by click."""


def found(command: str) -> tuple[click.Command, click.Context, list[str]]:
    """The command, and what comes after its name."""
    verb: click.Command = root
    words = shlex.split(command)[1:]
    context = click.Context(root)
    while isinstance(verb, click.Group) and words:
        below = verb.get_command(context, name := words.pop(0))
        assert below is not None, f"{command}: {name}"
        verb = below
    return verb, context, words


def commands() -> list[str]:
    """Those to type, and those within the text that say more than a name."""
    inline = re.findall(r"`(headrace [^`…]+)`", PAGE.read_text())
    mine = [each for each in inline if not each.startswith(ELSEWHERE)]
    return sorted({*commands_of(PAGE), *(each for each in mine if found(each)[2])})


@pytest.mark.parametrize("command", commands())
def test_a_command_is_parsed(command: str) -> None:
    verb, context, words = found(command)
    with verb.make_context(verb.name, words, parent=context):
        pass


def test_there_are_commands_of_each_kind() -> None:
    kinds = {each.split()[1] for each in commands()}
    assert kinds >= {"stream", "consumer", "group", "jobs"}
