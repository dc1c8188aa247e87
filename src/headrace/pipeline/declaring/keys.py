"""Which keys the tables of a pipeline's file have, of what kind; read with every problem noted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ...spark.options.source import ACCEPTED as SOURCE_OPTIONS
from ...spark.options.source import parse_address
from ...spark.options.table import RefusedError
from ...spark.sink.options import ACCEPTED as SINK_OPTIONS
from ...toml_lines import Path
from ..model import (
    DEFAULT_RESTARTS,
    LEASE_SECONDS_MIN,
    NO_RESTARTS,
    Problem,
    RestartSettings,
    did_you_mean,
)
from ..triggers import duration, parse_trigger
from .document import Document


class _NotAcceptedError(ValueError):
    """A value of another kind; the text says which kind is accepted."""


class Key(NamedTuple):
    """One key: its name, how its value is read, and what it is for."""

    name: str
    read: Callable[[Any], Any]
    doc: str
    default: Any = None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _NotAcceptedError("a text")
    return value


def _filled_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _NotAcceptedError("a text that is not empty")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _NotAcceptedError("true or false")
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _NotAcceptedError("a whole number, at least 1")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list | tuple) or not all(isinstance(each, str) for each in values):
        raise _NotAcceptedError("a text or a list of texts")
    return tuple(values)


def _options(value: Any) -> dict[str, str]:
    """Options as Spark takes them: text."""
    if not isinstance(value, Mapping):
        raise _NotAcceptedError("a table of options")
    options = {}
    for name, given in value.items():
        if isinstance(given, bool):
            given = "true" if given else "false"
        if not isinstance(given, str | int | float):
            raise _NotAcceptedError(
                f"a table of texts, numbers and flags; {name!r} is of another type"
            )
        options[str(name)] = str(given)
    return options


def _duration(value: Any) -> float:
    if not isinstance(value, str):
        raise _NotAcceptedError("a duration such as '15s'")
    return duration(value)


def _lease_seconds(value: Any) -> float:
    seconds = _duration(value)
    if seconds < LEASE_SECONDS_MIN:
        raise ValueError(
            f"{value!r} is too short; accepted: {LEASE_SECONDS_MIN:g}s or more, as no server moves a pin "
            "within a second, and a shorter lease would not survive a pause of the server's disk"
        )
    return seconds


def _wait(value: Any) -> float:
    if value == "forever":
        return math.inf
    if not isinstance(value, str):
        raise _NotAcceptedError("a duration such as '10m', or 'forever'")
    return duration(value)


def _restart(value: Any) -> RestartSettings:
    """``{ attempts = 5, backoff = "1s", within = "10m" }``, each key or none; false for never."""
    if value is False:
        return NO_RESTARTS
    if not isinstance(value, Mapping):
        raise _NotAcceptedError("{ attempts = 5, backoff = '1s', within = '10m' } or false")
    names = ("attempts", "backoff", "within")
    for name in value:
        if name not in names:
            raise ValueError(f"it has no {name!r}{did_you_mean(name, names)}")
    attempts = value.get("attempts", DEFAULT_RESTARTS.attempts)
    if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 0:
        raise ValueError(f"attempts is {attempts!r}; accepted: a whole number, 0 for never")
    backoff_s = _duration(value["backoff"]) if "backoff" in value else DEFAULT_RESTARTS.backoff_s
    within_s = _duration(value["within"]) if "within" in value else DEFAULT_RESTARTS.within_s
    return RestartSettings(attempts, backoff_s, within_s)


def _watermark(value: Any) -> tuple[str, float]:
    """``{ column = "timestamp", delay = "10m" }``: both keys."""
    names = ("column", "delay")
    if not isinstance(value, Mapping):
        raise _NotAcceptedError("{ column = 'timestamp', delay = '10m' }")
    for name in value:
        if name not in names:
            raise ValueError(f"it has no {name!r}{did_you_mean(name, names)}")
    for name, example in (("column", "'timestamp'"), ("delay", "'10m'")):
        if name not in value:
            raise ValueError(f"{name} is missing: write {name} = {example}")
    column = value["column"]
    if not isinstance(column, str) or not column.strip():
        raise ValueError(f"column is {column!r}; accepted: the name of a column of the view")
    try:
        return column, _duration(value["delay"])
    except _NotAcceptedError as error:
        raise ValueError(f"delay is {value['delay']!r}; accepted: {error}") from None
    except ValueError as error:
        raise ValueError(f"delay: {error}") from None


def _one_of(*words: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in words:
            raise _NotAcceptedError(", ".join(map(repr, words)))
        return str(value)

    return read


def _function(value: Any) -> Any:
    if not callable(value) and not (isinstance(value, str) and ":" in value):
        raise _NotAcceptedError("'file.py:function'")
    return value


def _address(value: Any) -> tuple[str, int]:
    try:
        return parse_address(str(value) if isinstance(value, int) else _text(value))
    except RefusedError as error:
        raise _NotAcceptedError(str(error)) from None


def _expectations(value: Any) -> list[Any]:
    if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
        raise _NotAcceptedError("tables, each under [[views.<name>.expect]]")
    return value


_URL: Final = "nats://127.0.0.1:4222"

_LOGIN: Final = tuple(
    Key(name, _text, "Name and password, token, or file of credentials.", "")
    for name in ("user", "password", "token", "creds")
)

TABLES: Final[dict[str, tuple[Key, ...]]] = {
    "pipeline": (
        Key(
            "name",
            _filled_text,
            "What the pipeline is called; checkpoints are kept under it. Required.",
        ),
        Key(
            "checkpoint",
            _filled_text,
            "Directory or URL below which all checkpoints lie; from the file on.",
        ),
        Key("trigger", parse_trigger, "When queries run, unless their sink says otherwise."),
        Key(
            "on_failure",
            _one_of("stop", "continue"),
            "What the other queries do when one fails.",
            "stop",
        ),
        Key("fast_local_checkpoint", _flag, "Quicker checkpoints on a local disk.", default=False),
        Key(
            "restart",
            _restart,
            "How often a query that failed is begun again; for once only where it is given.",
        ),
        Key(
            "wait_for_server",
            _wait,
            "How long run and once wait for a server that is away; 'forever' for run's own.",
        ),
        Key("stop_timeout", _duration, "How long Ctrl-C waits for the running batch.", 60.0),
    ),
    "spark": (
        Key("master", _filled_text, "The Spark master.", "local[2]"),
        Key("conf", _options, "Spark's own settings.", {}),
    ),
    "sources": (
        Key("format", _filled_text, "Any format that Spark knows.", "jetstream"),
        Key("schema", _filled_text, "The columns, as DDL.", ""),
        Key("streaming", _flag, "false: a table, which each batch reads anew.", default=True),
        Key("options", _options, "Options of the format.", {}),
    ),
    "views": (
        Key("sql", _filled_text, "A query over sources and views."),
        Key("python", _function, "A function of DataFrames that returns one: 'file.py:function'."),
        Key(
            "from",
            _texts,
            "Sources and views it uses; default: those the SQL or the parameters name.",
        ),
        Key("expect", _expectations, "What rows are to fulfil.", []),
        Key(
            "otherwise",
            _one_of("fail", "quarantine"),
            "What happens to a message on which it fails.",
            "fail",
        ),
        Key("letters", _filled_text, "With quarantine: the subject of the dead letters.", ""),
        Key("rehearse", _flag, "A standby calls its Python for no rows, too.", default=False),
        Key(
            "watermark",
            _watermark,
            "The time of its rows, and how late they may be: { column = 'timestamp', delay = '10m' }.",
        ),
    ),
    "expect": (
        Key("name", _filled_text, "What it is called in reports."),
        Key("check", _filled_text, "A condition in SQL; a row passes where it is true."),
        Key(
            "otherwise",
            _one_of("drop", "keep", "fail", "quarantine"),
            "What happens to other rows.",
            "drop",
        ),
        Key("to", _filled_text, "With quarantine: the sink they go to; it has no 'from'.", ""),
    ),
    "sinks": (
        Key("from", _filled_text, "The source or view whose rows it gets.", ""),
        Key("format", _filled_text, "Any format that Spark can write a stream to.", ""),
        Key("python", _function, "Instead of a format: a function of each batch."),
        Key("mode", _one_of("append", "update", "complete"), "Spark's output mode.", "append"),
        Key("partition_by", _texts, "Columns that make folders.", ()),
        Key("trigger", parse_trigger, "When this query runs."),
        Key("after", _texts, "Sinks whose queries end first, in a run that ends.", ()),
        Key("rehearse", _flag, "A standby calls its function with no rows, too.", default=False),
        Key("options", _options, "Options of the format.", {}),
    ),
    "metrics": (
        Key("address", _address, "Serve the run's metrics at http://<host:port>/metrics."),
        Key("servers", _texts, "Server URLs: tell it how the run is, for the console.", ()),
        *_LOGIN,
    ),
    "lease": (
        Key(
            "kind",
            _one_of("bucket", "pinned"),
            "A key of a bucket, or a consumer's pinned client.",
            "bucket",
        ),
        Key("servers", _texts, "Server URLs.", (_URL,)),
        Key("bucket", _filled_text, "The bucket; with pinned, the stream.", "headrace-leases"),
        Key(
            "seconds",
            _lease_seconds,
            "How long it outlives its holder's last word; 2s or more.",
            15.0,
        ),
        Key("replicas", _count, "Replicas of the bucket, if it is made.", 1),
        *_LOGIN,
    ),
}


_OPTIONS: Final = {
    "sources": {each.name.lower(): each.name for each in SOURCE_OPTIONS.options},
    "sinks": {each.name.lower(): each.name for each in SINK_OPTIONS.options},
}


def _hint(kind: str, name: str, keys: Mapping[str, Key]) -> str:
    """What may be meant by a key that there is not: an option of the format is often written beside it."""
    if option := _OPTIONS.get(kind, {}).get(str(name).lower()):
        return f"; {option} is an option of jetstream: write it into the table options"
    return did_you_mean(name, keys)


class Reader:
    """Reads tables of a document, and notes what is wrong."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []

    def note(self, path: Path, text: str) -> None:
        """Something is wrong at ``path``."""
        self.problems.append(Problem(self.document.place(*path), text))

    def table(self, kind: str, raw: Any, path: Path) -> dict[str, Any]:
        """The values of a table by key, defaults in place; what is wrong is noted and left out."""
        keys = {key.name: key for key in TABLES[kind]}
        values = {name: key.default for name, key in keys.items()}
        if not isinstance(raw, Mapping):
            self.note(path, f"{'.'.join(path)} is no table")
            return values
        for name, value in raw.items():
            if name not in keys:
                self.note((*path, name), f"unknown key {name!r}{_hint(kind, name, keys)}")
                continue
            try:
                values[name] = keys[name].read(value)
            except _NotAcceptedError as error:
                self.note((*path, name), f"{name} is {value!r}; accepted: {error}")
            except ValueError as error:
                self.note((*path, name), f"{name}: {error}")
        return values

    def named(self, kind: str) -> dict[str, Any]:
        """The tables ``[kind.<name>]`` by name."""
        raw = self.document.tree.get(kind, {})
        if not isinstance(raw, Mapping):
            self.note((kind,), f"{kind} is no table; write [{kind}.<name>]")
            return {}
        return dict(raw)
