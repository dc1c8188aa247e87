"""The options of writing, and the columns they need."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ConfigurationError
from headrace.spark.options.table import Option
from headrace.spark.sink.layout import Column, lay_out
from headrace.spark.sink.markers import PlanId
from headrace.spark.sink.options import SINK_OPTIONS, parse_sink_options
from headrace.spark.sink.writing import Job

from .sinks import columns

DOCS = Path(__file__).parents[3] / "docs"


def parse(streaming: bool = True, /, **raw: str) -> Any:
    return parse_sink_options({"stream": "S", **raw}, streaming=streaming)


def test_defaults_write_at_least_once_below_the_stream_s_name() -> None:
    options = parse()
    assert options.delivery == "atleastonce"
    assert options.marker_prefix == "_sink.S"
    assert options.on_bad_row == ("fail", "")
    assert options.batch_id is None


def test_names_are_taken_in_any_case_and_what_spark_adds_is_passed_over() -> None:
    options = parse(DELIVERY="exactlyonce", sinkid="a", checkpointLocation="/x", queryName="q")
    assert (options.delivery, options.sink_id) == ("exactlyonce", "a")
    assert parse_sink_options({"path": "T"}, streaming=True).stream == "T"


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        ({"delivery": "once"}, "option 'delivery' is 'once'; accepted: atleastonce, dedupe or"),
        ({"delivery": "exactlyOnce"}, "needs the option 'sinkId'"),
        ({"sinkId": "a.b"}, "option 'sinkId' is 'a.b'; accepted: 1 to 64 letters"),
        ({"batchId": "3", "sinkId": "a"}, "'batchId' is for df.write"),
        ({"subject": "a..b"}, "option 'subject' is 'a..b'; accepted: a subject without wildcards"),
        ({"subject": "a.*"}, "a subject without wildcards"),
        ({"subject": "a.{b"}, "'{' at 3 has no counterpart"),
        ({"rowsPerAtomicBatch": "1000"}, "a whole number from 1 to 999"),
        ({"onBadRow": "deadletter"}, "fail, skip, or deadletter:<subject>"),
        ({"valueFormat": "avro"}, "valueFormat=avro needs either 'avroSchema', or"),
        ({"avroSchema": "{}"}, "'avroSchema' does not belong to"),
        ({"startingOffsets": "latest"}, "unknown option 'startingOffsets'"),
        ({"sinkid": "a", "delvery": "x"}, "did you mean 'delivery'"),
        ({"user": "u", "token": "t"}, "give one way to log in"),
    ],
)
def test_what_is_wrong_is_said(raw: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^jetstream sink: ") as error:
        parse(**raw)
    assert complaint in str(error.value)


def test_a_write_of_a_batch_is_known_by_its_number() -> None:
    with pytest.raises(ConfigurationError, match=r"needs the option 'batchId'"):
        parse(False, delivery="exactlyOnce", sinkId="a")
    with pytest.raises(ConfigurationError, match=r"it needs the option 'sinkId'"):
        parse(False, batchId="4")
    assert parse(False, batchId="0", sinkId="a").batch_id == 0


def test_a_job_travels_and_shows_no_secret() -> None:
    options = parse(user="u", password="hush", subject="a.{b}", servers="nats://me:hush@h:1")
    one = Job(options, lay_out(options, columns(b="string")), PlanId(1, "x"))
    assert pickle.loads(pickle.dumps(one)) == one
    assert "hush" not in repr(one.options.connection)


def test_the_page_lists_every_option_as_it_is() -> None:
    page = (DOCS / "reference" / "spark-options.md").read_text()
    reading, table = page.split("<!-- sink options: checked by the tests -->")
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    shared = [option for option in SINK_OPTIONS if _row(option) in reading]
    assert {option.name for option in shared} >= {"schemaRegistry", "schemaSubject", "messageName"}
    assert [row for row in map(_row, SINK_OPTIONS) if row not in [*rows, *map(_row, shared)]] == []


def _row(option: Option) -> str:
    return f"| `{option.name}` | {f'`{option.default}`' if option.default else ''} | {option.doc} |"


@pytest.mark.parametrize(
    ("given", "raw", "complaint"),
    [
        ({"data": "binary"}, {}, "messages need a subject"),
        ({"subject": "int"}, {}, "column subject is int; it must be string"),
        ({"regon": "string"}, {"subject": "a.{region}"}, "did you mean 'regon'"),
        ({"x": "double"}, {"subject": "a.{x}"}, "column x is double; it must be string, tinyint"),
        ({"data": "int"}, {"subject": "a"}, "column data is int; it must be binary or string"),
        ({"x": "int"}, {"subject": "a", "valueFormat": "raw"}, "valueFormat=raw needs a column"),
        ({"subject": "string"}, {}, "finds no column to encode"),
        ({"x": "int", "headers": "string"}, {"subject": "a"}, "column headers is string; it can"),
        ({"x": "int", "X": "int"}, {"subject": "a"}, "column 'X' is there twice"),
        ({"x": "int", "ttl": "double"}, {"subject": "a"}, "column ttl is double"),
    ],
)
def test_columns_that_cannot_be_written_are_named(
    given: dict[str, str], raw: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ConfigurationError) as error:
        lay_out(parse(**raw), columns(**given))
    assert complaint in str(error.value)


def test_a_column_data_is_the_payload_unless_a_format_is_asked_for() -> None:
    given = [Column("SUBJECT", "string"), Column("data", "binary"), Column("n", "int")]
    raw = lay_out(parse(), given)
    assert (raw.format, raw.subject, raw.data, raw.values) == ("raw", 0, 1, ())
    json = lay_out(parse(valueFormat="json"), given)
    assert (json.format, json.data, json.values) == ("json", -1, (1, 2))
