"""What is wrong with a pipeline's sources and sinks: by their options and formats, and by what servers
say.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ...documents import read_json
from ...errors import (
    AuthorizationError,
    ConfigurationError,
    ConnectFailedError,
    HeadraceError,
    RequestTimeoutError,
)
from ...sink_markers import SPACE
from ...spark.links.control import Control
from ...spark.links.link import Link
from ...spark.options import Connection, SourceOptions
from ...spark.sink.layout import Column, Layout, lay_out
from ...spark.sink.target import target_of
from ...subjects import matches
from ..graph import quarantined, sources_of
from ..model import (
    FILE_SINKS,
    Declared,
    PipelineError,
    Place,
    Problem,
    Sink,
    Source,
    Unasked,
    did_you_mean,
)
from ..options import JETSTREAM, sink_options, source_options

_JETSTREAM: Final = "jetstream"
_FILES: Final = ("parquet", "orc", "json", "csv", "text", "avro", "xml", "delta")
_SOURCES: Final = (_JETSTREAM, *_FILES, "binaryfile", "kafka", "rate", "rate-micro-batch", "socket")
_TABLES: Final = (_JETSTREAM, *_FILES, "binaryfile", "kafka", "jdbc", "libsvm", "image")
_SINKS: Final = (_JETSTREAM, *_FILES, "kafka", "console", "memory", "noop")
_ELSEWHERE: Final = ("spark.jars", "spark.plugins", "spark.driver.extraclasspath", "spark.submit")
_URL: Final = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def check_formats(declared: Declared) -> Iterator[Problem]:
    """Formats that there are not, and files without a place or at one that cannot be written."""
    for source in declared.sources.values():
        known = _SOURCES if source.streaming else _TABLES
        yield from _check_format(declared, source, known)
        if source.format.lower() in FILE_SINKS and not _path(source):
            yield Problem(source.place, f"source {source.name!r}: option 'path' is missing")
    for sink in declared.sinks.values():
        if sink.function is None:
            yield from _check_format(declared, sink, _SINKS)
        if sink.format.lower() in FILE_SINKS:
            yield from _check_path(declared, sink)
    is_here = declared.is_local_checkpoint and declared.checkpoint
    if is_here and (why := unwritable(declared.checkpoint_path)):
        yield Problem(declared.place, f"checkpoint is {declared.checkpoint}: {why}")


def _check_format(
    declared: Declared, part: Source | Sink, known: tuple[str, ...]
) -> Iterator[Problem]:
    name = part.format.lower()
    is_elsewhere = any(key.lower().startswith(_ELSEWHERE) for key in declared.conf)
    if not name or name in known or "." in name or is_elsewhere:
        return
    if importlib.util.find_spec(f"pyspark_{name}") is not None:  # Spark finds it by this name
        return
    kind = "source" if isinstance(part, Source) else "sink"
    shown = [each for each in known if each != "binaryfile"]
    hint = did_you_mean(part.format, shown)
    if not hint.startswith("; accepted"):
        hint += f"; there are: {', '.join(shown)}"
    text = f"{kind} {part.name!r}: there is no format {part.format!r} here{hint}"
    yield Problem(part.place, f"{text}. A format of a package needs it in spark.jars.packages")


def _check_path(declared: Declared, sink: Sink) -> Iterator[Problem]:
    path = _path(sink)
    if not path:
        text = f"sink {sink.name!r}: option 'path' is missing, the folder that {sink.format} files go to"
        yield Problem(sink.place, text)
    elif not _URL.match(path) and (why := unwritable(declared.file.parent.absolute() / path)):
        place: Place = next(
            (at for name, at in sink.lines.items() if name.lower() == "path"), sink.place
        )
        yield Problem(place, f"sink {sink.name!r}: path is {path}: {why}")


def _path(part: Source | Sink) -> str:
    return next((value for name, value in part.options.items() if name.lower() == "path"), "")


def unwritable(folder: Path) -> str:
    """Why a folder cannot be made or written here; "" if it can. Nothing is changed."""
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        return f"{there} is a file, no folder"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"{there} cannot be written by this user"
    return ""


_QUOTED: Final = re.compile(r"option '([^']+)'|'([^']+)'")
_WHO: Final = re.compile(r"^jetstream (?:source|sink): ")
_MARKERS: Final = f"{SPACE}*.*.*"
_FEW: Final = 64  # the most that a bucket keeps of a key
_NO_COLUMNS: Final = Layout("raw", -1, -1, -1, -1, -1, (), ())
"""The columns of a sink's rows, which only Spark knows."""


