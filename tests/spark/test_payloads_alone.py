"""A query that wants payloads alone gets them as one that wants everything, by another way."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from headrace.spark import frames as run
from headrace.spark.columns import Wanted
from headrace.spark.frames import Run
from headrace.spark.options import parse_options
from headrace.spark.slices import Slice
from headrace.spark.tasks.bad_messages import BadMessageError
from headrace.spark.tasks.read_slice import read_slice

from .conftest import Feed

COUNT = 6000


pytestmark = pytest.mark.usefixtures("links_end")


@pytest.fixture
def in_runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each run had. However small the pieces are that come, runs are looked for."""
    monkeypatch.setattr(run, "_RUN_BYTES_MIN", 1)
    counts: list[int] = []
    make = Run.of

    def of(payloads: list[bytes], raw: bytes, last_reply: bytes, **more: bool) -> Run:
        counts.append(len(payloads))
        return make(payloads, raw, last_reply, **more)

    monkeypatch.setattr(Run, "of", of)
    return counts


def batches(feed: Feed, columns: Any, piece: Slice, **more: str) -> list[pa.RecordBatch]:
    options = parse_options({"stream": feed.name, "servers": feed.url, **more})
    return list(read_slice(options, columns, piece))


def publish_with_headers(feed: Feed, count: int) -> None:
    name, acks = feed.name.encode(), 0
    for number in range(count):
        block = b"NATS/1.0\r\nNats-Msg-Id: id-%05d\r\n\r\n" % number
        feed.link.send(
            b"HPUB %b.h %b %d %d\r\n%b%05d\r\n"
            % (name, feed._inbox, len(block), len(block) + 5, block, number)
        )
    while acks < count:
        acks += len(feed.link.poll(5.0))


def fill(feed: Feed, kind: str) -> None:
    subjects, draw = ["n"] * COUNT, random.Random(5)
    if kind == "of one size":
        feed.publish(subjects, lambda index: b"%05d\r\nx" % index)
    elif kind == "of many sizes":
        feed.publish(subjects, lambda index: b'{"n": %d}' % index)
    elif kind == "binary":
        feed.publish(subjects, lambda index: draw.randbytes(index % 50))
    else:
        publish_with_headers(feed, COUNT)


KINDS = ["of one size", "of many sizes", "binary", "with headers"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_payloads_are_those_of_a_read_of_all_columns(
    feed: Feed, kind: str, in_runs: list[int]
) -> None:
    fill(feed, kind)
    whole = batches(feed, ("data",), Slice(0, COUNT))
    assert sum(batch.num_rows for batch in whole) == COUNT
    read = sum(in_runs)
    assert read < COUNT // 2 if kind == "binary" else read > COUNT // 2
    for seq in (2, 17, 3000, 3001, COUNT - 1):  # a chunk with a gap asks for the stream's beginning
        feed.call(f"STREAM.MSG.DELETE.{feed.name}", {"seq": seq})
    for piece in (Slice(0, COUNT), Slice(10, COUNT - 1), Slice(1234, 4321), Slice(2999, 3001)):
        both = [
            batches(feed, columns, piece, rowsPerBatch="700")
            for columns in (("data",), ("data", "sequence"))
        ]
        alone, whole = ([batch.column("data") for batch in each] for each in both)
        assert alone == whole
    assert feed.consumers() == 0


def test_one_that_wants_more_than_payloads_reads_no_runs(feed: Feed, in_runs: list[int]) -> None:
    fill(feed, "of one size")
    batches(feed, ("data", "sequence"), Slice(0, COUNT))
    batches(feed, ("data",), Slice(0, COUNT), subjects=f"{feed.name}.n")
    assert in_runs == []


def test_messages_that_expired_before_they_were_read_are_missed_all_the_same(
    make_feed: Callable[..., Feed], in_runs: list[int]
) -> None:
    feed = make_feed(max_msgs=5000)
    fill(feed, "of one size")
    lost = "messages after 0 were removed"
    with pytest.raises(Exception, match=lost):
        batches(feed, ("data", "sequence"), Slice(0, COUNT))
    with pytest.raises(Exception, match=lost):
        batches(feed, ("data",), Slice(0, COUNT))
    rest = batches(feed, ("data",), Slice(0, COUNT), failOnDataLoss="false")
    assert sum(batch.num_rows for batch in rest) == 5000
    assert in_runs


VALUE = (
    Wanted("n", "bigint", source="", type=pa.int64()),
    Wanted("on", "date", source="", type=pa.date32()),
    Wanted("_rescued", "string", source="", type=pa.string()),
)
SEQUENCE = Wanted("sequence", "bigint", source="sequence")


def document(index: int) -> bytes:
    if index == 4500:
        return b'{"n": "no number"}'
    if index == 4501:
        return b"no document"
    return b' {"n": %d, "on": "2024-02-29"}' % index


@pytest.mark.parametrize("mode", ["permissive", "dropmalformed"])
def test_json_is_decoded_as_in_a_read_of_all_columns(
    feed: Feed, mode: str, in_runs: list[int]
) -> None:
    feed.publish(["n"] * COUNT, document)
    more = {"valueFormat": "json", "mode": mode, "rowsPerBatch": "1000"}
    whole = batches(feed, (*VALUE, SEQUENCE), Slice(0, COUNT), **more)
    assert in_runs == []
    alone = batches(feed, VALUE, Slice(0, COUNT), **more)
    assert sum(in_runs) > COUNT // 2
    assert alone == [batch.drop_columns(["sequence"]) for batch in whole]
    values = pa.Table.from_batches(alone)
    assert values.num_rows == (COUNT if mode == "permissive" else COUNT - 2)
    assert values["n"].to_pylist()[4499] == 4499


def test_a_document_that_does_not_fit_is_named_with_its_sequence(
    feed: Feed, in_runs: list[int]
) -> None:
    feed.publish(["n"] * COUNT, document)
    with pytest.raises(BadMessageError, match="4501"):
        batches(feed, VALUE[:2], Slice(0, COUNT), valueFormat="json", mode="failfast")
    assert in_runs
    rest = batches(
        feed, VALUE[:2], Slice(0, COUNT), valueFormat="json", mode="failfast", onBadMessage="skip"
    )
    assert sum(batch.num_rows for batch in rest) == COUNT - 2


def test_text_is_read_as_in_a_read_of_all_columns(feed: Feed, in_runs: list[int]) -> None:
    texts = ["é" * (n % 7) for n in range(COUNT)]
    feed.publish(["n"] * COUNT, lambda index: b"\xff" if index == 9 else texts[index].encode())
    value = Wanted("value", "string", source="", type=pa.string())
    alone = batches(feed, (value,), Slice(0, COUNT), valueFormat="string")
    whole = batches(feed, (value, SEQUENCE), Slice(0, COUNT), valueFormat="string")
    assert in_runs
    assert alone == [batch.drop_columns(["sequence"]) for batch in whole]
    values = pa.Table.from_batches(alone)["value"].to_pylist()
    assert values == [*texts[:9], None, *texts[10:]]
