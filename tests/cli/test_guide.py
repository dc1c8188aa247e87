"""The commands of docs/cli.md run, and its reference names all there are."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from guides import ROOT, commands_of
from headrace.cli.commands import COMMANDS
from headrace.cli.root import root
from headrace.cli.shared.verbs import LazyGroup

Run = Callable[..., Any]
GUIDE = ROOT / "docs" / "cli.md"
REFERENCE = ROOT / "docs" / "reference" / "commands.md"
ELSEWHERE = frozenset({"console", "demo", "group", "jobs", "pipeline", "serve"})


def test_the_commands_of_the_guide_run(
    at_server: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("HEADRACE_AUTH_DIR", str(tmp_path / "auth"))
    commands = commands_of(GUIDE)
    assert len(commands) > 40
    for command in commands:
        done = at_server(*shlex.split(command)[1:])
        assert done.status == 0, (command, done.err)
        assert "Traceback" not in done.err


def verbs(group: click.Group, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, LazyGroup):
            yield from verbs(command, (*path, name))
        else:
            assert command.help, (*path, name)
            yield (*path, name)


def test_the_reference_names_every_verb_of_its_groups() -> None:
    text = GUIDE.read_text() + REFERENCE.read_text()
    named = {name for name in COMMANDS if f"`{name} " in text or f"`{name}`" in text}
    found = [path for path in verbs(root, ()) if path[0] in named - ELSEWHERE]
    assert len(found) > 60
    assert named >= ELSEWHERE
    missing = [path for path in found if f"`{' '.join(path)}" not in text]
    assert not missing