@dataclass(frozen=True)
class Use:
    """A source or a sink that uses a server.

    Attributes:
        lines, place: where its options stand, and itself.
        what: for instance ``reading ORDERS``.
        publishes: subjects that it must be allowed to publish to.
        look: asks the server about its streams. Returns sentences; raises HeadraceError.
    """

    connection: Connection
    lines: Mapping[str, Place]
    place: Place
    what: str
    publishes: tuple[str, ...]
    look: Callable[[Link], list[str]]

    def problem(self, text: str) -> Problem:
        """The problem, in the line of the option that its text names."""
        return problem_in(self.lines, self.place, text)


def problem_in(lines: Mapping[str, Place], place: Place, text: str) -> Problem:
    """The problem, in the line of the option that its text names; else where the part stands."""
    found = _QUOTED.search(text)
    name = (found[1] or found[2]).lower() if found else ""
    at = {option.lower(): line for option, line in lines.items()}.get(name, place)
    return Problem(at, _WHO.sub("", text))


def ours(declared: Declared) -> list[Source | Sink]:
    """The sources and sinks that are streams."""
    parts: list[Source | Sink] = [*declared.sources.values(), *declared.sinks.values()]
    return [each for each in parts if each.format == JETSTREAM]


def use_of(declared: Declared, each: Source | Sink) -> Use:
    """How a source or a sink uses its server. Raises ConfigurationError if its options are wrong."""
    if isinstance(each, Source):
        return _reading(each)
    return _writing(each, each.mode == "append" and _is_one_task(declared, each))


def _reading(source: Source) -> Use:
    options = source_options(source)

    def look(link: Link) -> list[str]:
        found = []
        for stream in options.streams:
            control = Control(link, stream)
            state = control.stream_info().state
            found.append(f"stream {stream} has {state.messages:,} messages")
            if not options.include_markers and control.has_subject(_MARKERS):
                found.append(
                    f"stream {stream} has markers of sinks, which are no rows (includeMarkers)"
                )
        return found

    what = f"reading {', '.join(options.streams)}"
    needed = tuple(_needed(options))
    return Use(options.connection, source.lines, source.place, what, needed, look)


def _is_one_task(declared: Declared, sink: Sink) -> bool:
    """Whether the rows of a sink come from one task, as far as its sources say; views may shuffle."""
    sources = sources_of(declared, sink.of or quarantined(declared, sink)[0])
    ours = [each for each in sources if each.format == JETSTREAM]
    return len(sources) == len(ours) == 1 and source_options(ours[0]).max_tasks == 1


def _writing(sink: Sink, is_one_task: bool) -> Use:
    options = sink_options(sink)
    needed = [f"{options.connection.api_prefix}.STREAM.INFO.{options.stream}"]
    if options.subject is not None:
        needed.append(options.subject.example())
    if options.key:
        needed.append(f"{options.connection.api_prefix}.STREAM.MSG.GET.{options.stream}")
    elif options.delivery == "exactlyonce":
        needed.append(f"{options.marker_prefix}.{options.sink_id}.0")

    def look(link: Link) -> list[str]:
        target = target_of(link, options, _NO_COLUMNS)
        found = [f"stream {options.stream} takes the rows of {sink.name}"]
        if 0 < target.kept <= _FEW and not options.key and not is_one_task:
            what = "message" if target.kept == 1 else "messages"
            found.append(
                f"warning: {sink.place}: stream {options.stream} keeps {target.kept} {what} of a subject, "
                "and several tasks write at the same time: old values may be the last. Give the sink a 'key'"
            )
        return found

    what = f"writing to {options.stream}"
    return Use(options.connection, sink.lines, sink.place, what, tuple(needed), look)


