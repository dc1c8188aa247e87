"""Java has Spark's classes out of an archive; whatever is wrong with one costs time and nothing else."""

from __future__ import annotations

import fcntl
import io
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError

import peers
from headrace.pipeline.session import class_archive
from headrace.pipeline.session.class_archive import (
    KEPT,
    OPTIONS,
    SIZE,
    TRIED_AGAIN_S,
    ClassArchive,
    archive_of,
    end_listing,
    is_whole,
    listing,
    lists_classes,
    make,
)
from waiting import until_here

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "pipeline_tests"
JARS = Path(peers.package("pyspark").__file__).parent / "jars"
RELEASE = 'IMPLEMENTOR="Debian"\nJAVA_VERSION="17.0.15"\n'


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Of a user with a Java and a Spark that are no more than files."""
    spark, java = tmp_path / "spark", tmp_path / "java"
    (spark / "jars").mkdir(parents=True)
    (spark / "jars" / "spark-core_2.13-4.3.0.jar").write_bytes(b"jar")
    (java / "bin").mkdir(parents=True)
    (java / "release").write_text(RELEASE)
    return {"HOME": str(tmp_path / "home"), "SPARK_HOME": str(spark), "JAVA_HOME": str(java)}


def there(environment: dict[str, str]) -> ClassArchive:
    found = archive_of({}, environment)
    assert found is not None
    return found


def put(archive: ClassArchive, content: bytes = b"classes") -> None:
    archive.file.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
    archive.file.write_bytes(content)
    archive.file.with_suffix(SIZE).write_bytes(b"%d" % len(content))
    for each in (archive.file, archive.file.with_suffix(SIZE)):
        each.chmod(0o600)


def test_an_archive_is_named_after_java_and_the_jars(
    environment: dict[str, str], tmp_path: Path
) -> None:
    before = there(environment).file
    assert before.name.startswith("spark-4.3.0-java-17.0.15-")
    assert before.is_relative_to(tmp_path / "home" / ".cache" / "headrace")
    assert there(environment).file == before
    (tmp_path / "java" / "release").write_text(RELEASE.replace("Debian", "Other"))
    of_another_java = there(environment).file
    (tmp_path / "spark" / "jars" / "added.jar").write_bytes(b"")
    assert len({before, of_another_java, there(environment).file}) == 3
    elsewhere = there({**environment, "XDG_CACHE_HOME": str(tmp_path / "cache")}).file
    assert elsewhere.is_relative_to(tmp_path / "cache" / "headrace")


@pytest.mark.parametrize(
    "given",
    [
        {"HOME": ""},
        {"HOME": "relative"},
        {"XDG_CACHE_HOME": "/a folder"},
        {"XDG_CACHE_HOME": "/a:b"},
        {"JAVA_HOME": "/nowhere"},
        {"SPARK_HOME": "/nowhere"},
        {"SPARK_CONF_DIR": "/etc/spark"},
        {"HADOOP_CONF_DIR": "/etc/hadoop"},
        {"PYSPARK_GATEWAY_PORT": "1"},
        {"JAVA_TOOL_OPTIONS": "-XX:SharedArchiveFile=mine.jsa"},
        {"SPARK_SUBMIT_OPTS": "-Xmx1g -Xshare:off"},
        {"JDK_JAVA_OPTIONS": "-javaagent:agent.jar"},
        {"_JAVA_OPTIONS": "-XX:AOTCache=mine.aot"},
    ],
    ids=str,
)
def test_what_is_the_users_own_is_left_alone(
    environment: dict[str, str], given: dict[str, str]
) -> None:
    assert archive_of({}, {**environment, **given}) is None


@pytest.mark.parametrize(
    "settings",
    [{OPTIONS: "-XX:ArchiveClassesAtExit=mine.jsa"}, {"spark.driver.extraClassPath": "mine.jar"}],
    ids=str,
)
def test_so_are_settings_of_the_file(environment: dict[str, str], settings: dict[str, str]) -> None:
    assert archive_of(settings, environment) is None
    assert archive_of({OPTIONS: "-Xmx1g"}, environment) is not None


@pytest.mark.parametrize("release", ["", 'JAVA_VERSION="17"\nJVM_VARIANT="Openj9"\n'])
def test_another_kind_of_java_gets_none(
    environment: dict[str, str], tmp_path: Path, release: str
) -> None:
    (tmp_path / "java" / "release").write_text(release)
    assert archive_of({}, environment) is None


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_what_others_can_write_is_not_used(environment: dict[str, str], mode: int) -> None:
    archive = there(environment)
    put(archive)
    assert archive.is_ready()
    for each in (archive.file, archive.file.with_suffix(SIZE), archive.file.parent):
        before = each.stat().st_mode
        each.chmod(mode)
        assert not archive.is_ready(), each
        each.chmod(before)
    archive.file.parent.chmod(mode)
    assert archive.record(time.time()) == ""


def test_what_is_of_another_user_is_not_used(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = there(environment)
    put(archive)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert not archive.is_ready()


def test_a_folder_that_others_can_exchange_is_not_used(
    environment: dict[str, str], tmp_path: Path
) -> None:
    archive = there({**environment, "XDG_CACHE_HOME": str(tmp_path / "shared")})
    put(archive)
    assert archive.is_ready()
    (tmp_path / "shared").chmod(0o1777)  # as /tmp: what is in there is its owner's to rename
    assert archive.is_ready()
    (tmp_path / "shared").chmod(0o777)
    assert not archive.is_ready()
    assert archive.record(time.time()) == ""


def test_one_that_has_lost_its_end_is_not_used(environment: dict[str, str]) -> None:
    archive = there(environment)
    put(archive)
    archive.file.write_bytes(b"class")
    assert not archive.is_ready()
    archive.file.with_suffix(SIZE).unlink()
    assert not archive.is_ready()


def test_classes_are_listed_where_an_archive_can_be_kept(
    environment: dict[str, str], tmp_path: Path
) -> None:
    archive = there(environment)
    listed = lists_classes(f"-Dname='a b' {archive.record(time.time())}")
    assert listed is not None
    assert listed.is_file()
    tried = archive.file.parent / "making"
    tried.touch()  # one is at it, or was killed
    assert archive.record(time.time())
    tried.write_text("no room")
    now = tried.stat().st_mtime
    assert archive.record(now + TRIED_AGAIN_S - 1) == ""
    assert archive.record(now + TRIED_AGAIN_S + 1)
    (tmp_path / "file").touch()  # in the place of a folder: nothing can be made below it
    assert there({**environment, "HOME": str(tmp_path / "file")}).record(now) == ""


class Ending:
    """A Java whose results are out: it answers or does not, and ends or does not."""

    stdin = io.BytesIO()
    pid = os.getpid()

    def __init__(self, options: str, java: str | Exception, ends: bool | KeyboardInterrupt) -> None:
        self.args, self.proc, self._java, self._ends = [options], self, java, ends
        self.jvm = type("Jvm", (), {"java": type("Java", (), {"lang": self})})

    @property
    def System(self) -> Ending:
        return self

    def getProperty(self, name: str) -> str:
        if isinstance(self._java, Exception):
            raise self._java
        return self._java

    def poll(self) -> None:
        return None

    def wait(self, timeout: float) -> int:
        if isinstance(self._ends, KeyboardInterrupt):
            raise self._ends
        if not self._ends:
            raise subprocess.TimeoutExpired("java", timeout)
        return 0


@pytest.mark.parametrize(
    ("java", "ends"),
    [("/java", False), (Py4JNetworkError("gone"), True), (ConnectionResetError(), True)],
    ids=["hangs", "is gone", "goes"],
)
def test_a_java_that_is_gone_or_hangs_lists_nothing(
    environment: dict[str, str], java: str | Exception, ends: bool
) -> None:
    archive = there(environment)
    end_listing(Ending(archive.record(time.time()), java, ends), is_wanted=True)
    assert names(archive) == []


def test_what_cannot_be_removed_is_no_error_of_the_test(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "home").touch()  # nothing below it can be removed
    archive = there(environment)
    end_listing(Ending(archive.use(), "/java", True), is_wanted=True)
    listing = f"-XX:DumpLoadedClassList={archive.file.with_suffix('.classes')}"
    end_listing(Ending(listing, "/java", True), is_wanted=False)


# -- with Java


@pytest.fixture
def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ClassArchive, str]]:
    """An archive that is to be made of a few classes, and the Java for it."""
    if not peers.java_is_there():
        peers.missing_peer("java", "install a Java runtime")
    (jar,) = JARS.glob("py4j-*.jar")
    monkeypatch.setenv("CLASSPATH", str(jar))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for each in class_archive._OPTIONS_OF_JAVA:
        monkeypatch.delenv(each, raising=False)
    archive = archive_of({}, os.environ)
    assert archive is not None
    yield archive, "java"


def listed_in(archive: ClassArchive, now: float | None = None) -> Path:
    found = lists_classes(archive.record(time.time() if now is None else now))
    assert found is not None
    found.write_text("java/lang/Object\njava/lang/String\npy4j/GatewayServer\n")
    return found


def said(java: str, *options: str) -> str:
    done = subprocess.run([java, *options, "-version"], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def names(archive: ClassArchive) -> list[str]:
    return sorted(each.name for each in archive.file.parent.iterdir())


def test_java_uses_what_was_made_and_passes_over_what_has_changed_without_a_word(
    real: tuple[ClassArchive, str], tmp_path: Path
) -> None:
    archive, java = real
    assert make(archive.file, listed_in(archive), java)
    assert archive.is_ready()
    assert names(archive) == sorted([archive.file.name, archive.file.with_suffix(SIZE).name])
    options = archive.use().split()
    assert "sharing" in said(java, *options, "-Xshare:on")
    whole = archive.file.read_bytes()
    plainly = said(java, "-Xshare:off").replace("interpreted", "mixed")
    for content in (
        whole[: len(whole) // 2] + b"changed" + whole[len(whole) // 2 + 7 :],
        b"of another Java" + whole[15:],
        b"",
    ):
        archive.file.write_bytes(content)
        assert said(java, *options) == plainly
    archive.file.unlink()
    assert said(java, *options) == plainly


def ended_after(java: str, options: str) -> None:
    """Have a Java with these options up, and end it as a test does."""
    gateway = [java, *options.split(), "py4j.GatewayServer", "--die-on-broken-pipe", "0"]
    with subprocess.Popen(gateway, stdin=-1, stdout=-1) as process:
        assert process.stdout is not None
        assert process.stdout.readline()  # it is up
        end_listing(type("Gateway", (), {"proc": process}), is_wanted=True)


def test_one_that_is_in_use_by_way_of_a_symbolic_link_stays(
    real: tuple[ClassArchive, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, java = real
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "link"))
    archive = there(dict(os.environ))
    assert make(archive.file, listed_in(archive), java)
    ended_after(java, archive.use())
    assert archive.is_ready()
    assert archive.file.is_relative_to(tmp_path / "link")


def test_one_that_is_passed_over_is_removed_and_made_again_the_next_day(
    real: tuple[ClassArchive, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, java = real
    assert make(archive.file, listed_in(archive), java)

    def ended(options: str) -> None:
        ended_after(java, options)

    ended(archive.use())
    assert archive.is_ready(), "it is in use"
    content = bytearray(archive.file.read_bytes())
    content[len(content) // 2] ^= 255
    archive.file.write_bytes(content)
    ended(archive.use())
    assert not archive.is_ready()
    now = time.time()
    assert not archive.record(now), "whatever Java has against it, it may have against the next one"
    assert make(archive.file, listed_in(archive, now + TRIED_AGAIN_S + 1), java)
    assert archive.is_ready()


def test_what_cannot_be_made_leaves_nothing_and_is_not_tried_again_that_day(
    real: tuple[ClassArchive, str], tmp_path: Path
) -> None:
    archive, _ = real
    listed = listed_in(archive)
    java = tmp_path / "java"
    java.write_text(
        "#!/bin/sh\nfor each; do case $each in *File=*.part) echo half > ${each#*=};; esac; done\nexit 1\n"
    )
    java.chmod(0o700)
    assert not make(archive.file, listed, str(java))
    assert names(archive) == ["making"]
    assert archive.record(time.time()) == ""


def test_a_list_that_fills_the_disk_leaves_room_to_note_that(
    real: tuple[ClassArchive, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, _ = real
    listed = listed_in(archive)

    def noted(folder: Path, why: str) -> None:
        assert not listed.exists(), "it takes the room"
        note(folder, why)

    note = class_archive._note
    monkeypatch.setattr(class_archive, "_note", noted)
    assert not make(archive.file, listed, str(tmp_path / "no java"))
    assert names(archive) == ["making"]


def test_one_at_a_time_makes_an_archive_and_those_used_last_stay(
    real: tuple[ClassArchive, str],
) -> None:
    archive, java = real
    listed, again = listed_in(archive), archive.file.with_suffix(".again.classes")
    again.write_bytes(listed.read_bytes())
    for number in range(KEPT + 1):
        older = ClassArchive(archive.file.with_name(f"older-{number}.jsa"), 17)
        put(older)
        os.utime(older.file, (number, number))
    left = archive.file.with_name(".killed.jsa.1.part")
    left.touch()
    with (archive.file.parent / "making").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert not make(archive.file, listed, java)
    assert not is_whole(archive.file)
    assert make(archive.file, again, java)
    kept = {each.stem for each in archive.file.parent.glob("*.jsa")}
    assert kept == {archive.file.stem, f"older-{KEPT}", f"older-{KEPT - 1}"}
    assert {each.stem for each in archive.file.parent.glob(f"*{SIZE}")} == kept
    assert not left.exists()


def killed() -> int:
    """The number of a process that was killed."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        process.kill()
    return process.pid


