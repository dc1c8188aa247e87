"""What is sent to a cluster's executors: the package in a zip, or an environment with it in an archive."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import headrace

__all__ = ["archive", "bare_python", "zipped"]

SOURCES = Path(headrace.__file__).parents[1]
PACKAGES = ("headrace", "pyspark_headrace")
NEEDED = ("msgspec", "pyarrow")  # compiled: a zip cannot hold them


def zipped(file: Path) -> Path:
    """The package for ``--py-files``."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for path in _sources():
            made.write(path, path.relative_to(SOURCES))
    return file


def bare_python(folder: Path) -> Path:
    """An environment that has what the source needs, and not the package. Returns its Python."""
    command = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in NEEDED:
        found = Path(__import__(name).__file__ or "").parent
        (packages / name).symlink_to(found)  # as in any environment of this machine
    python = folder / "bin" / "python"
    done = subprocess.run([python, "-c", "import headrace"], capture_output=True, check=False)
    assert b"No module named 'headrace'" in done.stderr
    return python


def archive(folder: Path, file: Path) -> Path:
    """An environment with the package, for ``--archives``."""
    bare_python(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    for path in _sources():
        target = packages / path.relative_to(SOURCES)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    with tarfile.open(file, "w:gz", compresslevel=1) as made:
        made.add(folder, ".", filter=lambda each: None if "__pycache__" in each.name else each)
    return file


def _sources() -> list[Path]:
    return [
        path
        for package in PACKAGES
        for path in sorted((SOURCES / package).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]