def _needed(options: SourceOptions) -> Iterator[str]:
    """The subjects that a query must be allowed to publish to."""
    api = options.connection.api_prefix
    for stream in options.streams:
        yield f"{api}.STREAM.INFO.{stream}"
        if options.overflow is not None:
            consumer = options.overflow.consumer
            yield f"{api}.STREAM.MSG.GET.{stream}"
            yield f"{api}.CONSUMER.INFO.{stream}.{consumer}"
            yield f"{api}.CONSUMER.MSG.NEXT.{stream}.{consumer}"
            yield f"$JS.ACK.{stream}.{consumer}.1.1.1.1.0"
            continue
        yield f"{api}.CONSUMER.CREATE.{stream}"
        yield f"{api}.CONSUMER.MSG.NEXT.{stream}.x"
        if options.durable:
            yield f"{api}.CONSUMER.CREATE.{stream}.{options.durable}"
            yield f"{api}.CONSUMER.INFO.{stream}.{options.durable}"


def check_options(declared: Declared) -> list[Problem]:
    """The options of our own sources and sinks."""
    problems = [
        *check_formats(declared),
        *_check_members(declared),
        *_check_quarantine(declared),
    ]
    for each in ours(declared):
        try:
            if isinstance(each, Source) and (given := _schema_option(each)):
                problems.append(problem_in(each.lines, each.place, given))
            else:
                use_of(declared, each)
        except ConfigurationError as error:
            problems.append(problem_in(each.lines, each.place, str(error)))
    return problems


def _schema_option(source: Source) -> str:
    """``schema`` among the options, which Spark's readers have as a call; "" if it is not there."""
    if not any(name.lower() == "schema" for name in source.options):
        return ""
    return (
        f"unknown option 'schema': the columns of the value are the option valueSchema (with valueFormat); "
        f"those of the whole source are the key schema of [sources.{source.name}]"
    )


def _check_quarantine(declared: Declared) -> Iterator[Problem]:
    """Whether messages can be left out by the views that put them into quarantine."""
    for view in declared.views.values():
        if view.otherwise != "quarantine":
            continue
        if not declared.is_local_checkpoint:
            text = "otherwise = 'quarantine' needs a checkpoint in a directory of this machine"
            yield Problem(view.place, text)
        for source in sources_of(declared, view.name):
            if source.streaming and (why := _not_by_sequence(source)):
                text = f"otherwise = 'quarantine': source {source.name!r} {why}"
                yield Problem(view.place, text)


def _not_by_sequence(source: Source) -> str:
    """Why single messages of a source cannot be read, or left out; "" if they can."""
    if source.format != JETSTREAM:
        return "is no jetstream source, of which a message can be left out"
    try:
        options = source_options(source)
    except ConfigurationError:
        return ""  # which is told where it stands
    if options.group is not None or options.overflow is not None:
        return "is a member of a group or takes a surplus, which cannot be read again by sequence"
    column = f"{options.decoding.metadata_prefix}sequence"
    if source.schema and re.search(rf"\b{column}\b", source.schema, re.IGNORECASE) is None:
        return f"has a schema without the column {column}, by which a message is left out"
    return ""


_ALONE: Final = {
    "group": "is a member of a group, which one query can be: give each a source with a 'member' of its own",
    "consumer": "takes the surplus of a consumer, of which each query would get a part: let one take it",
}


