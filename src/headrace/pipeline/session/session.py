"""The Spark session of a pipeline: its settings, and where its output goes."""

from __future__ import annotations

import importlib
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...errors import ConfigurationError
from ..spark_errors import sentence_of
from .class_archive import OPTIONS as _JAVA_OPTIONS
from .class_archive import archive_of, listing
from .quick_path import FOLDER as QUICK_PATH
from .spark_log import opened

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from ..model import Declared


JAVA_MIN: Final = 17
JAVA_ANSWERS_S: Final = 60.0
LEASE_THREAD: Final = "lease of "
"""What the names of threads begin with that hold a lease, or wait for one."""

FAST_LOCAL_CHECKPOINT: Final = {
    # Spark's default for local disks starts processes to set permissions: a third of a small batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}

_LOCAL: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}
_ALWAYS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.sql.session.timeZone": "UTC",
    # A worker that crashes says in which line of which file.
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    # Spark writes options into plans and event logs, and hides only names that it knows for secret.
    "spark.sql.redaction.options.regex": "(?i)url|servers|seed|jwt",
}

_LOG: Final = logging.getLogger("headrace.pipeline")
_IMPORTED: Final = (
    "pyspark.sql.session",
    "pyspark.sql.streaming",
    "pyspark.sql.functions",
    "pyspark.cloudpickle",
    "headrace.spark.source",
    "headrace.spark.sink.writer",
)

QUICK_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What lets a Java start quickly that has little to do: code is compiled soon rather than well."""

LOCAL_SETTINGS: Final[Mapping[str, str]] = {**_ALWAYS, **_LOCAL}
"""What a session on this machine has where a file says nothing."""


def check_java() -> None:
    """Raise ConfigurationError unless a Java runtime for Spark is installed."""
    remedy = (
        f"install a Java runtime, {JAVA_MIN} or newer (on Debian and Ubuntu: default-jre-headless)"
    )
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    version = re.match(r"(?:1\.)?(\d+)", version_of_java(os.environ))
    if version is not None and int(version[1]) >= JAVA_MIN and os.access(str(java), os.X_OK):
        return  # it need not be started to say so
    if java is None or not Path(java).exists():
        where = f" in JAVA_HOME={home}" if home else ""
        raise ConfigurationError(f"Spark needs Java, which was not found{where}; {remedy}.")
    try:
        said = subprocess.run(  # noqa: S603
            [java, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=JAVA_ANSWERS_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigurationError(f"{java} cannot be run: {why}; {remedy}.") from None
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    if found is None:
        raise ConfigurationError(
            f"{java} does not say its version, so it is no Java for Spark; {remedy}."
        )
    if int(found[1]) < JAVA_MIN:
        raise ConfigurationError(
            f"Spark needs Java {JAVA_MIN} or newer, {java} is {found[1]}; {remedy}."
        )


def version_of_java(environment: Mapping[str, str]) -> str:
    """By Java's own file, without starting it; "" where there is none."""
    home = environment.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return ""
    try:
        file = Path(java).resolve().parent.parent / "release"
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    return found[1] if found is not None else ""


def _import_ahead() -> None:
    """Import what a run imports anyway, while Java starts."""
    for name in _IMPORTED:
        try:
            importlib.import_module(name)
        except Exception as error:  # whoever needs it says what is wrong
            _LOG.debug("%s was not imported: %s", name, error)
            return


def settings_of(declared: Declared) -> dict[str, str]:
    """Spark's settings: ours, then those of the file."""
    settings = dict(_ALWAYS)
    if declared.master.startswith("local"):
        settings |= _LOCAL
    if declared.fast_local_checkpoint:
        settings |= FAST_LOCAL_CHECKPOINT
    return settings | dict(declared.conf)


def start_session(
    name: str,
    master: str,
    settings: Mapping[str, str],
    log: Path,
    folder: Path | None = None,
    *,
    keeps_classes: bool = False,
) -> SparkSession:
    """Start a session whose output, and that of all its processes, goes to ``log``.

    Signals to the group of this process do not reach Java and its Python workers; they end with this process.

    Args:
        folder: where Python files of the pipeline lie; workers find modules there.
        keeps_classes: whether Java lists what it loads, if there is no archive of its classes.

    Raises:
        ConfigurationError: the executors' Python is not to be found here, or Spark refuses the settings.
    """
    # Whole, before another thread imports parts of it: its modules import each other in circles, and of two
    # threads that do so at once one would find a module that is half made.
    importlib.import_module("pyspark")
    _name_python(master, settings)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    is_own = master.startswith("local") and os.environ["PYSPARK_PYTHON"] == sys.executable
    _put_on_path(([str(folder)] if folder is not None else []) + [QUICK_PATH] * is_own)
    # Spark's warning about the version of pandas, repeated by each of its modules.
    warnings.filterwarnings("ignore", category=FutureWarning, message="PySpark does not yet")
    log.parent.mkdir(parents=True, exist_ok=True)
    if is_own:
        settings = {"spark.python.daemon.module": DAEMON, **settings}  # another one may not have it
    settings = _with_layout(settings)
    if master.startswith("local"):
        settings = _with_classes(settings, keeps_classes=keeps_classes)
    is_ours = not master.startswith("sc:")  # a server of Spark Connect is none of our processes
    with listing(settings.get(_JAVA_OPTIONS, "")), _output_to(log):
        threading.Thread(target=_import_ahead, name="imports", daemon=True).start()
        if is_ours:
            # Of the small Java that only says how the large one is started.
            os.environ.setdefault("SPARK_LAUNCHER_OPTS", QUICK_JAVA)
            with _said_by_spark(log):
                shielded_context(name, master, settings)
        from pyspark.sql import SparkSession

        _log_errors_to(log)
        builder = SparkSession.builder.master(master).appName(name)
        for key, value in settings.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()


