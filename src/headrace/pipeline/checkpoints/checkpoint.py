"""Where queries keep how far they are: a directory per query and generation, and what Spark wrote there.

::

    <root>/<pipeline>/<query>/0001/                 a checkpoint of Spark
    <root>/<pipeline>/<query>/0001.start.json       where a generation made by `reset` begins
    <root>/<pipeline>/<query>/0001.totals.json      what its batches did, in sum
    <root>/<pipeline>/<query>/0001.losses.jsonl     messages that were gone before they were read
    <root>/<pipeline>/<query>/0001.aside.jsonl      what its sources have set aside
    <root>/<pipeline>/<query>/0001.ending           there while its last batch is finished

A reset adds a generation; what was there before stays. Everything here is read and written without Spark.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TextIO

from ...documents import read_json
from ...errors import ConfigurationError
from ...files import SHARED, write_whole
from ..model import Declared

_GENERATION: Final = re.compile(r"(\d{4,})(?:\.start\.json)?")
_BATCH: Final = re.compile(r"\d+")
_VERSION: Final = "v1"
_HOLDER_S: Final = 1.0
"""How long a lock's holder may take to write its number."""


@dataclass(frozen=True)
class Start:
    """Where a generation begins: ``earliest``, ``latest``, a ``sequence`` or a ``time`` (RFC 3339)."""

    kind: Literal["earliest", "latest", "sequence", "time"]
    value: str = ""

    def options(self, given: Mapping[str, str]) -> dict[str, str]:
        """The source's options, with the start replaced."""
        kept = {
            name: value
            for name, value in given.items()
            if not name.lower().startswith(("startingoffsets", "startingtimestamp"))
        }
        if self.kind == "time":
            return {**kept, "startingTimestamp": self.value}
        return {**kept, "startingOffsets": self.value or self.kind}

    def __str__(self) -> str:
        return f"{self.kind} {self.value}".strip()


def suffix_of(generation: int) -> str:
    """What sets the results of a generation apart."""
    return f"-g{generation}" if generation > 1 else ""


@dataclass(frozen=True)
class Generation:
    """One checkpoint of a query. ``starts``: where it begins, by source; none where the options say."""

    number: int
    path: str
    starts: Mapping[str, Start] = field(default_factory=dict)
    totals: Path | None = None

    @property
    def is_new(self) -> bool:
        """Whether no batch of it was planned; never below a URL, which is not looked at."""
        return "://" not in self.path and _newest(self, "offsets") < 0

    @property
    def keeps_state(self) -> bool | None:
        """Whether the query keeps state; None if no batch of it has ended here to tell."""
        if "://" in self.path or _newest(self, "commits") < 0:
            return None
        return (Path(self.path) / "state").is_dir()

    @property
    def suffix(self) -> str:
        """What sets the results of later generations apart: "" for the first, then ``-g2`` and so on."""
        return suffix_of(self.number)


@dataclass(frozen=True)
class LogEntry:
    """What Spark noted of a batch: its number, and for each source where it ends (JSON, or "")."""

    batch: int
    offsets: tuple[str, ...]


@dataclass(frozen=True)
class Checkpoint:
    """A query's place below the root. ``folder`` is None where the root is a URL."""

    query: str
    url: str
    folder: Path | None = None

    def current(self) -> Generation:
        """The newest generation; the first if there is none yet."""
        if self.folder is None:
            return Generation(1, f"{self.url}/0001")
        return self._generation(max(self._numbers(), default=1))

    def generations(self) -> list[Generation]:
        """All there are, the first one first."""
        return [self._generation(each) for each in sorted(set(self._numbers()))]

    def next_number(self) -> int:
        """Of the generation that would be added."""
        return max(self._numbers(), default=0) + 1

    def add(self, starts: Mapping[str, Start], number: int = 0) -> Generation:
        """Begin a new generation; the ones before stay. ``number``: its own, or 0 for the next one.

        Raises:
            ConfigurationError: the root is a URL, which is not written here.
        """
        if self.folder is None:
            raise ConfigurationError(
                f"the checkpoint is below {self.url}; a reset needs a directory of this machine"
            )
        number = max(number, self.next_number())
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({source: asdict(start) for source, start in starts.items()})
        write_whole(self.folder / f"{number:04d}.start.json", text, SHARED)
        return self._generation(number)

    def _numbers(self) -> list[int]:
        if self.folder is None or not self.folder.is_dir():
            return []
        found = (_GENERATION.fullmatch(each.name) for each in self.folder.iterdir())
        return [int(each[1]) for each in found if each]

    def _generation(self, number: int) -> Generation:
        assert self.folder is not None
        front = self.folder / f"{number:04d}"
        note = front.with_name(f"{front.name}.start.json")
        try:
            starts = {source: Start(**raw) for source, raw in load_json(note).items()}
        except TypeError:
            raise ConfigurationError(f"{note} is damaged: it does not say where to begin") from None
        totals = front.with_name(f"{front.name}.totals.json")
        return Generation(number, str(front), starts, totals)


def checkpoint_of(declared: Declared, query: str) -> Checkpoint:
    """A query's checkpoint."""
    if not declared.is_local_checkpoint:
        root = declared.checkpoint.rstrip("/")
        return Checkpoint(query, f"{root}/{declared.name}/{query}")
    folder = declared.checkpoint_path / declared.name / query
    return Checkpoint(query, str(folder), folder)


def losses_of(declared: Declared, generation: Generation, query: str) -> Path:
    """Where the sources of a query note the messages that they found missing; of this machine."""
    if declared.is_local_checkpoint:
        return Path(f"{generation.path}.losses.jsonl")
    return declared.file.parent.absolute() / declared.name / f"{query}.losses.jsonl"


