"""What a query's plan means for its rows: their order after joins, and what a replay of a range does not
give. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Final

from ...api.times import format_time
from ...errors import ConfigurationError, HeadraceError
from ...spark.batches.plans import counter
from ...spark.links.control import Control
from ...spark.links.link import Link
from ...spark.options import SourceOptions, StartPosition, parse_options
from ...spark.positions import locate
from ..checkpoints.plan_text import Window, is_only_for_streams, joins_of, windows_of
from ..model import Declared, Sink, Source
from ..options import JETSTREAM, sink_options

_STREAMS: Final = (
    "query {name!r} joins streams: a row comes when both of its sides are there, in the order of neither "
    "stream, and also batches later"
)
_TABLE: Final = (
    "query {name!r} joins a table: the rows of a batch keep the order of the stream only where Spark sends "
    "the table to every task (spark.sql.autoBroadcastJoinThreshold); of a larger one they come in the order "
    "of the join's key"
)
_LATEST: Final = "; give sink {name!r} the option order, or old values may be the last of a key"
_SORT: Final = "; whoever needs an order sorts by a column, such as sequence"


def told_of_order(sink: Sink, plan: str, columns: Collection[str]) -> str:
    """What the joins of a query do to the order of its rows; "" if it has none.

    Args:
        plan: the query's, in Spark's text.
        columns: those of the sink's rows.
    """
    joins = joins_of(plan)
    if not joins:
        return ""
    said = (_STREAMS if "streams" in joins else _TABLE).format(name=sink.name)
    if sink.format != JETSTREAM:
        return said + _SORT
    options = sink_options(sink)
    if not options.key:
        return said + _SORT
    # Within a batch the sink goes by a column sequence; of more than one batch only by the option.
    is_known = bool(options.order) or ("streams" not in joins and "sequence" in columns)
    if is_known or sink.mode != "append":  # other modes: one row of a key in a batch
        return said
    return f"warning: {sink.place}: {said}{_LATEST.format(name=sink.name)}"


STORED: Final = "timestamp"
"""The column that says when a message was stored."""
_MICRO: Final = 1000  # ns


def refuse_only_for_streams(declared: Declared, sink: Sink, plan: str) -> None:
    """Raise ConfigurationError if Spark runs a query as a stream only."""
    if text := why_not_replayed(declared, sink, plan):
        raise ConfigurationError(f"{sink.place}: {text}")


def why_not_replayed(declared: Declared, sink: Sink, plan: str) -> str:
    """Why a query cannot be replayed; "" if it can."""
    if not is_only_for_streams(plan):
        return ""
    anew = declared.command("reset", "--query", sink.name, "--to", "WHERE")
    return (
        f"query {sink.name!r} cannot be replayed: it leaves out duplicates within a watermark, which Spark "
        "does in streams only, and a replay is one batch; leave them out with dropDuplicates, or begin the "
        f"query again: {anew}"
    )


def partial_windows(
    plan: str, sources: list[Source], bounds: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """The windows at the edges of a range that have a part of their rows only, as sentences.

    Args:
        plan: the query's, in Spark's text.
        sources: the streams that are read, and their ``bounds`` by source: options of both ends.
    """
    windows = windows_of(plan)
    said = [_unknown(each) for each in windows if each.column != STORED]
    stored = [each for each in windows if each.column == STORED]
    if stored:
        try:
            said += _of_streams(stored, sources, bounds)
        except HeadraceError:  # a work queue has no consumer to count by, others may not be asked
            said += map(_unknown, stored)
    return said


def _unknown(window: Window) -> str:
    return f"{window.text} are partial where rows of theirs lie before or behind the range"


def _of_streams(
    windows: list[Window], sources: list[Source], bounds: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Of windows over the time at which messages were stored."""
    said: list[str] = []
    for source in sources:
        kept = {
            name: value
            for name, value in source.options.items()
            if not name.lower().startswith(("starting", "ending"))
        }
        options = parse_options({**kept, **bounds[source.name]}, streaming=False)
        link = Link.open(options.connection)
        try:
            for each in options.each():
                for window in windows:
                    said += _edges(Control(link, each.stream), each, window)
        finally:
            link.close()
    return said


def _edges(control: Control, options: SourceOptions, window: Window) -> Iterator[str]:
    """What the windows of one stream lack."""
    head, config = control.head()
    count = counter(control, head, config, options.subjects)
    at = partial(locate, control, head=head, as_end=False)
    lo = at(options.starting)
    hi = min(locate(control, options.ending, head, as_end=True), head.last_seq)
    if not lo < control.next_stored(lo + 1) <= hi:
        return
    begins = window.starts(control.next_time(lo + 1) // _MICRO)
    if count(at(_moment(begins[0])), lo):
        yield _lacks(
            window, begins, f"messages of stream {options.stream!r} before sequence {lo + 1}"
        )
    begins = window.starts(control.next_time(hi) // _MICRO)
    after = at(_moment(begins[1] + window.size))
    if count(hi, after) and count(at(_moment(begins[0])), hi):
        yield _lacks(window, begins, f"messages of stream {options.stream!r} behind sequence {hi}")


def _moment(micros: int) -> StartPosition:
    return StartPosition("time", time=format_time(max(1, micros) * _MICRO))


def _lacks(window: Window, begins: tuple[int, int], what: str) -> str:
    first, last = (format_time(each * _MICRO) for each in begins)
    which = (
        f"one that begins at {first} is" if first == last else f"ones from {first} to {last} are"
    )
    return f"{window.text}: the {which} partial and without {what}"
