"""The types of keyword arguments are those that the configurations have now."""

from __future__ import annotations

from pathlib import Path

import pytest

from keyword_fields import command
from keyword_fields.read import fields_of


def test_the_files_are_current() -> None:
    stale = [path.name for path, text in command.generated().items() if path.read_text() != text]
    assert not stale, "run `make keywords`"


def test_a_stale_file_is_found_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "old.py"
    old.write_text("x = 1\n")
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "generated", lambda: {old: "x = 2\n"})
    assert command.main(["--check"]) == 1
    assert "old.py is stale" in capsys.readouterr().err
    assert command.main([]) == 0
    assert old.read_text() == "x = 2\n"
    assert command.main(["--check"]) == 0


def test_a_keyword_takes_more_than_the_field_keeps(tmp_path: Path) -> None:
    path = tmp_path / "config.py"
    path.write_text(
        "class C(Document):\n"
        '    """A configuration."""\n\n'
        '    durations = ("wait", "waits")\n'
        "    known: ClassVar[int] = 1\n\n"
        "    wait: float = 0.0\n"
        '    """Seconds."""\n\n'
        "    waits: tuple[float, ...] = ()\n"
        "    subjects: tuple[str, ...] = ()\n"
        "    rate: float = 0.0\n"
        "    user: str | None = None\n"
        "    pause_until: str | None = None\n"
        "    metadata: dict[str, str] = {}\n"
    )
    assert [(f.name, f.type, f.description) for f in fields_of(path, "C")] == [
        ("wait", "float | timedelta", '"""Seconds."""'),
        ("waits", "Sequence[float | timedelta]", ""),
        ("subjects", "str | Sequence[str]", ""),
        ("rate", "float", ""),
        ("user", "str | None", ""),
        ("pause_until", "str | datetime | None", ""),
        ("metadata", "Mapping[str, str]", ""),
    ]
