"""What a replay of a range does not give as the query does: whole windows at its edges, duplicates apart.

A window that the range begins or ends in has a part of its rows only. Of windows over the time at which a
message was stored the server tells which those are; where another column tells the time, only the rows do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from ...api.times import format_time
from ...errors import ConfigurationError, HeadraceError
from ...spark.batches.plans import counter
from ...spark.links.control import Control
from ...spark.links.link import Link
from ...spark.options import SourceOptions, StartPosition, parse_options
from ...spark.planning.positions import locate
from ..checkpoints.plan_text import Window, is_only_for_streams, windows_of
from ..model import Declared, Sink, Source

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
