"""What kind of failure an error of Spark is (an accident, a server that is away, a mistake), what helps
against it, and which message was to blame.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Literal, NamedTuple

from ...errors import (
    AuthorizationError,
    ConnectionClosedError,
    DisconnectedError,
    HeadraceError,
    NoRespondersError,
    RequestTimeoutError,
)
from ..model import Declared, PipelineError, Place, Sink
from ..options import place_of_results
from ..spark_errors import sentence_of, text_of


@dataclass(frozen=True)
class Poison:
    """A message that code fails on.

    Attributes:
        source, stream, sequence, subject: which message.
        view: the view that fails; "" for the source itself.
        function: the function of the innermost frame of the user's code; "" for SQL.
        place: file and line of that frame, or of the view.
        cause: what it said.
    """

    source: str
    stream: str
    sequence: int
    subject: str
    view: str
    function: str
    place: Place
    cause: str

    def __str__(self) -> str:
        where = f"view {self.view!r}" if self.view else f"source {self.source!r}"
        if self.function:
            where += f", function {self.function}"
        return (
            f"message {self.sequence} of stream {self.stream!r}, subject {self.subject!r}, fails in {where} "
            f"({self.place}): {self.cause}"
        )


class Verdict(NamedTuple):
    """What a search has found. ``why``: why it has found nothing."""

    quarantined: tuple[Poison, ...] = ()
    failed: Poison | None = None
    why: str = ""


Kind = Literal["away", "worker", "java", "mistake", "other"]
"""``away``: a server does not answer. ``worker``: a Python process of Spark was lost. ``java``: its Java was,
and all queries with it. ``mistake``: another attempt changes nothing. ``other``: it may pass, as the failure
of a user's function may."""

_OURS: Final = re.compile(r"headrace\.[\w.]{0,150}?(_?\w{0,60}Error_?): ")
_AWAY: Final = frozenset(
    {
        "ConnectFailedError",
        "ConnectionClosedError",
        "DisconnectedError",
        "DisconnectedUnknownError",
        "NoRespondersError",
        "RequestTimeoutError",
        "TimeoutUnknownError",
        "_LaggingCopyError",
        "_StalledError",
    }
)
_MAY_PASS: Final = frozenset(
    {
        "JetStreamApiError",
        "OutcomeUnknownError",
        "ServerError",
        "StoreReadError",
        "StreamChangedError",
        "StreamResetError",
        "_TryAgainError",
    }
)
_WORKER: Final = re.compile(
    r"Python worker (?:exited|failed to connect|did not)|Timed out while waiting for the Python worker|"
    r"ExecutorLostFailure|java\.io\.EOFException|java\.net\.SocketException|Broken pipe|Connection reset"
)
_MISTAKE: Final = re.compile(
    r"\[USER_RAISED_EXCEPTION\]|\[STATE_STORE_(?:KEY|VALUE)_SCHEMA_NOT_COMPATIBLE|"
    r"\[STREAMING_STATEFUL_OPERATOR_NOT_MATCH|sources in the checkpoint offsets|OutOfMemoryError"
)
_OVERTAKEN: Final = ("a later run of batch ", ", and this is a writer of batch ")
"""What the sink says to a writer whose batch, or a later one, another writes."""
_PLANS: Final = ("AnalysisException", "ParseException", "IllegalArgumentException")
_ERROR_CLASS: Final = re.compile(r"\[(?!STREAM_FAILED|FOREACH_BATCH)[A-Z][A-Z0-9_.]+\]")
_UNANSWERED: Final = re.compile(r"An error occurred while calling [\w.$]+")
GONE: Final = "Spark's Java has gone: it was killed, or has crashed"
OUT_OF_MEMORY: Final = 52
"""Spark's own exit status for it."""
_CHANGING: Final = re.compile(r"0x[0-9a-f]+|\d+", re.IGNORECASE)


class SparkGoneError(HeadraceError):
    """Spark's Java has ended under its queries: it was killed, or has crashed."""


class JavaMemoryError(SparkGoneError):
    """Spark's Java had too little memory, and Spark has ended it."""

    SENTENCE: ClassVar = (
        "Java has run out of memory, and Spark has ended it. Give it more ([spark.conf], "
        '"spark.driver.memory" = "4g"), or let batches be smaller (maxOffsetsPerTrigger)'
    )

    def __init__(self) -> None:
        super().__init__(self.SENTENCE)


def gone(status: int | None) -> SparkGoneError:
    """What follows from the status with which Java has ended; None if that is not known."""
    return (
        JavaMemoryError()
        if status == OUT_OF_MEMORY
        else SparkGoneError(f"{GONE}; spark.log may say why")
    )