def notes_of(declared: Declared, generation: Generation, query: str) -> Path:
    """``losses_of`` of a query that begins: its folder is there, if it can be made."""
    losses = losses_of(declared, generation, query)
    with contextlib.suppress(OSError):  # said when there is something to note
        losses.parent.mkdir(parents=True, exist_ok=True)
    return losses


def read_log(generation: Generation, kind: Literal["offsets", "commits"]) -> LogEntry | None:
    """The newest batch in Spark's log of planned (``offsets``) or finished (``commits``) batches.

    Raises:
        ConfigurationError: the log is cut off, or not of a version that is known here.
    """
    number = _newest(generation, kind)
    return _entry(Path(generation.path) / kind / str(number)) if number >= 0 else None


def _newest(generation: Generation, kind: Literal["offsets", "commits"]) -> int:
    """The number of the newest batch in a log, -1 if there is none."""
    folder = Path(generation.path) / kind
    if not folder.is_dir():
        return -1
    numbers = (int(each.name) for each in folder.iterdir() if _BATCH.fullmatch(each.name))
    return max(numbers, default=-1)


def read_end(generation: Generation) -> LogEntry | None:
    """The newest batch that is finished, with where it ended."""
    done = read_log(generation, "commits")
    if done is None:
        return None
    return _entry(Path(generation.path) / "offsets" / str(done.batch))


def interrupted(generation: Generation) -> int | None:
    """The number of the batch that was planned and is not finished: Spark runs it again."""
    planned = _newest(generation, "offsets")
    return planned if planned > _newest(generation, "commits") else None


def _entry(file: Path) -> LogEntry:
    lines = file.read_text(encoding="utf-8").splitlines()
    if not lines:
        raise ConfigurationError(
            f"{file} is empty: a power cut or a full disk cut it off. {_way_on(file)}"
        )
    if lines[0] != _VERSION:
        raise ConfigurationError(f"{file} is of version {lines[0]!r}; known is {_VERSION!r}")
    offsets = tuple("" if line == "-" else line for line in lines[2:])
    return LogEntry(int(file.name), offsets)


def _way_on(file: Path) -> str:
    """What to do about an empty file: one in ``offsets`` is written before a batch, in ``commits`` after."""
    if file.parent.name == "offsets" and (file.parent.with_name("commits") / file.name).exists():
        return "Its batch was finished, and where it ended is lost: put the checkpoint back from a copy"
    becomes = "is planned anew" if file.parent.name == "offsets" else "runs again"
    files = shlex.join(["rm", "-f", str(file), str(file.with_name(f".{file.name}.crc"))])
    return f"Delete it, and batch {file.name} {becomes}: {files}"


@contextmanager
def exclusively(declared: Declared, *, replay: str = "") -> Iterator[None]:
    """While nobody else on this machine runs or resets the pipeline; a URL is not guarded.

    Args:
        replay: only against another replay of this name. One may go on beside a run, of whose checkpoint and
            results it touches nothing.

    Raises:
        ConfigurationError: somebody does.
    """
    if not declared.is_local_checkpoint:
        yield
        return
    import fcntl

    folder = declared.checkpoint_path / declared.name
    folder.mkdir(parents=True, exist_ok=True)
    name = f"replay-{replay}.lock" if replay else "running.lock"
    with (folder / name).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            what = f"pipeline {declared.name!r}" if not replay else f"replay {replay!r}"
            raise ConfigurationError(f"{what} is running already, {_holder(lock)}") from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        try:
            yield
        finally:
            lock.truncate(0)  # or the next one's first moment would show this process


def _holder(lock: TextIO) -> str:
    """Who has the lock, as a clause. It is taken a moment before its holder is written there."""
    number, until = "", time.monotonic() + _HOLDER_S
    while time.monotonic() < until:
        lock.seek(0)
        number = lock.read()
        if number.isdecimal() and _is_alive(int(number)):
            return f"as process {number}"
        time.sleep(_HOLDER_S / 20)
    if not number:
        return "as a process that does not say its number"
    return f"as a process that is not seen from here (in its container it may be {number})"


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is another user's
        return True
    return True


def load_json(file: Path) -> dict[str, Any]:
    """A small JSON file; empty if there is none. Raises ConfigurationError: it is none of ours."""
    if not file.exists():
        return {}
    try:
        loaded = read_json(file.read_bytes())
    except ValueError as error:
        raise ConfigurationError(f"{file} is damaged: it is no JSON ({error})") from None
    if not isinstance(loaded, dict):
        raise ConfigurationError(f"{file} is damaged: it is no table of JSON")
    return loaded


class Skipped(NamedTuple):
    """One message, by the source of the pipeline that reads it, and where its code failed."""

    source: str
    stream: str
    sequence: int
    subject: str
    view: str
    reason: str


def file_of(generation: Generation) -> Path | None:
    """Where they are kept; None below a URL, which is not written here."""
    return None if "://" in generation.path else Path(f"{generation.path}.skipped.jsonl")


def read_skipped(generation: Generation) -> list[Skipped]:
    """What a query leaves out. Raises ConfigurationError: the file is damaged."""
    file = file_of(generation)
    if file is None or not file.is_file():
        return []
    try:
        return [
            Skipped(**read_json(line)) for line in file.read_text(encoding="utf-8").splitlines()
        ]
    except (ValueError, TypeError):
        raise ConfigurationError(
            f"{file} is damaged: each line names a message that the query leaves out"
        ) from None


def skip(generation: Generation, found: Skipped) -> None:
    """Leave this message out from now on."""
    file = file_of(generation)
    assert file is not None
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = dict.fromkeys([*read_skipped(generation), found])
    write_whole(file, "".join(json.dumps(each._asdict()) + "\n" for each in lines), SHARED)