def list_of(archive: ClassArchive, number: int | str, age_s: float = 0.0) -> Path:
    listed = archive.file.with_suffix(f".{number}.classes")
    listed.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
    listed.write_text("java/lang/Object\n")
    os.utime(listed, (time.time() - age_s,) * 2)
    return listed


def test_lists_of_killed_tests_go_with_the_next_archive(real: tuple[ClassArchive, str]) -> None:
    archive, java = real
    left = [list_of(archive, killed()), list_of(archive, 1, TRIED_AGAIN_S + 60)]
    others = list_of(archive, os.getppid())
    assert make(archive.file, listed_in(archive), java)
    assert others.exists()
    assert not any(each.exists() for each in left)


def test_a_list_that_is_being_made_an_archive_of_outlives_the_next_test(
    environment: dict[str, str],
) -> None:
    archive = there(environment)
    waiting, left = list_of(archive, killed()), list_of(archive, killed(), 3 * 3600)
    assert archive.record(time.time())
    assert waiting.exists()
    assert not left.exists()


def test_a_java_that_does_not_come_up_leaves_no_list(environment: dict[str, str]) -> None:
    archive = there(environment)
    for ends in (KeyboardInterrupt, OSError):
        with pytest.raises(ends), listing(archive.record(time.time())):
            raise ends
        assert names(archive) == []
    with listing("-Xmx1g"), listing(archive.record(time.time())):
        assert len(names(archive)) == 1
    assert len(names(archive)) == 1


