"""Whether a query would write rows again that it has written: its checkpoint is gone, or an older copy.

Two records outlive a checkpoint: the durable consumer of a source, which stands where the last committed
batch ended, and the sums over the batches. A sink that keeps no record of its own would take the rows again
without a word; so the query does not start unless it is told to.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from ...spark.links.control import Control
from ...spark.links.link import Link
from ...spark.planning.positions import locate
from ..checkpoints.checkpoint import Generation, read_end
from ..checkpoints.folders import is_local
from ..checkpoints.totals import Totals
from ..model import FILE_SINKS, Declared, Sink, Source
from ..options import JETSTREAM, options_of_source, sink_options, source_options
from ..problems import Problem
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
