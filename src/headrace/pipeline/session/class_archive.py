"""Classes of Spark in an archive: Java need not look for them in jars, read them and verify them.

A test of a pipeline for which there is no archive has Java list what it loads. When the results are out, a
process in the background (``python -m headrace.pipeline.session.class_archive``) has another Java keep these
classes in the user's cache. Local sessions that are started here use the archive after that, unless Java's
options or class path are the user's own.

An archive is code, so it is used only where nobody else can write. Its name is of the Java and the jars that
it was made with; other ones are kept as long as they are among those used last. Java passes over one that
does not fit, or has changed; but it crashes over one that has lost its end, so the size is written beside it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from ...files import PRIVATE, opened, replacing, write_whole

__all__ = ["ClassArchive", "archive_of", "end_listing", "listing", "make"]

OPTIONS: Final = "spark.driver.extraJavaOptions"
KEPT: Final = 3
"""So many archives, the one that was made last among them."""
TRIED_AGAIN_S: Final = 24 * 3600.0
"""What could not be made is tried again after so long."""

SIZE: Final = ".size"

_LISTING: Final = "-XX:DumpLoadedClassList="
_OPTIONS_OF_JAVA: Final = (
    "SPARK_SUBMIT_OPTS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
)
_CLASS_PATH: Final = (
    "SPARK_CONF_DIR",
    "HADOOP_CONF_DIR",
    "YARN_CONF_DIR",
    "SPARK_DIST_CLASSPATH",
    "SPARK_PREPEND_CLASSES",
)
_USERS_OWN: Final = re.compile(
    r"-Xshare|-XX:\S*(?:SharedArchive|ArchiveClasses|SharedClassList|LoadedClassList|AOT)|-(?:java)?agent"
)
_AOT_SINCE: Final = 24  # Java calls its archives so from then on, also where it complains of one
_NOT_QUOTED: Final = re.compile(r"[:\"'\\\s]")
_MAKING: Final = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xlog:disable",
    "-XX:-CreateCoredumpOnCrash",
    f"-XX:ErrorFile={os.devnull}",
)
_ENDS_S: Final = 30.0
_MADE_S: Final = 1800.0


@dataclass(frozen=True)
class ClassArchive:
    """Where the classes for a Java and its jars are, or may be put. ``java_feature``: 17, 21, 25."""

    file: Path
    java_feature: int

    def is_ready(self) -> bool:
        """Whether it is there, whole, and nobody else can have written it."""
        return is_out_of_reach(self.file.parent) and is_whole(self.file)

    def use(self) -> str:
        """Options for a Java that uses it."""
        with contextlib.suppress(OSError):  # a cache to read only serves as well
            os.utime(self.file)  # it is among those used last
        quiet = " -Xlog:aot*=off" if self.java_feature >= _AOT_SINCE else ""
        given = f"-XX:SharedArchiveFile={self.file} -XX:+VerifySharedSpaces"
        return f"{given} -Xshare:auto -Xlog:cds*=off{quiet}"

    def record(self, now: float) -> str:
        """Options for a Java that lists its classes; "" if none can be kept, or that has just been tried."""
        folder = self.file.parent
        tried = folder / "making"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            has_failed = tried.exists() and tried.stat().st_size
            if not is_out_of_reach(folder) or (has_failed and _age(tried, now) < TRIED_AGAIN_S):
                return ""
            _clear_lists(folder, now, older_s=2 * _MADE_S)
            listed = folder / f"{self.file.stem}.{os.getpid()}.classes"
            opened(listed, "w").close()
        except OSError:  # a full disk, or a folder to read only: Java starts as it does without
            return ""
        return f"{_LISTING}{listed}"


def is_ours(path: Path) -> bool:
    """Whether it is there, belongs to this user, and nobody else may write to it."""
    try:
        status = path.stat()
    except OSError:
        return False
    others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return status.st_uid == os.geteuid() and not others


def is_out_of_reach(folder: Path) -> bool:
    """Whether it ``is_ours``, and no other user but root can put another one in its place."""
    try:
        above = [each.stat() for each in folder.resolve(strict=True).parents]
    except OSError:
        return False
    return is_ours(folder) and all(
        each.st_uid in (0, os.geteuid())
        and (each.st_mode & stat.S_ISVTX or not each.st_mode & stat.S_IWOTH)
        for each in above
    )


def is_whole(archive: Path) -> bool:
    """Whether an archive has the size that it was made with, and both files are of this user alone."""
    size = archive.with_suffix(SIZE)
    if not is_ours(archive) or not is_ours(size):
        return False
    try:
        return size.read_bytes() == b"%d" % archive.stat().st_size
    except OSError:
        return False


def archive_of(settings: Mapping[str, str], environment: Mapping[str, str]) -> ClassArchive | None:
    """The archive for the Java that Spark will be started with here.

    None where there can be none: no such Java, no cache, or options or a class path of the user's own.
    """
    options = [settings.get(OPTIONS, ""), *(environment.get(each, "") for each in _OPTIONS_OF_JAVA)]
    if (
        any(_USERS_OWN.search(each) for each in options)
        or any(environment.get(each) for each in _CLASS_PATH)
        or "spark.driver.extraClassPath" in settings
        or "PYSPARK_GATEWAY_PORT" in environment
    ):
        return None
    folder, spark = _cache(environment), _spark(environment)
    if folder is None or spark is None:
        return None
    try:
        java = _java(environment)
        jars = sorted((spark / "jars").iterdir())
        described = [(each.name, each.stat()) for each in jars]
        is_configured = (spark / "conf").is_dir() and any((spark / "conf").iterdir())
    except OSError:
        return None
    if java is None or is_configured:  # with files in a folder of its class path Java keeps none
        return None
    home, release = java
    version = re.search(r'^JAVA_VERSION="((\d+)[^"]*)"', release, re.MULTILINE)
    if version is None or "openj9" in release.lower():
        return None
    said = [str(home), release, str(spark)]
    said += [f"{name} {status.st_size} {status.st_mtime_ns}" for name, status in described]
    digest = hashlib.sha256("\n".join(said).encode(errors="surrogateescape")).hexdigest()[:16]
    cores = (re.fullmatch(r"spark-core_[\d.]+-(.+)\.jar", name) for name, _ in described)
    of_spark = next((core[1] for core in cores if core is not None), "")
    name = f"spark-{of_spark}-java-{version[1]}-{digest}.jsa"
    file = folder / "headrace" / "spark-classes" / name
    return None if _NOT_QUOTED.search(str(file)) else ClassArchive(file, int(version[2]))


def _cache(environment: Mapping[str, str]) -> Path | None:
    given = environment.get("XDG_CACHE_HOME", "")
    if os.path.isabs(given):  # noqa: PTH117 (another one is to be passed over)
        return Path(given)
    home = environment.get("HOME", "")
    return Path(home) / ".cache" if os.path.isabs(home) else None  # noqa: PTH117


def _spark(environment: Mapping[str, str]) -> Path | None:
    if given := environment.get("SPARK_HOME"):
        return Path(given)
    found = find_spec("pyspark")
    return Path(found.origin).parent if found is not None and found.origin else None


def _java(environment: Mapping[str, str]) -> tuple[Path, str] | None:
    """Java's folder, and what it says of itself there. Raises OSError."""
    given = environment.get("JAVA_HOME")
    java = str(Path(given) / "bin" / "java") if given else shutil.which("java")
    if java is None:
        return None
    home = Path(java).resolve().parent.parent
    return home, (home / "release").read_text(encoding="utf-8", errors="replace")


