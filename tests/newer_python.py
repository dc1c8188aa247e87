"""An environment of a newer Python, for peers that need one: made once, kept below ours, pinned by hash.

Where there is no such interpreter, or its packages cannot be had, the tests that need it are skipped, in CI,
too: nobody has to install a second Python to work on this project.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from functools import cache
from pathlib import Path

import pytest

__all__ = ["environment_of", "newer_python", "newer_python_or_reason"]

NEEDED = (3, 13)
ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements" / "peers-3.13.txt"
INSTALL_SECONDS = 300
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
OPTIONS = ["--quiet", "--no-input", "--require-hashes", "--only-binary=:all:"]


def newer_python() -> Path:
    """The interpreter of the environment; skips the test that asks where there can be none."""
    found = newer_python_or_reason()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@cache
def newer_python_or_reason() -> Path | str:
    """The interpreter of the environment, or why there is none."""
    base = _interpreter(NEEDED)
    if base is None:
        return "there is no Python 3.13 or newer, which natsio-pcgroups needs, on PATH or below ~/.pyenv"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes() + str(base).encode()).hexdigest()
    place = Path(sys.prefix) / "peers-3.13"
    python, stamp = place / "bin" / "python", place / "installed"
    with (place.parent / f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process of the tests may be making it
        if stamp.exists() and stamp.read_text() == wanted:
            return python
        try:
            _run([base, "-m", "venv", "--clear", "--without-pip", place])
            _run([*PIP, "--python", python, "install", *OPTIONS, "-r", REQUIREMENTS])
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            return f"natsio-pcgroups could not be installed for Python 3.13: {_words(error)}"
        stamp.write_text(wanted)
    return python


def environment_of(minor: int, packages: Collection[str] = ("msgspec",)) -> Path:
    """The interpreter of an environment of Python 3.``minor`` with these packages, as they are locked; skips
    the test that asks where there can be none."""
    base = _interpreter((3, minor), exactly=True)
    if base is None:
        pytest.skip(f"there is no Python 3.{minor} on PATH or below ~/.pyenv")
    wanted = _locked(packages)
    kind = "" if packages == ("msgspec",) else f"-{hashlib.sha256(wanted.encode()).hexdigest()[:8]}"
    place = Path(sys.prefix) / f"python-3.{minor}{kind}"
    python, stamp, needed = place / "bin" / "python", place / "installed", place / "needed.txt"
    with (place.parent / f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == f"{base}\n{wanted}":
            return python
        try:
            _run([base, "-m", "venv", "--clear", "--without-pip", place])
            needed.write_text(wanted)
            _run([*PIP, "--python", python, "install", *OPTIONS, "-r", needed])
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            pytest.skip(f"packages could not be installed for Python 3.{minor}: {_words(error)}")
        stamp.write_text(f"{base}\n{wanted}")
    return python


def _locked(packages: Collection[str]) -> str:
    """The lines of the lock for these packages, with their hashes. Of a package that is locked in several
    versions pip takes the one for its Python."""
    lines = (ROOT / "requirements" / "lock.txt").read_text()
    blocks = re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?(==(?:.*\\\n)+.*\n)", lines, re.MULTILINE)
    wanted = "".join(name + rest for name, rest in blocks if name in packages)
    missing = set(packages) - {name for name, _ in blocks}
    assert not missing, f"not in requirements/lock.txt: {sorted(missing)}"
    return wanted


def _run(command: list[str | Path]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)


def _words(error: subprocess.SubprocessError) -> str:
    said = str(getattr(error, "stderr", "") or error).strip()
    return said.splitlines()[-1]


def _interpreter(needed: tuple[int, int], *, exactly: bool = False) -> Path | None:
    """The first interpreter that is new enough, or of exactly this version, by asking it: a name on PATH
    may be a shim of nothing."""
    named = [f"python3.{minor}" for minor in range(needed[1], 15)] + ["python3", "python"]
    on_path = [found for name in named if (found := shutil.which(name))]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    below = sorted(pyenv.glob("versions/3.1[0-9]*/bin/python"))
    for candidate in [*map(Path, on_path), *below]:
        if _is_new_enough(candidate, needed, "!=" if exactly else "<"):
            return candidate
    return None


def _is_new_enough(python: Path, needed: tuple[int, int], differs: str) -> bool:
    program = f"import sys; sys.exit(sys.version_info[:2] {differs} {needed})"
    try:
        asked = subprocess.run(
            [python, "-c", program], capture_output=True, timeout=30, check=False
        )
    except OSError:
        return False
    return asked.returncode == 0
