"""The command: writes what is not current, or says what it would write."""

from __future__ import annotations

import difflib
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from . import once, plain, verbs, words_of_groups
from .facade import write_module
from .source import ROOT, ProblemError
from .table import MODULES

__all__ = ["generated", "main"]

FACADES = ROOT / "src" / "headrace" / "client" / "blocking"


def targets() -> dict[Path, Callable[[], str]]:
    """The files, and what writes each."""
    files: dict[Path, Callable[[], str]] = {
        plain.TARGET: plain.write_plain,
        once.FILE: once.write_once,
    }
    files |= {verbs.TARGET / f"{k}.py": partial(verbs.write_verbs, k) for k in verbs.KINDS}
    files |= {
        verbs.TARGET / f"{name}.py": partial(words_of_groups.write_docstrings, name)
        for name in words_of_groups.BY_HAND
    }
    return files | {FACADES / f"{name}.py": partial(write_module, name) for name in MODULES}


def generated() -> dict[Path, str]:
    """The files as they ought to be. Raises ProblemError."""
    with TemporaryDirectory() as directory:
        drafts = {path: Path(directory, str(path.relative_to(ROOT))) for path in targets()}
        for path, write in targets().items():
            drafts[path].parent.mkdir(parents=True, exist_ok=True)
            drafts[path].write_text(write())
        _format(directory)
        return {path: draft.read_text() for path, draft in drafts.items()}


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
