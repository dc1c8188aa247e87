"""Contexts from the command line, and what the client makes of them."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import peers
from headrace.client import read_context

Run = Callable[..., Any]


def test_a_context_is_created_used_and_forgotten(headrace: Run, tmp_path: Path) -> None:
    assert headrace("context", "ls").lines[0].startswith("no contexts; `headrace context create")
    done = headrace("context", "create", "prod", "--server", "nats://prod:4222", "--user", "ann",
        "--password", "s3cret", "--description", "the real one")  # fmt: skip
    assert done.lines[1] == "  headrace context select prod    uses it by default"
    file = tmp_path / "nats" / "context" / "prod.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    headrace("context", "add", "local", "--server", "nats://127.0.0.1:1")
    headrace("context", "select", "local")
    assert headrace("context", "ls", "-n").lines == ["local", "prod"]
    assert headrace("context", "ls").lines[1].split() == ["local*", "nats://127.0.0.1:1"]
    assert headrace("context", "select", "prod").status == 0
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert read_context(environ=environ).options.user == "ann"
    shown = headrace("context", "info")
    assert "*****" in shown.out
    assert "s3cret" not in shown.out
    assert headrace("context", "rm", "prod", answer="n\n").status == 1
    assert headrace("context", "rm", "prod", "--force").status == 0
    assert read_context(environ=environ).name == ""
    assert "no context is selected" in headrace("context", "info").err


def test_what_the_tool_wrote_is_kept(headrace: Run, tmp_path: Path) -> None:
    file = tmp_path / "nats" / "context" / "theirs.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"url": "nats://a", "token": "t", "color_scheme": "double"}))
    assert headrace("context", "edit", "theirs", "--server", "nats://b", "--token", "").status == 0
    assert json.loads(file.read_text()) == {"url": "nats://b", "color_scheme": "double"}
    assert headrace("context", "copy", "theirs", "ours", "--user", "x").status == 0
    ours = json.loads(file.with_name("ours.json").read_text())
    assert ours == {"url": "nats://b", "color_scheme": "double", "user": "x"}
    assert headrace("context", "copy", "theirs", "ours").status == 1


def test_a_context_is_validated(
    headrace: Run, either_server: peers.ServerProcess, tmp_path: Path
) -> None:
    headrace("context", "create", "good", "--server", either_server.url)
    headrace("context", "create", "dead", "--server", "nats://127.0.0.1:1")
    headrace("context", "create", "bad", "--creds", "/no/such", "--nkey", "/no/such")
    rows = headrace("context", "validate", "good", "--connect", "--json").told
    assert rows == [{"name": "good", "problem": ""}]
    done = headrace("context", "validate", "dead", "--connect")
    assert (done.status, "no server could be reached" in done.out) == (1, True)
    headrace("context", "select", "good")
    assert headrace("stream", "ls", "-n").status == 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("select", "lcal"), "there is no context 'lcal'; did you mean 'local'?"),
        (("info", "other"), "there is no context 'other'; there are: local"),
        (("create", "../evil", "--server", "nats://a"), "cannot be the name of a context"),
    ],
)
def test_what_is_wrong_is_said(headrace: Run, words: tuple[str, ...], text: str) -> None:
    headrace("context", "create", "local", "--server", "nats://a")
    done = headrace("context", *words)
    assert (done.status, text in done.err) == (1, True)


def test_replacing_one_is_asked(headrace: Run) -> None:
    headrace("context", "create", "a", "--server", "nats://a")
    assert headrace("context", "create", "a", "--server", "nats://b").status == 1
    assert headrace("context", "create", "a", "--server", "nats://b", answer="y\n").status == 0