def _put_on_path(folders: list[str]) -> None:
    """Let Spark's Python processes find modules there."""
    if not folders:
        return
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [each for each in before if each and each not in folders]
    os.environ["PYTHONPATH"] = os.pathsep.join([*folders, *kept])


@contextmanager
def _said_by_spark(log: Path) -> Iterator[None]:
    """Settings that Java or Spark refuses are a mistake in the file, told in a sentence."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkRuntimeError

    try:
        yield
    except (Py4JJavaError, PySparkRuntimeError) as error:
        raise ConfigurationError(
            f"Spark does not start: {sentence_of(error)} ([spark.conf]; {log} has more)"
        ) from error


def _log_errors_to(log: Path) -> None:
    """What PySpark says in JSON of each error, beside raising it, goes to ``log`` and not to the terminal."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logger = PySparkLogger.getLogger(name)
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
            handler.close()
        logger.addHandler(_LogHandler(log))
    root = logging.getLogger()
    if not root.handlers:  # Py4J's words of a lost Java would make one, and go to the terminal
        root.addHandler(_Sorted(_LogHandler(log)))


class _Sorted(logging.Handler):
    """What Python's own last resort does, but what Py4J and PySpark say goes to their log.

    So does what the lease's own connection and loop say: who holds a lease is told by events, and advice for
    those who write handlers is none for those who run a pipeline.
    """

    def __init__(self, log: logging.Handler) -> None:
        super().__init__()
        self._spark_log = log

    def emit(self, record: logging.LogRecord) -> None:
        if (
            record.name == "root"
            or record.name.startswith(("py4j", "pyspark"))
            or str(record.threadName).startswith(LEASE_THREAD)
        ):
            self._spark_log.handle(record)
        elif logging.lastResort is not None and record.levelno >= logging.lastResort.level:
            logging.lastResort.handle(record)


class _LogHandler(logging.Handler):
    """Writes to a log by the way that is open at the time."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            with os.fdopen(opened(self._log), "a", encoding="utf-8") as file:
                file.write(f"{self.format(record)}\n")
        except OSError:
            self.handleError(record)


def _with_layout(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings with ours of Java's log lines, unless the user has some."""
    options = settings.get(_JAVA_OPTIONS, "")
    layout = Path(__file__).with_name("log4j2.properties")
    users = Path(os.environ.get("SPARK_CONF_DIR", "")) / "log4j2.properties"
    if (
        "log4j" in options
        or not layout.is_file()
        or (os.environ.get("SPARK_CONF_DIR") and users.is_file())
    ):
        return dict(settings)
    given = f"-Dlog4j2.configurationFile={layout.as_uri()}"
    return {**settings, _JAVA_OPTIONS: f"{options} {given}".strip()}


def _with_classes(settings: Mapping[str, str], *, keeps_classes: bool) -> dict[str, str]:
    """The settings with an archive of Java's classes, or with a list of them to make one of."""
    archive = archive_of(settings, os.environ)
    given = ""
    if archive is not None and archive.is_ready():
        given = archive.use()
    elif archive is not None and keeps_classes:
        given = archive.record(time.time())
    if not given:
        return dict(settings)
    return {**settings, _JAVA_OPTIONS: f"{settings.get(_JAVA_OPTIONS, '')} {given}".strip()}


def _name_python(master: str, settings: Mapping[str, str]) -> None:
    """Say which Python runs Spark's workers: Java starts them, and would use any ``python3`` it finds.

    Executors run the tasks of a source that is found by name with the driver's Python, not with that of other
    tasks. So there is one path for both, and on a cluster it has to be good on all machines.

    Raises:
        ConfigurationError: here it is not.
    """
    given = settings.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    if master.startswith("local"):
        os.environ["PYSPARK_PYTHON"] = given or sys.executable
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        return
    python = given or sys.executable
    if os.sep in python and not Path(python).exists():
        folder = python.partition(os.sep)[0]
        remedy = (
            f"ln -s {sys.prefix} {folder}" if not Path(python).is_absolute() else "install it there"
        )
        raise ConfigurationError(
            f"the executors' Python is {python}, and it has to be here, too, as Spark runs parts of a source "
            f"on the driver: {remedy}"
        )
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Processes started meanwhile inherit ``log`` as their output."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    target = opened(log)
    try:
        os.dup2(target, 1)
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        for descriptor in (*kept, target):
            os.close(descriptor)


DAEMON: Final = f"{__package__}.python_daemon"
"""What forks Spark's Python workers (``spark.python.daemon.module``)."""


def shielded_context(name: str, master: str, settings: Mapping[str, str]) -> SparkContext:
    """A context, that of this process if it has one; a Java that is started for it is shielded."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf().setMaster(master).setAppName(name).setAll(list(settings.items()))
    if SparkContext._gateway is not None:  # its Java runs already
        return SparkContext.getOrCreate(conf)
    # A session of its own keeps signals to the group away, also while Java starts.
    launch: Any = launch_gateway  # it has no types
    gateway = launch(conf, {"start_new_session": True})
    signals = gateway.jvm.sun.misc
    signals.Signal.handle(signals.Signal("TERM"), signals.SignalHandler.SIG_IGN)
    return SparkContext(conf=conf, gateway=gateway)
