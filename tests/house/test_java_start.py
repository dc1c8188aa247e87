"""Java starts quickly in the tests: with classes of an archive, which fits it and the jars of Spark."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import java_start
import peers
from java_start import ARCHIVE, environment


def spark_command() -> list[str]:
    """How Spark starts its Java, but for what is to run in it."""
    pyspark = peers.package("pyspark")
    home = Path(pyspark.__file__).parent
    launcher = ["java", "-cp", f"{home}/jars/*", "org.apache.spark.launcher.Main"]
    told = subprocess.run(
        [*launcher, "org.apache.spark.deploy.SparkSubmit", "pyspark-shell"],
        env={"PATH": "/usr/bin:/bin", "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13"},
        capture_output=True,
        text=True,
        check=True,
    )
    command = told.stdout.split("\0")
    return ["java", "-cp", command[command.index("-cp") + 1]]


def test_the_archive_fits_java_and_spark() -> None:
    if not ARCHIVE.is_file():
        peers.missing_peer(ARCHIVE.name, "run make test")
    options = environment({})["SPARK_SUBMIT_OPTS"].split()
    assert f"-XX:SharedArchiveFile={ARCHIVE}" in options
    quietly = [option for option in options if option != "-Xlog:disable"]
    # ``on`` ends Java where an archive cannot be used; by itself it would go on without.
    command = [*spark_command(), *quietly, "-Xshare:on", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sharing" in done.stderr


def test_what_is_not_there_is_not_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(java_start, "ARCHIVE", tmp_path / "none.jsa")
    assert "SharedArchiveFile" not in environment({})["SPARK_SUBMIT_OPTS"]


def test_what_is_said_already_stays() -> None:
    assert "SPARK_SUBMIT_OPTS" not in environment({"SPARK_SUBMIT_OPTS": "-Xmx2g"})
