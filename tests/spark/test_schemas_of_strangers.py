"""Schemas that strangers store in a bucket, and messages that claim to be written with them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from headrace.errors import ConfigurationError
from headrace.schemas.limits import NOTHINGS_MAX
from headrace.spark.decoding import avros, protobufs
from headrace.spark.decoding.decoded import COLUMNS_MAX

from .conftest import Feed
from .test_decoding import read, schema
from .test_decoding_formats import Bucket, bucket, publish_with

__all__ = ["bucket"]  # a fixture

pytestmark = pytest.mark.usefixtures("links_end")

GOOD = b'{"type":"record","name":"A","fields":[{"name":"a","type":["null","long"],"default":null}]}'
TREE = b'{"type":"record","name":"A","fields":[{"name":"a","type":["null","A"]}]}'

DEEP = """
import pyarrow as pa
from headrace.spark.decoding.avros import avro_format
form = avro_format(pa.schema([("n", pa.int64())]), TREE, lambda value, _: (None, value))
deep = b"\\2" * 100_000 + b"\\0"
found = form.decode([deep, b"\\2\\2\\0", b"\\2" * 200 + b"\\0"], [b""] * 3)
assert list(found.misfits) == [0], list(found.misfits)
assert "RecursionError" in found.misfits[0].reason
"""


def of(kind: str, **more: str) -> bytes:
    """A schema of one field."""
    named = "".join(f',{{"name":"{name}","type":{one}}}' for name, one in more.items())
    return f'{{"type":"record","name":"A","fields":[{{"name":"a","type":{kind}}}{named}]}}'.encode()


def test_a_value_within_itself_without_end_is_a_misfit_and_ends_no_process() -> None:
    # In a process of its own: where it is not so, it ends by a signal.
    text = DEEP.replace("TREE", repr(TREE))
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


NOTHING = '{"type":"record","name":"B","fields":[{"name":"b","type":"null"}]}'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (of('"A"'), "always contains itself"),
        (of('{"type":"array","items":"null"}'), "items that take no bytes"),
        (of(f'{{"type":"array","items":{NOTHING}}}'), "items that take no bytes"),
        (of('{"type":"array","items":{"type":"fixed","name":"F","size":0}}'), "take no bytes"),
        (
            of('"int"', **{f"n{n}": '"null"' for n in range(NOTHINGS_MAX + 1)}),
            "values that take no",
        ),
        (of('{"type":"map"}'), "cannot be read"),
        (of("7"), "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
    ],
)
def test_a_schema_whose_values_cost_more_than_their_bytes_is_refused(
    text: bytes, reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason) as caught:
        avros.spark_schema(text)
    assert len(str(caught.value)) < 1000


def test_records_in_each_other_by_name_are_counted_as_deep_as_they_are() -> None:
    kinds = {
        f"f{n}": f'{{"type":"record","name":"R{n}","fields":[{{"name":"a","type":"R{n - 1}"}}]}}'
        for n in range(1, 300)
    }
    first = '{"type":"record","name":"R0","fields":[{"name":"a","type":"int"}]}'
    with pytest.raises(ConfigurationError, match="types are in each other"):
        avros.parse(of(first, **kinds))


def test_few_types_that_make_many_columns_are_refused_before_they_are_made() -> None:
    kind = '{"type":"record","name":"R0","fields":[{"name":"a","type":"int"}]}'
    for n in range(1, 20):
        kind = (
            f'{{"type":"record","name":"R{n}","fields":[{{"name":"a","type":["null",{kind}]}},'
            f'{{"name":"b","type":["null","R{n - 1}"]}}]}}'
        )
    with pytest.raises(ConfigurationError, match=f"more than {COLUMNS_MAX} columns"):
        avros.spark_schema(of(kind))


def proto(*files: tuple[str, list[str], Mapping[str, Sequence[str]]]) -> bytes:
    made = descriptor_pb2.FileDescriptorSet()
    for name, imports, messages in files:
        file = made.file.add(name=name, package="p", dependency=imports)
        for message, fields in messages.items():
            one = file.message_type.add(name=message)
            one.field.add(name="n", number=1, type=3, label=1)
            for number, kind in enumerate(fields, 2):
                type_name = f".p.{kind}"
                one.field.add(
                    name=f"f{number}", number=number, type=11, type_name=type_name, label=1
                )
    text: bytes = made.SerializeToString()
    return text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (proto(("a", ["a"], {"A": []})), "imports itself"),
        (proto(("a", ["b"], {"A": []}), ("b", ["a"], {"B": []})), "imports itself"),
        (proto(*((f"f{n}", [f"f{n + 1}"], {f"M{n}": []}) for n in range(2000))), "in a row"),
        (
            proto(
                (
                    "a",
                    [],
                    {"A": ["R0"], **{f"R{n}": [f"R{n + 1}"] * 2 for n in range(30)}, "R30": []},
                )
            ),
            f"more than {COLUMNS_MAX} columns",
        ),
        (proto(("a", [], {f"M{n}": [] for n in range(5000)})), "and 4980 more"),
    ],
)
def test_a_descriptor_set_of_a_stranger_is_refused_in_a_sentence(text: bytes, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason) as caught:
        protobufs.spark_schema(text, "p.A")
    assert len(str(caught.value)) < 1000


def test_messages_in_each_other_without_an_end_are_refused_before_the_first_is_read() -> None:
    chain = {f"R{n}": [f"R{n + 1}"] for n in range(3000)}
    text = proto(("a", [], {"A": ["R0"], **chain, "R3000": []}))
    with pytest.raises(ConfigurationError, match="too many types in each other"):
        protobufs.protobuf_format(
            pa.schema([("n", pa.int64())]), text, "p.A", lambda value, _: value
        )


def test_a_schema_that_cannot_be_read_costs_its_own_messages_only(
    feed: Feed, bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    bad: dict[str, bytes] = {
        "text": b"{",
        "itself": of('"A"'),
        "nulls": of('{"type":"array","items":"null"}'),
        "huge": b'{"type":"%s"}' % (b"x" * 100_000),
    }
    bucket.put("good", GOOD)
    for key, text in bad.items():
        bucket.put(key, text)
    for key in ("good", *bad, "absent", "k" * 10_000, "good"):
        publish_with(feed, f"schema-id: {key}", b"\2\x08")
    found: list[dict[str, Any]] = read(
        feed,
        schema(sequence="bigint", a="bigint"),
        valueFormat="avro",
        schemaBucket=bucket.name,
        avroSchema=GOOD.decode(),
    )
    last = len(bad) + 4
    assert [(row["sequence"], row["a"]) for row in found] == [
        (1, 4),
        *((n, None) for n in range(2, last)),
        (last, 4),
    ]
    assert all(len(record.getMessage()) < 1000 for record in caplog.records)
