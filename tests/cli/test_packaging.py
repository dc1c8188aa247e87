"""headrace packaging: the files are listed, printed, written, and in the wheel."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.packaging import FILES, text_of

Run = Callable[..., Any]


def test_the_files_are_listed_with_what_each_is_for(headrace: Run) -> None:
    done = headrace("packaging")
    assert done.status == 0
    for name, what in FILES.items():
        assert name in done.out and what in done.out
    told = json.loads(headrace("packaging", "--json").out)
    assert [each["file"] for each in told] == list(FILES)


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_printed_as_it_is(headrace: Run, name: str) -> None:
    done = headrace("packaging", name)
    assert (done.status, done.out) == (0, text_of(name))
    assert done.out.strip()


def test_all_are_written_again_and_none_over_a_changed_one(headrace: Run, tmp_path: Path) -> None:
    directory = tmp_path / "new" / "deploy"
    done = headrace("packaging", "--into", str(directory))
    assert done.status == 0 and len(done.out.splitlines()) == len(FILES)
    assert {
        str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()
    } == set(FILES)
    assert headrace("packaging", "--into", str(directory)).status == 0  # the second run
    (directory / "compose.yaml").write_text("mine")
    (directory / "Dockerfile").unlink()
    refused = headrace("packaging", "--into", str(directory))
    assert refused.status == 1 and "differs; nothing was written" in refused.err
    assert (directory / "compose.yaml").read_text() == "mine"
    assert not (directory / "Dockerfile").exists()
    one = headrace("packaging", "Dockerfile", "--into", str(directory))
    assert one.status == 0 and (directory / "Dockerfile").read_text() == text_of("Dockerfile")


def test_what_cannot_be_is_said(headrace: Run, tmp_path: Path) -> None:
    unknown = headrace("packaging", "headrace.servic")
    assert unknown.status == 1 and "headrace.service" in unknown.err
    (tmp_path / "file").touch()
    blocked = headrace("packaging", "--into", str(tmp_path / "file" / "below"))
    assert blocked.status == 1 and "Traceback" not in blocked.err
