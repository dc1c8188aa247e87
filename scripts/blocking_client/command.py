"""The command: writes what is not current, or says what it would write."""

from __future__ import annotations

import difflib
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from . import plain
from .source import ROOT, ProblemError

__all__ = ["generated", "main"]


def generated() -> dict[Path, str]:
    """The files as they ought to be. Raises ProblemError."""
    with TemporaryDirectory() as directory:
        drafts = {}
        for source, target in plain.WRITTEN.items():
            drafts[target] = draft = Path(directory, str(target.relative_to(ROOT)))
            draft.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(plain.write_plain(source))
        _format(directory)
        return {target: draft.read_text() for target, draft in drafts.items()}


def _format(directory: str) -> None:
    """In the house style, as the linter and the formatter of the development environment have it."""
    for command in (["check", "--fix-only", "--unsafe-fixes", "--select", "I,UP028"], ["format"]):
        config = ["--no-cache", "--config", str(ROOT / "pyproject.toml")]
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--quiet", *config, directory],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise ProblemError(f"ruff cannot format what was written: {done.stderr}")


def main(arguments: list[str]) -> int:
    check = arguments == ["--check"]
    try:
        files = generated()
    except ProblemError as problem:
        print(f"make-blocking: {problem}", file=sys.stderr)
        return 2
    old = {path: path.read_text() if path.exists() else "" for path in files}
    stale = [path for path in files if files[path] != old[path]]
    for path in stale:
        name = str(path.relative_to(ROOT))
        if check:
            lines = difflib.unified_diff(
                old[path].splitlines(), files[path].splitlines(), name, "generated", lineterm=""
            )
            print("\n".join(lines))
        else:
            path.write_text(files[path])
            print(f"make-blocking: wrote {name}", file=sys.stderr)
    return int(check and bool(stale))
