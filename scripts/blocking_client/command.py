"""The command: writes what is not current, or says what it would write."""

from __future__ import annotations

import difflib
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from . import plain
from .facade import write_module
from .source import ROOT, ProblemError
from .table import MODULES

__all__ = ["generated", "main"]

FACADES = ROOT / "src" / "headrace" / "client" / "blocking"


def targets() -> dict[Path, Callable[[], str]]:
    """The files, and what writes each."""
    files: dict[Path, Callable[[], str]] = {plain.TARGET: plain.write_plain}
    return files | {FACADES / f"{name}.py": partial(write_module, name) for name in MODULES}


def generated() -> dict[Path, str]:
    """The files as they ought to be. Raises ProblemError."""
    return {path: _formatted(path, write()) for path, write in targets().items()}


def _formatted(path: Path, text: str) -> str:
    """In the house style, as the linter and the formatter of the development environment have it."""
    ruff = [sys.executable, "-m", "ruff"]
    name = ["--stdin-filename", str(path), "-"]
    for command in (
        [*ruff, "check", "--quiet", "--fix-only", "--unsafe-fixes", "--select", "I,UP028"],
        [*ruff, "format", "--quiet"],
    ):
        done = subprocess.run(
            [*command, *name], input=text, capture_output=True, text=True, cwd=ROOT
        )
        if done.returncode:
            raise ProblemError(f"{path.name} cannot be formatted: {done.stderr}\n{text}")
        text = done.stdout
    return text


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
