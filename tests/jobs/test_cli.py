"""The command itself, where the packages it needs are missing."""

from __future__ import annotations

import argparse

import pytest

from headrace.cli import jobs


def test_a_missing_package_is_named_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(jobs, "_missing", lambda: ["starlette"])
    parser = argparse.ArgumentParser()
    jobs.add_arguments(parser)
    assert jobs.run(parser.parse_args(["serve"])) == 1
    assert capsys.readouterr().err == (
        "headrace jobs: starlette missing; install them with: pip install 'headrace[jobs]'\n"
    )


def test_every_operation_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser(prog="headrace jobs")
    jobs.add_arguments(parser)
    for command in ("serve", "prune", "status", "publish", "dead", "requeue", "purge", "pause"):
        with pytest.raises(SystemExit) as left:
            parser.parse_args([command, "--help"])
        assert left.value.code == 0
    assert "--database" in capsys.readouterr().out
