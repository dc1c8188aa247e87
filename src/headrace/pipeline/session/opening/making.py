"""Makes the archive of Spark's classes: in the background, at the lowest priority, once.

``python -m headrace.pipeline.session.opening.making FILE`` is the process that does.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
import threading
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from .classes import NO_CACHE, Archive, touch

FREE_LEAST: Final = 1 << 30
"""Bytes that have to be free on the disk of the cache."""
WITHIN_S: Final = 900.0
LOWEST: Final = 19
AFTER_S: Final = 30.0
"""By then the first rows of a run are written."""
MEMORY: Final = "HEADRACE_ARCHIVE_MEMORY"


def make_in_background(archive: Archive | None) -> subprocess.Popen[bytes] | None:
    """Begin to make an archive that is not there. The process goes on when this one ends.

    None where there is nothing to make, or nowhere to make it.
    """
    if archive is None:
        return None
    if archive.is_there:
        touch(archive)
        return None
    try:
        archive.file.parent.mkdir(parents=True, exist_ok=True)
        space = os.statvfs(archive.file.parent)
        if space.f_bavail * space.f_frsize < FREE_LEAST:
            return None
        environment = {**os.environ, NO_CACHE: "1", MEMORY: archive.memory}
        for name in ("SPARK_SUBMIT_OPTS", "PYTHONPATH", "PYSPARK_GATEWAY_PORT"):
            environment.pop(name, None)
        return subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", __name__, str(archive.file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd=archive.file.parent,
            env=environment,
        )
    except OSError:
        return None


def make_soon(archive: Archive | None) -> None:
    """Make it when the run has begun, or at its end if that comes sooner."""
    if archive is None:
        return
    timer = threading.Timer(AFTER_S, make_in_background, [archive])
    timer.daemon = True
    timer.start()

    def at_the_end() -> None:
        if not timer.finished.is_set():
            timer.cancel()
            make_in_background(archive)

    atexit.register(at_the_end)


def make(file: Path, memory: str) -> None:
    """Run a session, and keep the classes of its Java as it ends."""
    from ..session import LOCAL_SETTINGS, start_session
    from .exercise import exercise

    with tempfile.TemporaryDirectory(prefix="headrace-archive-") as name:
        folder = Path(name)
        written = folder / file.name
        options = f"{memory} -XX:ArchiveClassesAtExit={written} -Xlog:disable"
        os.environ["SPARK_SUBMIT_OPTS"] = options.strip()
        settings = {**LOCAL_SETTINGS, "spark.sql.warehouse.dir": str(folder / "warehouse")}
        spark: Any = start_session(
            "headrace archive", "local[1]", settings, folder / "spark.log", folder
        )
        try:
            exercise(spark, folder)
        finally:
            java: subprocess.Popen[bytes] = spark.sparkContext._gateway.proc
            spark.stop()
            assert java.stdin is not None
            java.stdin.close()  # it ends, and writes
            java.wait(WITHIN_S)
        _take(written, file)


def _take(written: Path, file: Path) -> None:
    """Put it into its place as a whole: another process may be about to read it."""
    import shutil

    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        shutil.copyfile(written, beside)
        beside.replace(file)
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def main(arguments: list[str]) -> int:
    """Make one archive, unless another process is at it or it is there by now."""
    import fcntl
    import signal

    (name,) = arguments
    file = Path(name)
    os.nice(LOWEST)
    signal.alarm(int(WITHIN_S))
    warnings.simplefilter("ignore")
    with (file.parent / ".archive.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return 0
        if not file.is_file():
            make(file, os.environ.get(MEMORY, ""))
            touch(Archive(file, ""))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
