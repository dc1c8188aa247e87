"""What a query was when it ran, noted in its checkpoint; and what a change of its file means for it.

A generation has one note: its sources, views and sink as they were declared, and what it keeps state by,
which only Spark knows. A change of what state is kept by would put two meanings into one table without an
error, so the query does not start; of other changes it is said that they hold for the rows from now on.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from ...documents import read_json
from ..graph import quarantined, sources_of, upstream
from ..model import Declared, Function, Problem, Sink, Source, View
from .checkpoint import Generation, checkpoint_of
from .folders import Folder, folder_of
from .results_folder import newest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE: Final = "headrace-query.json"
_FIELDS: Final = "spark.sql.debug.maxToStringFields"


@dataclass(frozen=True)
class Fingerprint:
    """A query at one time. ``state``: what it keeps state by, in the words of the Spark of that version."""

    sources: Mapping[str, str]
    views: Mapping[str, str]
    sink: Mapping[str, str]
    spark: str = ""
    state: tuple[str, ...] = field(default=())

    @property
    def text(self) -> str:
        return json.dumps({"v": 1, **asdict(self)})

    @classmethod
    def read(cls, folder: Folder) -> Self | None:
        """The note in a checkpoint; None if there is none, or another release has made it."""
        try:
            raw: dict[str, Any] = read_json(folder.read(FILE) or "{}")
            if raw.pop("v") != 1:
                return None
            return cls(**{**raw, "state": tuple(raw["state"])})
        except (ValueError, KeyError, TypeError):
            return None


def of_file(declared: Declared, sink: Sink) -> Fingerprint:
    """What the file alone says of a query."""
    view, expectations = quarantined(declared, sink)
    name = sink.of or view
    streams = [each for each in sources_of(declared, name) if each.streaming]
    sources = {each.name: _of_source(each) for each in streams}
    names = [each for each in upstream(declared, name) if each in declared.views]
    views = {each: _of_view(declared.views[each]) for each in names}
    rest = {"format": sink.format or "python", "mode": sink.mode}
    rest["partition_by"] = ", ".join(sink.partition_by)
    rest["checks"] = _digest([each.check for each in expectations])
    return Fingerprint(sources, views, rest)


def of_frame(declared: Declared, sink: Sink, frame: DataFrame, spark: SparkSession) -> Fingerprint:
    """What Spark knows of it, too."""
    from .plan_text import state_of

    state = tuple(state_of(plan_of(frame, spark)))
    known = of_file(declared, sink)
    return Fingerprint(known.sources, known.views, known.sink, spark.version, state)


def plan_of(frame: DataFrame, spark: SparkSession) -> str:
    """Spark's text of an analysed plan, with nothing left out."""
    before = spark.conf.get(_FIELDS)
    spark.conf.set(_FIELDS, "1000000")
    try:
        inner: Any = frame._jdf
        return str(inner.queryExecution().analyzed().toString())
    finally:
        spark.conf.set(_FIELDS, before or "25")


def noted(generation: Generation, spark: SparkSession | None = None) -> Fingerprint | None:
    """What a query was when it ran last; None if it has run no batch, or left no note."""
    folder = folder_of(generation.path, spark)
    if folder is None or newest(folder, "offsets") < 0:
        return None
    return Fingerprint.read(folder)


def note(generation: Generation, now: Fingerprint, spark: SparkSession) -> None:
    """Write it down."""
    folder = folder_of(generation.path, spark)
    assert folder is not None
    if Fingerprint.read(folder) != now:
        folder.write(FILE, now.text)