def _age(file: Path, now: float) -> float:
    return abs(now - file.stat().st_mtime)


def lists_classes(options: str) -> Path | None:
    """Where a Java with these options lists what it loads."""
    found = re.search(rf"{_LISTING}(\S+)", options)
    return Path(found[1]) if found is not None else None


def is_passed_over(archive: Path, java: int) -> bool:
    """Whether a running Java, which was given the archive, does without; False where that cannot be seen."""
    try:
        mapped = Path(f"/proc/{java}/maps").read_text(errors="surrogateescape")
        return str(archive.resolve()) not in mapped  # the kernel has it without symbolic links
    except OSError:
        return False


def archive_in(options: str) -> Path | None:
    """The archive of ours that a Java with these options was given."""
    found = re.search(r"-XX:SharedArchiveFile=(\S+) -XX:\+VerifySharedSpaces", options)
    return Path(found[1]) if found is not None else None


def keep(listed: Path, java: str, class_path: str) -> None:
    """Begin to make the archive in the background; what hinders it leaves all as it is.

    Args:
        listed: what a Java has loaded, which has ended.
        class_path: as that Java had it.
    """
    name = listed.name.rsplit(".", 2)[0]
    archive = listed.with_name(f"{name}.jsa")
    command = [sys.executable, "-P", "-m", __name__, str(archive), str(listed), java]
    try:
        subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "CLASSPATH": class_path},
            process_group=0,  # a Ctrl-C is for what the user sees; and what is nice is so in this session
        )
    except OSError:
        _remove(listed)


@contextlib.contextmanager
def _alone(tried: Path) -> Iterator[int | None]:
    """One at a time makes archives, by a file that holds why the last one failed. None: not this one.

    The descriptor of the file is the lock, also for whoever inherits it.
    """
    with opened(tried, "a", PRIVATE) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        # One that has ended meanwhile has removed it: whoever comes next locks another file.
        is_there = tried.exists() and os.path.samestat(os.fstat(file.fileno()), tried.stat())
        yield file.fileno() if is_there else None