def test_an_interrupt_while_java_ends_leaves_no_list(environment: dict[str, str]) -> None:
    archive = there(environment)
    java = Ending(archive.record(time.time()), "/java", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        end_listing(java, is_wanted=True)
    assert names(archive) == []


def test_a_java_whose_maker_was_killed_is_waited_for_and_leaves_nothing(
    real: tuple[ClassArchive, str], tmp_path: Path
) -> None:
    archive, java = real
    hangs, told = tmp_path / "hangs", tmp_path / "told"
    os.mkfifo(told)
    hangs.write_text(
        "#!/bin/sh\nfor each; do case $each in *File=*.part) echo half > ${each#*=};; esac; done\n"
        f"read line < {told}\n"
    )
    hangs.chmod(0o700)
    command = [sys.executable, "-m", class_archive.__name__, str(archive.file)]
    with subprocess.Popen([*command, str(list_of(archive, killed())), str(hangs)]) as maker:
        until_here(lambda: list(archive.file.parent.glob(".*.part")), within=60)
        maker.kill()
    assert not make(archive.file, listed_in(archive), java)
    told.write_text("end\n")  # it is read: then it ends
    until_here(lambda: make(archive.file, listed_in(archive), java), within=60)
    assert names(archive) == sorted([archive.file.name, archive.file.with_suffix(SIZE).name])


def test_a_maker_that_has_waited_for_another_makes_none_beside_a_third(
    real: tuple[ClassArchive, str],
) -> None:
    archive, java = real
    listed = listed_in(archive)
    tried = archive.file.parent / "making"

    def ended_meanwhile(*_: object) -> None:
        tried.unlink()
        tried.touch()  # a third one has begun

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fcntl, "flock", ended_meanwhile)
        assert not make(archive.file, listed, java)
    assert not is_whole(archive.file)


@pytest.mark.spark
@pytest.mark.slow("tests/pipeline/session/test_class_archive.py")
@pytest.mark.timeout(900)
def test_a_test_of_a_pipeline_keeps_classes_and_the_next_one_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "orders")
    for each in class_archive._OPTIONS_OF_JAVA:
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    archive = archive_of({}, os.environ)
    assert archive is not None
    command = [sys.executable, "-m", "headrace", "pipeline", "test", "orders.toml"]
    for _ in range(2):
        done = subprocess.run(
            command, cwd=tmp_path / "orders", capture_output=True, text=True, check=True
        )
        assert done.stdout == "amounts: ok\nreturns: ok\n2 passed, 0 failed\n"
        assert done.stderr == ""
        until_here(archive.is_ready, within=600, every=1)
    until_here(lambda: "making" not in names(archive))
    assert names(archive) == sorted([archive.file.name, archive.file.with_suffix(SIZE).name])
