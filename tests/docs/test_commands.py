"""Every ``headrace …`` of every page is parsed by the command it names: options, arguments, their kinds."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from guides import ROOT
from headrace.cli import demo
from headrace.cli.root import root
from headrace.cli.serve.command import add_arguments as add_serve_arguments
from headrace.cli.serve.command import spell

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCED = re.compile(r"(?ms)^( *)```(\w*)\n(.*?)^\1```$")
_INLINE = re.compile(r"`+(headrace [^`]+)`+")
_SHELL = ("", "sh", "bash", "console")
_MEANT = re.compile(r"…|\.\.\.|<[a-z]|\[|\{\{?[A-Z]|^headrace [A-Z]")
"""What stands for something else: a shape of a command, and none to type."""

TOLD_WHERE_TYPED = ("headrace latency", "headrace stream cluster")
"""What the page on the command line names as what is not here."""


class Typed(NamedTuple):
    """A command of a page."""

    page: Path
    command: str
    is_whole: bool
    """Whether it stands in a block; within a sentence arguments may be left out."""


def words_of(line: str) -> Iterator[list[str]]:
    """The commands of a line of a shell, as words."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split, lexer.commenters = True, "#"
    words: list[str] = []
    is_target = False
    for word in [*lexer, ";"]:
        if is_target:
            is_target = False
        elif word and set(word) <= set("|&;<>"):
            is_target = "<" in word or ">" in word
            if not is_target:
                yield words
                words = []
        else:
            words.append(word)


def typed_in(page: Path) -> Iterator[Typed]:
    text = page.read_text()
    for _, language, block in _FENCED.findall(text):
        if language in _SHELL:
            for line in block.replace("\\\n", " ").splitlines():
                yield from from_line(page, line.strip().removeprefix("$ "), is_whole=True)
    prose = _FENCED.sub("", text)
    for found in _INLINE.findall(prose):
        yield from from_line(page, found.replace("\n", " "), is_whole=False)


def from_line(page: Path, line: str, *, is_whole: bool) -> Iterator[Typed]:
    if "headrace " not in line or _MEANT.search(line):
        return
    if line in TOLD_WHERE_TYPED:
        return
    try:
        found = [*words_of(line)]
    except ValueError:
        return  # a text with an apostrophe, and no command
    for words in found:
        while words and re.fullmatch(r"[A-Z_]+=.*|sudo|env|exec", words[0]):
            words.pop(0)
        if words[:1] == ["xargs"] and "headrace" in words:
            words = [*words[words.index("headrace") :], "NAME"]
        if words[:1] == ["headrace"]:
            yield Typed(page, shlex.join(words[1:]), is_whole)


TYPED = [each for page in PAGES for each in typed_in(page)]


def parse(words: list[str]) -> None:
    """Raises click.UsageError, or SystemExit of argparse."""
    if words[0] in ("serve", "demo"):
        parser = argparse.ArgumentParser()
        (add_serve_arguments if words[0] == "serve" else demo.add_arguments)(parser)
        rest = [word for word in words[1:] if word not in ("--help", "--version")]
        if rest[-1:] == ["--console"]:
            rest.append("1")  # a sentence names the flag alone
        parser.parse_args(spell(rest, parser))
        return
    verb: click.Command = root
    context = click.Context(root)
    while isinstance(verb, click.Group):
        if not words or words[0].startswith("-"):
            return  # its help
        below = verb.get_command(context, words[0])
        assert below is not None, f"there is no {words[0]!r}"
        verb, words = below, words[1:]
    try:
        with verb.make_context(verb.name, list(words), parent=context):
            pass
    except click.exceptions.Exit:
        pass  # it asked for help


@pytest.mark.parametrize(
    "page", sorted({each.page for each in TYPED}), ids=lambda page: str(page.relative_to(ROOT))
)
def test_what_a_page_lets_type_is_parsed(page: Path) -> None:
    wrong = []
    for each in (each for each in TYPED if each.page == page):
        try:
            parse(shlex.split(each.command))
        except (click.MissingParameter, click.BadOptionUsage) as error:
            if each.is_whole:  # a sentence may name an option alone
                wrong.append(f"{each.command}: {error}")
        except (click.ClickException, AssertionError) as error:
            wrong.append(f"{each.command}: {error}")
        except SystemExit:
            wrong.append(f"{each.command}: argparse refuses it")
    assert wrong == []


def test_what_the_fuzzer_of_the_console_types_is_parsed() -> None:
    # It plays them at random, for an hour: most would never be played here.
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "fuzz")
        commands: tuple[str, ...] = importlib.import_module("web_registry").COMMANDS
    for command in commands:
        parse(shlex.split(command))


def test_this_reads_the_commands_of_many_pages() -> None:
    assert len({each.page for each in TYPED}) > 30
    assert len({each.command for each in TYPED if each.is_whole}) > 150
    assert {each.command.split()[0] for each in TYPED} >= {"serve", "stream", "jobs", "pipeline"}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (
            "headrace stream ls -n | xargs -n 1 headrace stream info",
            ["stream ls -n", "stream info NAME"],
        ),
        ("A=b headrace pub a 'x y' > file && echo done", ["pub a 'x y'"]),
        ("headrace serve -js &", ["serve -js"]),
        ("headrace stream info ORDERS   # what is in it", ["stream info ORDERS"]),
        ("headrace COMMAND …", []),
        ("pip install headrace", []),
    ],
)
def test_commands_are_found_in_lines(line: str, found: list[str]) -> None:
    assert [each.command for each in from_line(ROOT, line, is_whole=True)] == found


@pytest.mark.parametrize("line", ["stream ls --nope", "nope", "stream info", "kv get", "serve --x"])
def test_a_wrong_command_is_found(line: str) -> None:
    with pytest.raises((click.UsageError, AssertionError, SystemExit)):
        parse(shlex.split(line))
