from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.pipeline.session.opening import making
from headrace.pipeline.session.opening.classes import (
    KEPT,
    NO_CACHE,
    QUICK_LAUNCHER,
    Archive,
    archive_for,
    cache_folder,
    options_for,
    quick_java,
    touch,
    version_of_java,
)
from headrace.pipeline.session.opening.making import make_in_background


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "spark-core_2.13-4.2.0.jar").write_text("core")
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Of a user with a Java."""
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch()
    (home / "release").write_text('IMPLEMENTOR="Somebody"\nJAVA_VERSION="21.0.5"\n')
    return {"JAVA_HOME": str(home), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_an_archive_is_found_by_the_versions_of_spark_and_java(
    environment: dict[str, str], jars: Path, tmp_path: Path
) -> None:
    archive = archive_for(environment, {}, jars)
    assert archive is not None
    assert archive.file.parent == tmp_path / "cache" / "headrace"
    assert archive.file.name.startswith("spark-4.2.0-java-21.0.5-")
    assert version_of_java(environment) == "21.0.5"
    assert archive_for(environment, {}, jars) == archive
    (jars / "another.jar").write_text("more")
    other = archive_for(environment, {}, jars)
    assert other is not None
    assert other.file != archive.file, "it would not fit other jars"


def test_memory_of_another_kind_has_an_archive_of_its_own(
    environment: dict[str, str], jars: Path
) -> None:
    plain = archive_for(environment, {}, jars)
    options = {"spark.driver.extraJavaOptions": "-Dx=y -XX:+UseSerialGC"}
    serial = archive_for(environment, options, jars)
    assert plain is not None
    assert serial is not None
    assert (plain.memory, serial.memory) == ("", "-XX:+UseSerialGC")
    assert plain.file != serial.file


@pytest.mark.parametrize(
    "changed",
    [
        {NO_CACHE: "1"},
        {"XDG_CACHE_HOME": "relative"},
        {"XDG_CACHE_HOME": "", "HOME": ""},
        {"XDG_CACHE_HOME": "", "HOME": "/nowhere"},
        {"JAVA_HOME": "/nowhere"},
        {"SPARK_SUBMIT_OPTS": "-XX:SharedArchiveFile=mine.jsa"},
        {"JDK_JAVA_OPTIONS": "-Xshare:off"},
    ],
)
def test_there_is_none_without_a_place_or_a_java_or_where_the_user_says_so(
    environment: dict[str, str], jars: Path, changed: dict[str, str]
) -> None:
    assert archive_for({**environment, **changed}, {}, jars) is None


def test_there_is_none_of_a_spark_that_is_not_there(
    environment: dict[str, str], tmp_path: Path
) -> None:
    assert archive_for(environment, {}, tmp_path / "missing") is None


def test_java_is_told_of_an_archive_that_is_there_and_errors_are_still_heard(
    tmp_path: Path,
) -> None:
    archive = Archive(tmp_path / "spark-1.jsa", "")
    assert options_for(archive, {"SPARK_LAUNCHER_OPTS": "mine"}) == {}
    archive.file.touch()
    wanted = options_for(archive, {"SPARK_SUBMIT_OPTS": "-Dx=y"})
    assert wanted == {
        "SPARK_LAUNCHER_OPTS": QUICK_LAUNCHER,
        "SPARK_SUBMIT_OPTS": f"-Dx=y -XX:SharedArchiveFile={archive.file} "
        "-Xlog:disable -Xlog:all=error:stderr",
    }
    logging = options_for(archive, {"SPARK_SUBMIT_OPTS": "-Xlog:gc"})["SPARK_SUBMIT_OPTS"]
    assert logging == f"-Xlog:gc -XX:SharedArchiveFile={archive.file}"


def test_the_environment_is_as_before_when_java_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dx=y")
    monkeypatch.delenv("SPARK_LAUNCHER_OPTS", raising=False)
    archive = Archive(tmp_path / "spark-1.jsa", "")
    archive.file.touch()
    with quick_java(archive):
        assert "SharedArchiveFile" in os.environ["SPARK_SUBMIT_OPTS"]
    assert os.environ["SPARK_SUBMIT_OPTS"] == "-Dx=y"
    assert "SPARK_LAUNCHER_OPTS" not in os.environ


def test_so_many_are_kept_and_those_used_last(tmp_path: Path) -> None:
    files = [tmp_path / f"spark-{number}.jsa" for number in range(4)]
    for age, file in enumerate(files):
        file.touch()
        os.utime(file, (1_000 - age, 1_000 - age))
    touch(Archive(files[3], ""))
    assert sorted(tmp_path.glob("*.jsa")) == [files[0], files[3]]
    assert KEPT == 2


def test_a_folder_that_cannot_be_made_or_a_full_disk_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    assert make_in_background(Archive(tmp_path / "file" / "spark-1.jsa", "")) is None
    monkeypatch.setattr(making, "FREE_LEAST", 1 << 62)
    assert make_in_background(Archive(tmp_path / "cache" / "spark-1.jsa", "")) is None
    assert make_in_background(None) is None


def test_home_is_asked_where_no_folder_of_caches_is_named(tmp_path: Path) -> None:
    found = cache_folder({"HOME": str(tmp_path)})
    assert found is not None
    assert found.is_relative_to(tmp_path)
    assert found.name == "headrace"
