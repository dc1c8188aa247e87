"""Which tables a query of SQL reads, as far as that can be told without Spark. Pure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.pipeline.declaring.reading import read, tables_in_sql
from headrace.pipeline.model import PipelineError

from ..conftest import ORDERS


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT * FROM a", ["a"]),
        ("select x from `a b` t join b using (x) left join c on true", ["a b", "b", "c"]),
        ("WITH c AS (SELECT 1 FROM a), d AS (SELECT 2 FROM c) SELECT * FROM d, c", ["a"]),
        ("SELECT * FROM (SELECT * FROM a) WHERE x IN (SELECT y FROM b)", ["a", "b"]),
        ("SELECT extract(YEAR FROM ts), trim(BOTH 'x' FROM s) FROM a", ["a"]),
        ("SELECT a IS DISTINCT FROM b AS same FROM t", ["t"]),
        ("SELECT * FROM range(10) JOIN explode(x) JOIN LATERAL (SELECT 1)", []),
        ("SELECT * FROM db.t JOIN parquet.`/data` JOIN a", ["a"]),
        ("SELECT 'x FROM b', \"FROM c\" FROM a -- FROM d\n/* FROM e */", ["a"]),
        ("SELECT * FROM VALUES (1), (2) AS t(x)", []),
        ("FROM", []),
        ("SELECT 1 FROM", []),
        (")) SELECT 1 FROM a", ["a"]),
    ],
)
def test_tables_stand_where_only_a_table_can(sql: str, tables: list[str]) -> None:
    assert tables_in_sql(sql) == tables


def test_a_table_that_there_is_not_is_named(write: Callable[..., Path]) -> None:
    view = '[views.v]\nsql = "SELECT * FROM order JOIN ORDERS ON true"\n'
    with pytest.raises(PipelineError) as caught:
        read(write(ORDERS + view))
    assert [str(each).partition("toml:")[2] for each in caught.value.problems] == [
        "13: view 'v': its SQL reads 'order', which there is not; did you mean 'orders'?"
    ]
    catalog = '[spark.conf]\n"spark.sql.catalog.own" = "org.example.Catalog"\n'
    assert "v" in read(write(ORDERS + view + catalog)).views


def test_a_sink_on_views_in_a_circle_is_told_without_a_traceback(
    write: Callable[..., Path],
) -> None:
    views = '[views.a]\nsql = "SELECT * FROM b"\n[views.b]\nsql = "SELECT * FROM a"\n'
    with pytest.raises(PipelineError, match="in a circle: a → b → a"):
        read(write(ORDERS.replace('from = "orders"', 'from = "b"') + views))
