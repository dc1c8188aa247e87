"""Whether what outlives a run goes together, and whether a query would write rows again.

Asked before a query starts, and without Spark.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from ...errors import ConfigurationError
from ...spark.links.control import Control
from ...spark.links.link import Link
from ...spark.positions import locate
from ..checkpoints.checkpoint import Generation, checkpoint_of, read_end, read_log
from ..checkpoints.folders import is_local
from ..checkpoints.results_folder import check_results
from ..checkpoints.totals import Totals
from ..graph import quarantined, sources_of
from ..model import FILE_SINKS, Declared, Problem, Sink, Source
from ..options import JETSTREAM, options_of_source, place_of_results, sink_options, source_options
from .backlog import position, streams_of_sink

_KEEP_NOTHING: Final = frozenset({"noop", "console", "memory"})


class Repeat(NamedTuple):
    """Messages of a stream that would be read again: those after ``begin`` up to ``end``."""

    durable: str
    stream: str
    begin: int
    end: int
    messages: int


def keeps_no_record(sink: Sink) -> bool:
    """Whether a sink takes rows again that it has: none of Spark's files, and no exactly-once stream."""
    if sink.function is not None:
        return True
    if sink.format.lower() == JETSTREAM:
        return sink_options(sink).delivery != "exactlyonce"
    return sink.format.lower() not in FILE_SINKS | _KEEP_NOTHING


def check_again(declared: Declared, sink: Sink, generation: Generation) -> Problem | None:
    """Why a query must not start without being told to write rows again; None if it writes none again.

    Raises:
        HeadraceError: a server did not say where a durable stands.
    """
    if not keeps_no_record(sink) or not is_local(generation.path):
        return None
    is_new = generation.is_new
    totals = Totals(generation.totals)
    repeats = [] if is_new and generation.starts else _repeats(declared, sink, generation)
    if repeats:
        records = [
            f"durable {each.durable!r} of stream {each.stream!r} stands at sequence {each.end}, and the "
            f"query would go on after {each.begin}: {each.messages:,} messages again"
            for each in repeats
        ]
    elif is_new and totals.batches:
        records = [f"the sums of its batches have {totals.rows:,} rows"]
    else:
        return None
    gone = "is gone" if is_new else "is an older copy"
    leads = [
        "put the checkpoint back",
        f"or write the rows again: {declared.command('run', '--again')} (or once)",
    ]
    if len(repeats) == 1 and generation.keeps_state is not True:
        to = str(repeats[0].end + 1)
        behind = declared.command("reset", "--query", sink.name, "--to", to)
        which = "" if generation.keeps_state is False else ", if the query keeps no state"
        leads.append(f"or begin behind them{which}: {behind}")
    text = f"query {sink.name!r} ran before, and its checkpoint {gone}: {'; '.join(records)}"
    return Problem(sink.place, f"{text}. To go on: {'; '.join(leads)}")


def _repeats(declared: Declared, sink: Sink, generation: Generation) -> list[Repeat]:
    done = read_end(generation)
    texts = done.offsets if done is not None else ()
    ends = [end for end in map(json.loads, filter(None, texts)) if isinstance(end, dict)]
    found = []
    for source in streams_of_sink(declared, sink):
        found += _of_source(declared, sink, generation, source, ends)
    return found


def _of_source(
    declared: Declared,
    sink: Sink,
    generation: Generation,
    source: Source,
    ends: list[dict[str, object]],
) -> list[Repeat]:
    raw = options_of_source(declared, source, sink.name, generation)
    options = source_options(source)
    durable = next((value for key, value in raw.items() if key.lower() == "durable"), "")
    if not durable or options.group is not None or options.overflow is not None:
        return []
    found = []
    all_ = streams_of_sink(declared, sink)
    link = Link.open(options.connection)
    try:
        for each in options.each():
            control = Control(link, each.stream)
            head, _ = control.head()
            info = control.consumer_info(durable)
            if info is None or each.starting.kind == "latest":
                continue  # with latest the durable itself says where the query goes on
            begin = position(ends, control, head, source, all_)
            if not begin:
                begin = locate(control, each.starting, head, as_end=False)
            end = info.ack_floor.stream_seq or info.delivered.stream_seq
            begin = max(begin, head.first_seq - 1)
            if end > begin and (messages := control.count(begin, end, each.subjects)):
                found.append(Repeat(durable, each.stream, begin, end, messages))
    finally:
        link.close()
    return found


def refusals(declared: Declared, *, again: bool = False) -> list[Problem]:
    """Why queries would not start, as far as it is known without Spark. Nothing is changed.

    Args:
        again: rows may be written again that were written before the checkpoint was lost.
    """
    found = (refusal(declared, sink, again=again) for sink in declared.sinks.values())
    return [each for each in found if each is not None]


def refusal(declared: Declared, sink: Sink, *, again: bool = False) -> Problem | None:
    """Why a query would not start; None if it would."""
    generation = checkpoint_of(declared, sink.name).current()
    if problem := _check_starts(declared, sink, generation) or _check_logs(sink, generation):
        return problem
    place = place_of_results(declared, sink, generation.suffix)
    if place and (problem := check_results(declared, sink, generation, place)):
        return problem
    return None if again else check_again(declared, sink, generation)


def _check_logs(sink: Sink, generation: Generation) -> Problem | None:
    """A log in the checkpoint that Spark could not read."""
    if not is_local(generation.path):
        return None
    try:
        read_log(generation, "offsets")
        read_end(generation)
    except ConfigurationError as error:
        return Problem(sink.place, str(error))
    return None


def _check_starts(declared: Declared, sink: Sink, generation: Generation) -> Problem | None:
    """A generation that has not begun, and is to begin at a place of sources that the query does not read."""
    sources = sources_of(declared, sink.of or quarantined(declared, sink)[0])
    strange = sorted(set(generation.starts) - {each.name for each in sources})
    if not strange or not generation.is_new:
        return None
    begins = ", ".join(f"{name} at {generation.starts[name]}" for name in strange)
    command = declared.command("reset", "--query", sink.name, "--to", "WHERE")
    text = (
        f"generation {generation.number} of query {sink.name!r} is to begin {begins}, and the query does not "
        f"read that source any more. Say again where it is to begin: {command}"
    )
    return Problem(sink.place, text)
