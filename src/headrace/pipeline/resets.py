"""Beginning anew at another place of streams, and taking results where they were moved to.

Neither destroys anything: a reset adds a generation of checkpoints.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from ..api.times import format_time, parse_time
from ..errors import ConfigurationError
from ..spark.links.control import Control
from ..spark.links.link import Link
from ..spark.options import SourceOptions
from .checkpoints.checkpoint import Generation, Start, checkpoint_of, exclusively, suffix_of
from .checkpoints.folders import LocalFolder, folder_of, is_local
from .checkpoints.results_folder import (
    OF_CHECKPOINT,
    OF_RESULTS,
    SinkLog,
    has_content,
    read_binding,
)
from .graph import streaming_of
from .lease import holder_of
from .model import WRITTEN_AS_FILES, Declared, Sink, Source, did_you_mean
from .options import JETSTREAM, place_of_results, source_options

_NUMBER: Final = re.compile(r"\d+")


def parse_position(text: str) -> Start:
    """``earliest``, ``latest``, a sequence or a time. Raises ConfigurationError."""
    lowered = text.strip().lower()
    if lowered == "earliest":
        return Start("earliest")
    if lowered == "latest":
        return Start("latest")
    if _NUMBER.fullmatch(lowered):
        return Start("sequence", lowered)
    try:
        return Start("time", format_time(parse_time(text.strip())))
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is no place in a stream; accepted: earliest, latest, a sequence such as 1000, or a "
            "time such as 2013-01-01T05:00:00Z"
        ) from None


def chosen(declared: Declared, names: Iterable[str]) -> list[Sink]:
    """The sinks of these queries; all if none is named. Raises ConfigurationError."""
    wanted = list(names)
    for name in wanted:
        if name not in declared.sinks:
            raise ConfigurationError(f"no query {name!r}{did_you_mean(name, declared.sinks)}")
    return [declared.sinks[name] for name in wanted or declared.sinks]


def reset(
    declared: Declared, sinks: Iterable[Sink], to: Start
) -> list[tuple[Sink, Generation, str]]:
    """Begin a new generation of these queries at ``to``. Returns each, with what is to be known about it.

    Raises:
        ConfigurationError: the pipeline runs, its checkpoint is elsewhere, or ``to`` is no place in the
            query's sources.
        HeadraceError: ``latest``, and the server does not say where that is.
    """
    if declared.lease is not None and (holder := holder_of(declared.lease, declared.name)):
        raise ConfigurationError(
            f"{holder} has the lease of {declared.name!r} and runs it; end it first"
        )
    with exclusively(declared):
        starts = {sink.name: _starts(declared, sink, to) for sink in sinks}
        added = []
        for name, each in starts.items():
            sink = declared.sinks[name]
            checkpoint = checkpoint_of(declared, name)
            number = _free_number(declared, sink, checkpoint.next_number())
            generation = checkpoint.add(each, number)
            added.append((sink, generation, _consequence(sink, generation)))
        return added


def relocate(declared: Declared, sinks: Iterable[Sink]) -> list[tuple[str, str, int]]:
    """Take results of this machine where they lie now. Returns each query with its folder, and how many
    files were elsewhere by Spark's list.

    Raises:
        ConfigurationError: the pipeline runs, or the results are another's, or damaged.
    """
    done = []
    with exclusively(declared):
        for sink in sinks:
            generation = checkpoint_of(declared, sink.name).current()
            place = place_of_results(declared, sink, generation.suffix)
            if not place or not is_local(place):
                continue
            ours = read_binding(LocalFolder(Path(generation.path)), OF_CHECKPOINT)
            theirs = read_binding(LocalFolder(Path(place)), OF_RESULTS)
            if theirs is not None and (ours is None or ours.id != theirs.id):
                raise ConfigurationError(
                    f"{place} has the results of {theirs}, whose checkpoint is not in "
                    f"{generation.path}: move that, too"
                )
            count = SinkLog(Path(place), len(sink.partition_by)).relocate()
            done.append((sink.name, place, count))
    return done


def streams_of(declared: Declared, sink: Sink) -> list[Source]:
    """The streaming sources a query stands on. Raises ConfigurationError if one has no sequences."""
    streams = streaming_of(declared, sink)
    for source in streams:
        if source.format != JETSTREAM:
            raise ConfigurationError(
                f"{source.place}: source {source.name!r} of query {sink.name!r} is no jetstream source: it "
                "cannot be begun at a place of one's choice"
            )
        if source_options(source).group is not None:
            raise ConfigurationError(
                f"{source.place}: source {source.name!r} of query {sink.name!r} goes on where its group "
                "stands"
            )
        if source_options(source).overflow is not None:
            raise ConfigurationError(
                f"{source.place}: source {source.name!r} of query {sink.name!r} reads what a consumer hands "
                "out, not from a place of one's choice"
            )
    return streams


def _starts(declared: Declared, sink: Sink, to: Start) -> dict[str, Start]:
    streams = streams_of(declared, sink)
    names = {name for each in streams for name in source_options(each).streams}
    if to.kind == "sequence" and len(names) > 1:
        raise ConfigurationError(
            f"query {sink.name!r} reads several streams ({', '.join(sorted(names))}), whose sequences have "
            "nothing in common; give a time"
        )
    return {each.name: _fixed(each, to) for each in streams}


def last_of(source: Source, to: Start) -> Start:
    """``latest``, as an end, as the sequences that are the last ones now."""
    last = _last(source_options(source)) if to.kind == "latest" else {}
    if not all(last.values()) or not last:
        return to  # a stream that never held a message has no last one
    return Start("sequence", _text(last))


def _fixed(source: Source, to: Start) -> Start:
    """``latest`` as the sequence it is now: a query that starts later misses nothing in between."""
    if to.kind != "latest":
        return to
    last = _last(source_options(source))
    return Start("sequence", _text({name: seq + 1 for name, seq in last.items()}))


def _last(options: SourceOptions) -> dict[str, int]:
    """The last sequence of each stream."""
    link = Link.open(options.connection)
    try:
        return {name: Control(link, name).head()[0].last_seq for name in options.streams}
    finally:
        link.close()


def _text(sequences: Mapping[str, int]) -> str:
    """Sequences as the source's options have them."""
    return json.dumps(sequences) if len(sequences) > 1 else str(*sequences.values())


def _free_number(declared: Declared, sink: Sink, number: int) -> int:
    """The first number from this on whose results are not there yet, of a checkpoint that was lost, say."""
    while True:
        place = place_of_results(declared, sink, suffix_of(number))
        folder = folder_of(place) if place else None
        if folder is None or not has_content(folder):
            return number
        number += 1


def _consequence(sink: Sink, generation: Generation) -> str:
    """What becomes of the results of a new generation."""
    if not generation.suffix:
        return "nothing was run before"
    options = {name.lower(): value for name, value in sink.options.items()}
    if sink.format.lower() in WRITTEN_AS_FILES and "path" in options:
        return (
            f"its results go to {options['path']}{generation.suffix}, beside those that are there"
        )
    if "sinkid" in options:
        return f"its rows are published again, as sinkId {options['sinkid']}{generation.suffix}"
    if sink.function is not None:
        return "its function gets the rows again, as another run; state of aggregates begins empty"
    return "its rows are written again; state of aggregates begins empty"
