from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.spark.ending import announce, forget, is_announced
from headrace.spark.options import parse_options
from headrace.spark.options.source import NO_USE, Use

USE = Use(source="orders", run="a1")


def test_the_sources_of_a_run_hear_that_it_ends_and_those_of_no_other(tmp_path: Path) -> None:
    losses = str(tmp_path / "0001.losses.jsonl")
    ours, others = USE._replace(losses=losses), USE._replace(losses=losses, run="b2")
    assert not is_announced(ours)
    assert announce(losses, "a1")
    assert is_announced(ours)
    assert not is_announced(others), "what a run before has left means nothing"
    assert not is_announced(NO_USE)
    forget(losses)
    assert not is_announced(ours)
    assert list(tmp_path.iterdir()) == []
    forget(losses)  # again: it is gone


def test_a_folder_that_cannot_be_written_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    losses = str(tmp_path / "missing" / "0001.losses.jsonl")
    assert not announce(losses, "a1")
    assert "No such file" in caplog.text
    assert not is_announced(USE._replace(losses=losses))


def test_a_source_offers_nothing_more_once_the_end_is_announced(
    tmp_path: Path,
) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable
    from pyspark.sql.types import StructType

    from headrace.spark.decoding.columns import layout_of
    from headrace.spark.source import JetStreamStreamReader

    losses = str(tmp_path / "0001.losses.jsonl")
    use = USE._replace(losses=losses)
    options = parse_options({"stream": "ORDERS", "pipeline": use.text}, streaming=True)
    reader = JetStreamStreamReader(options, layout_of(options, StructType().add("data", "binary")))

    class Query:
        def latest_offset(self, start: dict[str, Any], *, limited: bool) -> dict[str, Any]:
            return {"seq": start["seq"] + 1}

    reader._query = Query()  # type: ignore[assignment]
    begun = {"seq": 7}
    assert reader.latestOffset(begun, ReadAllAvailable()) == {"seq": 8}
    announce(losses, use.run)
    assert reader.latestOffset(begun, ReadAllAvailable()) is begun
