"""What the joins of a query do to the order of its rows. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ..checkpoints.plan_text import joins_of
from ..model import Sink
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
