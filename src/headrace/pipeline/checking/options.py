"""What is wrong with the options of a pipeline's own sources and sinks; nobody is asked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from ...errors import ConfigurationError
from ...spark.sink.layout import Column, lay_out
from ..graph import quarantined, sources_of
from ..model import Declared, Sink, Source
from ..options import JETSTREAM, sink_options, source_options
from ..problems import PipelineError, Problem
from .formats import check_formats
from .uses import ours, problem_in, use_of


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
