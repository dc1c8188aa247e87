"""Spark's Python processes load PySpark from where it is installed, and whatever else was to be run is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import peers
from headrace.pipeline.session.quick_path import FOLDER

pyspark = peers.package("pyspark")
SITE = Path(pyspark.__file__).parent.parent
LIBRARY = SITE / "pyspark" / "python" / "lib"


def told(code: str, *path: Path | str) -> str:
    """What a Python says that Spark has started with this path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    return found.stdout.strip()


@pytest.fixture
def archives() -> list[Path]:
    found = sorted(LIBRARY.glob("*.zip"))
    if not found:
        peers.missing_peer("the archive that PySpark has of itself", "run make env")
    return found


def test_an_archive_of_the_package_that_is_there_is_left_out(archives: list[Path]) -> None:
    code = "import pyspark, py4j; print(pyspark.__file__, py4j.__file__)"
    assert ".zip" in told(code, *archives), "Spark would not need this any more"
    assert ".zip" not in told(code, *archives, FOLDER)


def test_an_archive_of_another_spark_stays(tmp_path: Path, archives: list[Path]) -> None:
    other = tmp_path / "pyspark" / "python" / "lib"
    other.mkdir(parents=True)
    for each in archives:
        (other / each.name).symlink_to(each)
    said = told("import sys; print(sys.path)", *(other / each.name for each in archives), FOLDER)
    assert all(str(other / each.name) in said for each in archives)


def test_what_was_to_be_run_when_python_starts_is_run(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.customized = 'theirs'\n")
    code = "import sys, sitecustomize; print(sys.customized, sitecustomize.__file__)"
    assert told(code, FOLDER, tmp_path) == f"theirs {tmp_path / 'sitecustomize.py'}"