def make(archive: Path, listed: Path, java: str) -> bool:
    """Make the archive of a list of classes; ``CLASSPATH`` has where they are. Whether it is there now."""
    tried = archive.parent / "making"
    try:
        with _alone(tried) as lock:
            if lock is None:
                return False
            if not is_whole(archive):
                _clear(archive.parent, listed)
                _dump(archive, listed, java, lock)
            tried.unlink()
    except (subprocess.SubprocessError, OSError) as error:  # such as: no room is left
        _remove(listed)  # then there is for the note
        _note(archive.parent, str(error))
        return False
    finally:
        _remove(listed)
    return True


def _dump(archive: Path, listed: Path, java: str, lock: int) -> None:
    """Have Java make it, and try it. Raises OSError, SubprocessError.

    Java has the lock, too: it goes on where this process is killed, and whoever cleared up before its end
    would not find what it leaves.
    """
    with replacing(archive) as partial:
        given = f"-XX:SharedArchiveFile={partial}"
        dump = ["-Xshare:dump", f"-XX:SharedClassListFile={listed}", given]
        trial = ["-Xshare:on", "-XX:+VerifySharedSpaces", given, "-version"]
        for each in (dump, trial):
            subprocess.run(  # noqa: S603
                [java, *_MAKING, *each],
                check=True,
                capture_output=True,
                timeout=_MADE_S,
                pass_fds=(lock,),
            )
        partial.chmod(PRIVATE)
    write_whole(archive.with_suffix(SIZE), b"%d" % archive.stat().st_size)


def _note(folder: Path, why: str) -> None:
    """Have no archive made for a day."""
    with contextlib.suppress(OSError):  # what cannot be noted is tried again sooner
        (folder / "making").write_text(f"{why}\n", encoding="utf-8")


def _remove(file: Path) -> None:
    """Remove it where that can be done: a cache may be there to read only."""
    with contextlib.suppress(OSError):
        file.unlink(missing_ok=True)


def _clear(folder: Path, listed: Path) -> None:
    """Remove what killed ones have left, and archives that others were used after."""
    for each in folder.glob(".*.part"):
        each.unlink(missing_ok=True)
    _clear_lists(folder, time.time(), kept=listed)
    archives = sorted(folder.glob("*.jsa"), key=lambda each: each.stat().st_mtime, reverse=True)
    for each in archives[KEPT - 1 :]:
        each.unlink(missing_ok=True)
        each.with_suffix(SIZE).unlink(missing_ok=True)


def _clear_lists(
    folder: Path, now: float, *, older_s: float = 0.0, kept: Path | None = None
) -> None:
    """Remove lists of tests that are over and were killed.

    Args:
        older_s: how long ago Java has written to them at least: where others may make an archive now, a
            test that has ended in order may have left one to them.
        kept: the list that is needed.
    """
    for each in folder.glob("*.classes"):
        with contextlib.suppress(FileNotFoundError):  # somebody else was quicker
            age_s = _age(each, now)
            is_left = age_s >= older_s and not _is_running(each)
            if each != kept and (is_left or age_s > TRIED_AGAIN_S):
                each.unlink()


def _is_running(listed: Path) -> bool:
    """Whether the test that has begun this list runs, as far as its process has not got another's number."""
    number = listed.name.split(".")[-2]
    try:
        os.kill(int(number), 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError, ValueError):
        return False
    return True


@contextlib.contextmanager
def listing(options: str) -> Iterator[None]:
    """Start a Java with these options; if it does not come up, its list is removed."""
    try:
        yield
    except BaseException:
        if (listed := lists_classes(options)) is not None:
            _remove(listed)
        raise


def end_listing(gateway: Any, *, is_wanted: bool) -> None:
    """Let Spark's Java end, if it lists classes, and begin to keep them if they are ``is_wanted``.

    An archive that a running Java was given, and passes over, is removed. Another one is made by a test of
    the next day: Java may have a reason that stays, such as a heap beyond 32 GB.
    """
    java: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if java is None or java.stdin is None or java.poll() is not None:
        return
    options = " ".join(map(str, java.args)) if isinstance(java.args, list) else ""
    given = archive_in(options)
    if given is not None and is_passed_over(given, java.pid):
        _remove(given)
        _note(given.parent, "Java has passed over the archive")
    listed = lists_classes(options)
    if listed is None:
        return
    if not is_wanted:
        _remove(listed)
        return
    from py4j.protocol import Py4JError

    try:
        system = gateway.jvm.java.lang.System
        home, class_path = system.getProperty("java.home"), system.getProperty("java.class.path")
        java.stdin.close()  # it ends, and what it has listed is whole
        java.wait(_ENDS_S)
    except (
        Py4JError,
        OSError,
        subprocess.TimeoutExpired,
    ):  # it is gone, or hangs; the results are out
        _remove(listed)
        return
    except BaseException:  # Ctrl-C
        _remove(listed)
        raise
    keep(listed, str(Path(home) / "bin" / "java"), class_path)


if __name__ == "__main__":
    os.nice(19)
    sys.exit(not make(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