def changes(before: Fingerprint, now: Fingerprint) -> list[str]:
    """What has changed, as sentences; none that ``mixture`` tells."""
    said = []
    for kind, old, new in (
        ("source", before.sources, now.sources),
        ("view", before.views, now.views),
    ):
        added = [name for name in new if name not in old]
        removed = [name for name in old if name not in new]
        said += [f"{kind} {name!r} was added" for name in added]
        said += [f"{kind} {name!r} is gone" for name in removed]
        said += [
            f"{kind} {name!r} has changed" for name in new if old.get(name, new[name]) != new[name]
        ]
    said += [
        f"{key} of the sink was {before.sink.get(key, '') or 'none'}"
        for key, value in now.sink.items()
        if key != "checks" and before.sink.get(key, "") != value
    ]
    if before.sink.get("checks") != now.sink["checks"]:
        said.append("the expectations whose rows it gets have changed")
    return said


def mixture(
    declared: Declared, sink: Sink, before: Fingerprint, now: Fingerprint
) -> Problem | None:
    """Why a query must not go on with this checkpoint; None if it may."""
    anew = declared.command("reset", "--query", sink.name, "--to", "earliest")
    if len(before.sources) != len(now.sources):
        came = sorted(set(now.sources) - set(before.sources))
        went = sorted(set(before.sources) - set(now.sources))
        what = [f"{name!r} came" for name in came] + [f"{name!r} went" for name in went]
        return Problem(
            sink.place,
            f"query {sink.name!r} reads {len(now.sources)} sources, and its checkpoint is of "
            f"{len(before.sources)}: {', '.join(what)}. Spark cannot go on with that. Put it back, or begin "
            f"a new generation: {anew}",
        )
    if before.state == now.state or before.spark != now.spark:
        return None
    went = [each for each in before.state if each not in now.state] or list(before.state)
    came = [each for each in now.state if each not in before.state] or list(now.state)
    return Problem(
        sink.place,
        f"query {sink.name!r} kept state of {_some(went)} when it last ran, and would now keep "
        f"{_some(came)}: its results would have two meanings in one place. Put it back, or begin a new "
        f"generation: {anew}; or go on all the same: "
        f"{declared.command('run', '--accept-changes')} (or once)",
    )


def tell_changes(declared: Declared) -> tuple[list[Problem], list[str]]:
    """What has changed in each query since it last ran, as far as it is known without Spark."""
    problems, said = [], []
    for sink in declared.sinks.values():
        generation = checkpoint_of(declared, sink.name).current()
        before = noted(generation)
        if before is None:
            continue
        now = of_file(declared, sink)
        if problem := mixture(declared, sink, _without_state(before), now):
            problems.append(problem)
            continue
        found = changes(before, now)
        if not found:
            continue
        means = "the rows from now on are made by the new ones"
        if before.state:
            means += f"; it keeps state of {_some(before.state)}, and --plan says whether that still fits"
        said.append(f"query {sink.name} since it last ran: {', '.join(found)}; {means}")
    return problems, said


def _without_state(before: Fingerprint) -> Fingerprint:
    return Fingerprint(before.sources, before.views, before.sink)


def _some(state: tuple[str, ...] | list[str]) -> str:
    return (
        " and ".join(each if len(each) <= 160 else f"{each[:157]}..." for each in state) or "none"
    )


def _of_source(source: Source) -> str:
    """What rows come out of a source: not how it connects, nor how fast it reads."""
    options = {name.lower(): value for name, value in source.options.items()}
    what = ("stream", "streams", "path", "subjects", "subject", "bucket", "topic", "subscribe")
    named = [f"{key}={options[key]}" for key in what if key in options]
    return " ".join([source.format, *named, source.schema]).strip()


def _of_view(view: View) -> str:
    made = view.sql if view.function is None else _source_of(view.function)
    checks = [f"{each.check} {each.otherwise} {each.to}" for each in view.expectations]
    mark = view.watermark
    late = [f"watermark {mark.column} {mark.delay}"] if mark is not None else []
    return _digest([" ".join(made.split()), *view.inputs, *checks, *late])


def _source_of(function: Function) -> str:
    """The text of a view's function without its comments; what it calls is not looked at."""
    try:
        tree = ast.parse(function.place.file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return function.name
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == function.name:
            node.decorator_list = []
            return ast.unparse(node)
    return function.name


def _digest(texts: list[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