def _check_members(declared: Declared) -> Iterator[Problem]:
    """A source that is a member of a group, or takes a surplus, has one query.

    A second member would end the first; of a surplus each would get a part.
    """
    readers: dict[str, list[str]] = {}
    why: dict[str, str] = {}
    for sink in declared.sinks.values():
        for source in sources_of(declared, sink.of or quarantined(declared, sink)[0]):
            options = set(map(str.lower, source.options))
            if source.format == JETSTREAM and options & set(_ALONE):
                readers.setdefault(source.name, []).append(sink.name)
                why[source.name] = next(text for name, text in _ALONE.items() if name in options)
    for name, sinks in readers.items():
        if len(sinks) > 1:
            text = f"source {name!r} {why[name]}; it is read by {', '.join(sinks)}"
            yield Problem(declared.sources[name].place, text)


def check_columns(sink: Sink, columns: Iterable[Column]) -> None:
    """Whether a jetstream sink can write rows with these columns. Raises PipelineError if it cannot."""
    if sink.format != JETSTREAM:
        return
    try:
        lay_out(sink_options(sink), columns)
    except ConfigurationError as error:
        raise PipelineError([problem_in(sink.lines, sink.place, str(error))]) from error


CONNECT_S: Final = 0.7
"""How long a server may take to answer: the whole check is to take less than a second."""

_USER_INFO: Final = "$SYS.REQ.USER.INFO"


def check(declared: Declared) -> tuple[list[Problem], list[str]]:
    """Everything that needs no Spark: problems, and what was found in order, as sentences."""
    problems = check_options(declared)
    if problems:
        return problems, []
    found: list[str] = []
    for connection, uses in _by_connection(declared).items():
        said, fine = _check_server(connection, uses)
        problems += said
        found += fine
    return problems, found


def _by_connection(declared: Declared) -> dict[Connection, list[Use]]:
    """What uses each server."""
    grouped: dict[Connection, list[Use]] = {}
    for each in ours(declared):
        use = use_of(declared, each)
        grouped.setdefault(use.connection, []).append(use)
    return grouped


def _check_server(connection: Connection, uses: list[Use]) -> tuple[list[Problem], list[str]]:
    quick = replace(connection, connect_timeout_s=CONNECT_S, request_timeout_s=CONNECT_S)
    try:
        link = Link.open(quick)
    except (ConnectFailedError, AuthorizationError, RequestTimeoutError) as error:
        return [Unasked(*uses[0].problem(str(error)))], []
    except HeadraceError as error:
        return [uses[0].problem(str(error))], []
    problems: list[Problem] = []
    found: list[str] = []
    try:
        try:
            may_publish = _permissions(link)
        except AuthorizationError:
            may_publish = None  # it may not even ask; what follows shows the rest
            link = Link.open(quick)
        for use in uses:
            refused = [each for each in use.publishes if may_publish and not may_publish(each)]
            if refused:
                problems.append(Problem(use.place, _refusal(use, refused)))
                continue
            try:
                found += use.look(link)
            except RequestTimeoutError as error:
                problems.append(Unasked(*use.problem(str(error))))
            except HeadraceError as error:
                problems.append(use.problem(str(error)))
                if link.closed:
                    break
    finally:
        link.close()
    return problems, found


def _refusal(use: Use, refused: list[str]) -> str:
    user = use.connection.user
    who = f"user {user!r}" if user else "this user"
    return f"{who} may not publish to {', '.join(refused)}, which {use.what} needs"


class _Rights:
    """What a user may publish to."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._allow: list[str] | None = raw.get("allow")
        self._deny: list[str] = raw.get("deny") or []

    def __call__(self, subject: str) -> bool:
        allowed = self._allow is None or _any(self._allow, subject)
        return allowed and not _any(self._deny, subject)


def _any(patterns: Iterable[str], subject: str) -> bool:
    return any(matches(pattern.encode(), subject.encode()) for pattern in patterns)


def _permissions(link: Link) -> _Rights | None:
    """What the user may publish to; None where the server does not tell.

    Raises:
        AuthorizationError: the user may not ask; the link is closed.
    """
    try:
        answer = read_json(link.request(_USER_INFO).payload)
    except AuthorizationError:
        raise
    except (HeadraceError, ValueError):
        return None
    publish = answer.get("data", {}).get("permissions", {}).get("publish")
    return _Rights(publish) if publish else None