class Cause(NamedTuple):
    """Why a query failed, in a sentence. ``is_code``: a function or an expression of the user failed."""

    kind: Kind
    text: str
    is_code: bool = False

    @property
    def is_crash(self) -> bool:
        """A Python process has ended under its rows: it was killed, or code of the user ended it."""
        return self.kind == "worker" and "exited unexpectedly" in self.text

    @property
    def is_of_the_machine(self) -> bool:
        """A Python process was not there in time, before it had a row: the machine is busy."""
        return self.kind == "worker" and "failed to connect back" in self.text

    @property
    def is_overtaken(self) -> bool:
        """A later run of the batch, or a later batch, writes to the sink: another runner's, or a leftover."""
        return any(map(self.text.__contains__, _OVERTAKEN))

    @property
    def signature(self) -> str:
        """What is equal for equal failures, whatever numbers they name."""
        return f"{self.kind} {_CHANGING.sub('#', self.text)}"


def cause_of(error: BaseException) -> Cause:
    """The cause of an error, as Spark handed it on, or as it was raised here."""
    text = str(error.problems[0].text) if isinstance(error, PipelineError) else sentence_of(error)
    inner = error.__cause__ if isinstance(error, PipelineError) and error.__cause__ else error
    if _is_without_java(inner):
        return Cause("java", str(inner if isinstance(inner, JavaMemoryError) else gone(None)))
    kind = _kind_of(inner)
    return Cause(kind, text, kind == "other" and _is_code(text_of(inner), text))


def _kind_of(error: BaseException) -> Kind:
    if isinstance(error, HeadraceError):
        return _kind_of_ours(error)
    text = text_of(error)
    names = _OURS.findall(text)
    if names:
        last = names[-1]
        return "away" if last in _AWAY else "other" if last in _MAY_PASS else "mistake"
    if type(error).__name__ in _PLANS or _MISTAKE.search(text):
        return "mistake"
    if _WORKER.search(text) and "Traceback (most recent call last)" not in _last_cause(text):
        return "worker"
    return "other"


def _kind_of_ours(error: HeadraceError) -> Kind:
    if isinstance(error, AuthorizationError):
        return "mistake"
    away = (ConnectionClosedError, DisconnectedError, NoRespondersError, RequestTimeoutError)
    if isinstance(error, away):
        return "away"
    return "other" if type(error).__name__ in _MAY_PASS else "mistake"


def _is_without_java(error: BaseException) -> bool:
    """Whether a call found no Java, or has lost it. By names, so that nothing of Spark is imported here."""
    name = type(error).__name__
    return (
        isinstance(error, SparkGoneError)
        or name == "Py4JNetworkError"
        or (name == "Py4JError" and _UNANSWERED.fullmatch(text_of(error)) is not None)
    )


def _last_cause(text: str) -> str:
    """The innermost exception that Spark names, without the ones that carried it."""
    return text.rpartition("org.apache.spark.SparkException: ")[2]


def _is_code(text: str, sentence: str) -> bool:
    """Whether rows made it fail: a function of Python, or an expression of SQL."""
    if _OURS.search(text) or sentence.startswith("no space is left"):
        return False
    of_worker = text.startswith("An exception was thrown from the Python worker:")
    is_traced = "Traceback (most recent call last)" in text
    return of_worker or is_traced or _ERROR_CLASS.search(text) is not None


FULL_BYTES: Final = 16 * 1024 * 1024
"""A disk with less than that free counts as full."""


def remedy(
    declared: Declared, sink: Sink, cause: Cause, free: Callable[[Path], int] | None = None
) -> str:
    """A clause to put behind the cause; "" where there is nothing to add.

    Args:
        free: the bytes that are free on the disk of a directory; default: asks the system.
    """
    if "onStreamReset=continue" in cause.text:
        return f'in {declared.file}, among the options of its source: onStreamReset = "continue"'
    if "new checkpoint" in cause.text or "headrace pipeline reset" in cause.text:
        return f"the command: {declared.command('reset', '--query', sink.name, '--to', 'earliest')}"
    if cause.text == "no space is left on the disk":
        full = [str(each) for each in _places(declared, sink) if (free or _free)(each) < FULL_BYTES]
        return f"full are: {', '.join(full)}" if full else ""
    return ""


def _places(declared: Declared, sink: Sink) -> list[Path]:
    """The directories that a query writes to: its checkpoint, its results, and Spark's own."""
    found = [declared.checkpoint_path] if declared.is_local_checkpoint else []
    results = place_of_results(declared, sink, "")
    if results and "://" not in results:
        found.append(Path(results))
    found.append(Path(declared.conf.get("spark.local.dir", "/tmp")))  # noqa: S108
    return found


def _free(folder: Path) -> int:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free
