"""What the joins of a query do to the order of its rows. Pure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.pipeline.checking.plans import told_of_order
from headrace.pipeline.declaring.reading import read

from ..conftest import ORDERS

STREAMS = "~Join Inner, (k#3L = k#19L)\n:- ~A\n+- ~B\n"
TABLE = "~Join Inner, (k#3L = k#19L)\n:- ~A\n+- B [k#19L]\n"
KEYED = 'format = "jetstream"\noptions = { bucket = "last", key = "user"'


@pytest.mark.parametrize(
    ("plan", "columns", "sink", "said", "is_warned"),
    [
        ("~Project [k#1]\n+- ~A\n", "user", KEYED + " }", "", False),
        ("Join Inner, (k#3L = k#19L)\n:- A\n+- B [k#19L]\n", "user", KEYED + " }", "", False),
        (STREAMS, "user", KEYED + " }", "joins streams: a row comes when both", True),
        (STREAMS, "user sequence", KEYED + " }", "give sink 'out' the option order", True),
        (STREAMS, "user at", KEYED + ', order = "at" }', "of neither stream", False),
        (STREAMS, "user", 'mode = "update"\n' + KEYED + " }", "of neither stream", False),
        (STREAMS, "user", 'format = "noop"', "whoever needs an order sorts by a column", False),
        (TABLE, "user", KEYED + " }", "the order of the join's key", True),
        (TABLE, "user sequence", KEYED + " }", "joins a table", False),
        (TABLE, "user", 'format = "jetstream"\noptions = { stream = "B" }', "sorts by", False),
    ],
)
def test_a_join_is_told_with_what_it_does_to_the_order_of_rows(
    write: Callable[..., Path], plan: str, columns: str, sink: str, said: str, is_warned: bool
) -> None:
    front, _, _ = ORDERS.partition('format = "parquet"')
    declared = read(write(f"{front}{sink}\n"))
    told = told_of_order(declared.sinks["out"], plan, columns.split())
    assert said in told
    assert bool(told) == bool(said)
    assert told.startswith(f"warning: {declared.file}:9: ") == is_warned
