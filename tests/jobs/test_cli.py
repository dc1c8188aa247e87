"""The command itself: its words, its help, its questions."""

from __future__ import annotations

import pytest

from headrace.cli import jobs, main


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
    words = ["jobs", "purge", "c", "k", "--token", "t", "--channel-token", "t"]
    words += ["--url", "http://127.0.0.1:9"]
    assert main([*words, "--dry-run"]) == 0
    assert capsys.readouterr().out == "would delete all dead jobs of c/k\n"
    monkeypatch.setattr("sys.stdin.readline", lambda: "n\n")
    assert main(words) == 1
    assert "nothing was changed; answer y, or give --force" in capsys.readouterr().err
