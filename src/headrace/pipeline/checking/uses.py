"""The sources and sinks of a pipeline that use a server: what each needs there, and how it is looked at."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ...sink_markers import SPACE
from ...spark.links.control import Control
from ...spark.links.link import Link
from ...spark.options import Connection, SourceOptions
from ...spark.sink.layout import Layout
from ...spark.sink.target import target_of
from ..graph import quarantined, sources_of
from ..model import Declared, Sink, Source
from ..options import JETSTREAM, sink_options, source_options
from ..problems import Place, Problem

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
