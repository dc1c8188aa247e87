"""A pipeline as it was declared: plain values, checked, each with its place in the file; and what is wrong
there.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from ..errors import HeadraceError
from .triggers import CONTINUOUS, Trigger


class Place(NamedTuple):
    """A line of a file, from 1; 0 is the file as a whole."""

    file: Path
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else str(self.file)


class Problem(NamedTuple):
    """One sentence about one place."""

    place: Place
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


class Unasked(Problem):
    """A server was not reached, refused the login, or did not answer in time: no mistake of the file."""

    __slots__ = ()


class PipelineError(HeadraceError):
    """A pipeline cannot be read or run.

    Attributes:
        problems: everything that was found, each with its place.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` if something known is near; then what is accepted."""
    names = list(known)
    lowered = {name.lower(): name for name in names}
    near = difflib.get_close_matches(word.lower(), lowered, n=1)
    hint = f"; did you mean {lowered[near[0]]!r}?" if near else ""
    accepted = f"; accepted: {', '.join(names)}" if names else ""
    return hint or accepted


Otherwise = Literal["drop", "keep", "fail", "quarantine"]
OnFailure = Literal["stop", "continue"]
FILE_SINKS: Final = frozenset({"parquet", "orc", "json", "csv", "text", "avro"})
"""Formats of Spark's own file sink, which skips the numbers of batches that its folder has."""
LEASE_SECONDS_MIN: Final = 2.0
"""The shortest lease: the pinned client has half of it, and no server moves a pin within a second. And a
renewal, sent every third of it, is to survive a pause of the server's disk."""
WRITTEN_AS_FILES: Final = FILE_SINKS | {"delta"}
"""Formats that write files below a path."""


@dataclass(frozen=True)
class Function:
    """A Python function that the file names, or holds.

    ``parameters``: those that are given by position; ``takes_more`` if it takes any number (``*rest``).
    """

    name: str
    parameters: tuple[str, ...]
    load: Callable[[], Callable[..., Any]]
    place: Place
    takes_more: bool = False


@dataclass(frozen=True)
class Source:
    """Where rows come from. ``schema``: DDL, or "" for the format's own. ``lines``: where options stand."""

    name: str
    place: Place
    format: str = "jetstream"
    schema: str = ""
    streaming: bool = True
    options: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, Place] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Expectation:
    """What each row of a view is to fulfil. A row passes where ``check`` is true; NULL is not.

    ``otherwise``: what happens to a row that does not. ``to``: the sink that quarantined rows go to.
    """

    name: str
    check: str
    place: Place
    otherwise: Otherwise = "drop"
    to: str = ""


@dataclass(frozen=True)
class Watermark:
    """Which column of a view is the time of its rows, and how late one may come: later ones are left out.

    State of windows, joins and duplicates is kept until the latest time that was seen, less the delay, has
    passed it.
    """

    column: str
    delay_s: float
    place: Place

    @property
    def delay(self) -> str:
        """The delay as Spark takes it."""
        return f"{round(self.delay_s * 1000)} milliseconds"


@dataclass(frozen=True)
class View:
    """A named transform: SQL over sources and views, or a function of their DataFrames.

    ``otherwise``: what happens to a message on which it fails; ``letters``: the subject that quarantined ones
    go to, as dead letters.

    ``inputs`` are their names; those of a function stand in the order of its parameters. ``rehearse``: a
    standby may call for no rows what the function hands to Spark. ``watermark`` holds for whoever reads the
    view, behind its expectations.
    """

    name: str
    place: Place
    sql: str = ""
    function: Function | None = None
    inputs: tuple[str, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    otherwise: Literal["fail", "quarantine"] = "fail"
    letters: str = ""
    rehearse: bool = False
    watermark: Watermark | None = None


@dataclass(frozen=True)
class Sink:
    """Where the rows of ``of`` go: one streaming query. "" means that expectations send rows here.

    ``after``: the queries that are done before this one begins, in a run that ends. ``rehearse``: a standby
    may call the function with no rows.
    """

    name: str
    place: Place
    of: str = ""
    format: str = ""
    mode: Literal["append", "update", "complete"] = "append"
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    function: Function | None = None
    trigger: Trigger = CONTINUOUS
    after: tuple[str, ...] = ()
    rehearse: bool = False
    lines: Mapping[str, Place] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Consent:
    """What a user has agreed to for one run.

    ``again``: rows are written again that were written before a checkpoint was lost. ``changes``: state goes
    on though what it is kept by has changed.
    """

    again: bool = False
    changes: bool = False


NO_CONSENT: Final = Consent()


@dataclass(frozen=True)
class LeaseSettings:
    """Who may run the pipeline: one at a time, the others stand by.

    ``seconds``: how long the lease outlives the last word of the runner that holds it.
    """

    place: Place
    servers: tuple[str, ...] = ("nats://127.0.0.1:4222",)
    bucket: str = "headrace-leases"
    seconds: float = 15.0
    kind: Literal["bucket", "pinned"] = "bucket"
    replicas: int = 1
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    creds: str = ""


@dataclass(frozen=True)
class RestartSettings:
    """How often a failed query is begun again.

    Attributes:
        attempts: at most so many times in ``within_s`` seconds; 0 for never.
        backoff_s: the wait before the first one; each further one waits twice as long, a minute at most.
    """

    attempts: int = 5
    backoff_s: float = 1.0
    within_s: float = 600.0


DEFAULT_RESTARTS: Final = RestartSettings()
NO_RESTARTS: Final = RestartSettings(attempts=0)


@dataclass(frozen=True)
class Publishing:
    """The server that is told how the running pipeline is."""

    place: Place
    servers: tuple[str, ...]
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    creds: str = ""


def connect_options(settings: LeaseSettings | Publishing, client: str) -> dict[str, Any]:
    """How to connect to the servers of ``settings``, as ``client``: what they do not give is left out."""
    named = {
        "user": settings.user,
        "password": settings.password,
        "token": settings.token,
        "credentials_file": settings.creds,
    }
    return {"name": client, **{key: value for key, value in named.items() if value}}


@dataclass(frozen=True)
class Declared:
    """A whole pipeline.

    ``checkpoint``: a directory or a URL; everything that must survive lies below it. ``metrics``: host and
    port where a run serves its metrics; ``published``: the server that it tells them. ``restart``,
    ``wait_for_server_s`` (``math.inf``: without end): None where the file does not say.
    """

    name: str
    file: Path
    place: Place
    checkpoint: str
    sources: Mapping[str, Source]
    views: Mapping[str, View]
    sinks: Mapping[str, Sink]
    master: str = "local[2]"
    conf: Mapping[str, str] = field(default_factory=dict)
    on_failure: OnFailure = "stop"
    fast_local_checkpoint: bool = False
    lease: LeaseSettings | None = None
    stop_timeout_s: float = 60.0
    restart: RestartSettings | None = None
    wait_for_server_s: float | None = None
    metrics: tuple[str, int] | None = None
    published: Publishing | None = None
    profile: str = ""

    def command(self, verb: str, *words: str) -> str:
        """``headrace pipeline VERB FILE …`` for this pipeline, as it is typed."""
        profile = ("--profile", self.profile) if self.profile else ()
        return shlex.join(["headrace", "pipeline", verb, str(self.file), *profile, *words])

    @property
    def is_local_checkpoint(self) -> bool:
        """Whether the checkpoint root is a directory of this machine."""
        return "://" not in self.checkpoint

    @property
    def checkpoint_path(self) -> Path:
        """The root, relative to the pipeline's file."""
        return (self.file.parent / self.checkpoint).absolute()
