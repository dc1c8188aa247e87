"""The archive of Spark's classes: where it lies, for which Java, and what Java is told of it.

::

    <cache>/headrace/spark-<version>-java-<version>-<digest>.jsa

The digest is of all that has to be the same for Java to take it: the jars, Java's own release, the kind of
its memory. Java passes over one that does not fit.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NO_CACHE: Final = "HEADRACE_NO_CACHE"
"""Of the environment: neither use an archive, nor make one."""
KEPT: Final = 2
"""So many archives are kept, some 100 MB each: those that were used last."""
_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
_LAUNCHER: Final = "SPARK_LAUNCHER_OPTS"
_ELSEWHERE: Final = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", _OPTIONS)
_SAYS_ITSELF: Final = re.compile(r"-Xshare|SharedArchiveFile|ArchiveClassesAtExit|AOTCache|AOTMode")
_MEMORY: Final = re.compile(r"-XX:[+-]Use(?:\w+GC|Compressed\w+)\b|-XX:ObjectAlignmentInBytes=\d+")
_VERSION: Final = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
QUICK_LAUNCHER: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of the small Java that only says how the large one is started."""


@dataclass(frozen=True)
class Archive:
    """An archive that is there, or may be made.

    Attributes:
        memory: options of Java's memory that it is made with.
    """

    file: Path
    memory: str

    @property
    def is_there(self) -> bool:
        return self.file.is_file()


def jars_of_spark() -> Path:
    """Where they lie."""
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home()) / "jars"


def cache_folder(environment: Mapping[str, str]) -> Path | None:
    """Where this user's caches lie; None where there is no such place."""
    given = environment.get("XDG_CACHE_HOME", "")
    if given:
        return Path(given) / "headrace" if Path(given).is_absolute() else None
    home = environment.get("HOME", "")
    if not home or not Path(home).is_dir():
        return None
    folder = Path(home) / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    return folder / "headrace"


def archive_for(
    environment: Mapping[str, str], settings: Mapping[str, str], jars: Path
) -> Archive | None:
    """The archive for a session; None where none is to be used.

    Whoever gives Java options about archives knows what they want.

    Args:
        settings: of Spark.
        jars: where Spark's jars lie.
    """
    folder = cache_folder(environment)
    release = _release(environment)
    given = [settings.get("spark.driver.extraJavaOptions", "")]
    given += [environment.get(name, "") for name in _ELSEWHERE]
    said = " ".join(given)
    if environment.get(NO_CACHE) or folder is None or not release or _SAYS_ITSELF.search(said):
        return None
    try:
        names = sorted(f"{each.name} {each.stat().st_size}" for each in jars.glob("*.jar"))
    except OSError:
        return None
    spark = next((each for each in names if each.startswith("spark-core_")), "")
    found = re.search(r"-(\d[\w.-]*)\.jar", spark)
    version = _VERSION.search(release)
    if found is None or version is None:
        return None
    memory = " ".join(_MEMORY.findall(said))
    text = "\n".join((release, memory, str(jars), *names))
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    name = f"spark-{found[1]}-java-{version[1]}-{digest}.jsa"
    return Archive(folder / re.sub(r"[^\w.-]", "_", name), memory)


def options_for(archive: Archive | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables of the environment with which Java uses an archive that is there; those that change."""
    wanted = {}
    if _LAUNCHER not in environment:
        wanted[_LAUNCHER] = QUICK_LAUNCHER
    if archive is not None and archive.is_there:
        # What it would say of an archive that does not fit is no news; errors are.
        quiet = "-Xlog:disable -Xlog:all=error:stderr"
        given = environment.get(_OPTIONS, "")
        if "-Xlog" in given:
            quiet = ""
        wanted[_OPTIONS] = f"{given} -XX:SharedArchiveFile={archive.file} {quiet}".strip()
    return wanted


@contextmanager
def quick_java(archive: Archive | None) -> Iterator[None]:
    """A Java that is started meanwhile uses the archive."""
    wanted = options_for(archive, os.environ)
    before = {name: os.environ.get(name) for name in wanted}
    os.environ |= wanted
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def touch(archive: Archive) -> None:
    """Note that an archive is used, and remove those that were not for longest."""
    with suppress(OSError):
        os.utime(archive.file)
        others = [each for each in archive.file.parent.glob("spark-*.jsa") if each != archive.file]
        others.sort(key=lambda each: each.stat().st_mtime, reverse=True)
        for each in others[KEPT - 1 :]:
            each.unlink(missing_ok=True)


def version_of_java(environment: Mapping[str, str]) -> str:
    """By Java's own file, without starting it; "" where there is none."""
    found = _VERSION.search(_release(environment))
    return found[1] if found is not None else ""


def _release(environment: Mapping[str, str]) -> str:
    """What Java's own file says of it; "" where there is none."""
    home = environment.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return ""
    try:
        file = Path(java).resolve().parent.parent / "release"
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
