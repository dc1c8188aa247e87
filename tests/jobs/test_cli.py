"""The command itself: its words, its help, its questions."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import jobs, main
from headrace.cli.jobs.commands import take_tokens
from headrace.cli.shared.errors import Failure


def test_every_operation_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in jobs.jobs.verbs:
        assert main(["jobs", command, "--help"]) == 0
        assert f"Usage: headrace jobs {command}" in capsys.readouterr().out
    main(["jobs", "serve", "--help"])
    assert "--database" in capsys.readouterr().out


def test_help_promises_no_option_that_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.partition("Connection:")[2].split())
    assert "--url" in text
    assert "take no --server" in text
    assert "--context" not in text
    assert main(["jobs", "status", "--server", "nats://127.0.0.1:1"]) == 2


def test_a_misspelt_operation_is_met_with_what_was_meant(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["jobs", "pubish"]) == 2
    assert "no command 'pubish'; did you mean 'publish'?" in capsys.readouterr().err


def test_purging_is_asked_about(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is sent: nobody listens there, and both end without an attempt."""
    words = ["jobs", "purge", "c", "k", "--url", "http://127.0.0.1:9"]
    assert main([*words, "--dry-run"]) == 0
    assert capsys.readouterr().out == "would delete all dead jobs of c/k\n"
    monkeypatch.setattr("sys.stdin.readline", lambda: "n\n")
    assert main(words) == 1
    assert "nothing was changed; answer y, or give --force" in capsys.readouterr().err


def test_a_service_that_is_not_there_is_told_with_its_address_and_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["jobs", "status", "--url", "http://127.0.0.1:1"]) == 3
    first, *steps = capsys.readouterr().err.splitlines()
    assert first.startswith("headrace: http://127.0.0.1:1: the service did not answer: ")
    assert "headrace jobs serve" in steps[0]


def taken(**values: Any) -> dict[str, Any]:
    """What a command gets of what was typed."""
    whole = {"token_file": None, **values}
    take_tokens(whole)
    return whole


def test_a_token_comes_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("in-the-file\n")
    monkeypatch.setenv("HEADRACE_JOBS_TOKEN", "in-the-environment")
    assert taken() == {"token": "in-the-environment"}
    assert taken(token_file=file) == {"token": "in-the-file"}
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"typed\r\n")))
    assert taken(token_file=Path("-")) == {"token": "typed"}
    monkeypatch.delenv("HEADRACE_JOBS_TOKEN")
    assert taken() == {"token": None}


def test_a_file_of_a_token_that_cannot_be_used_is_said_in_words(tmp_path: Path) -> None:
    empty, binary = tmp_path / "empty", tmp_path / "binary"
    empty.write_text("\n")
    binary.write_bytes(b"\xff\xfe")
    for path, words in (
        (tmp_path / "none", "No such file"),
        (empty, "nothing in it"),
        (binary, "no text"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(Failure, match=words):
            taken(token_file=path)
    with pytest.raises(Failure, match="standard input is read once"):
        taken(token_file=Path("-"), payload="-")


def test_no_command_takes_a_token_among_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    with_tokens = 0
    for command in jobs.jobs.verbs:
        assert main(["jobs", command, "--help"]) == 0
        text = " ".join(capsys.readouterr().out.split())
        with_tokens += "token-file FILE" in text
        for option in ("--token", "--channel-token", "--producer-token"):
            assert f"{option} TEXT" not in text, command
    assert with_tokens > 5
