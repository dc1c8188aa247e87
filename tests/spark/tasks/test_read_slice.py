from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from headrace.api.streams import StreamConfig, StreamSource, SubjectTransformConfig
from headrace.errors import ConfigurationError
from headrace.spark.decoding.columns import layout_of
from headrace.spark.links.pool import POOL
from headrace.spark.options import parse_options
from headrace.spark.options.source import Use
from headrace.spark.reading import reader
from headrace.spark.set_aside import BYTES_MAX, file_beside, read_aside
from headrace.spark.slices import Slice, split_by_partition
from headrace.spark.tasks.bad_messages import BadMessageError
from headrace.spark.tasks.read_slice import read_slice, server_filter, writes_partition
from headrace.wire import parse_headers

from ..conftest import Feed
from ..queries import copied, put_back


def config(dest: str, src: str = "s.*", **changes: Any) -> StreamConfig:
    transform = SubjectTransformConfig(src=src, dest=dest)
    return StreamConfig(name="S", subjects=("s.*",), subject_transform=transform, **changes)


@pytest.mark.parametrize(
    ("the_config", "yes"),
    [
        (config("{{partition(4,1)}}.s.{{wildcard(1)}}"), True),
        (config("{{ Partition( 4 ) }}.s.{{wildcard(1)}}"), True),
        (config("{{partition(4,1)}}.s", src=">"), True),
        (config("{{partition(5,1)}}.s.{{wildcard(1)}}"), False),
        (config("s.{{partition(4,1)}}.x"), False),
        (config("{{partition(4,1)}}"), False),
        (config("{{wildcard(1)}}.s"), False),
        (config("{{partition(4,1)}}.s", src="s.a"), False),
        (config("{{partition(4,1)}}.s", sources=(StreamSource(name="O"),)), False),
        (StreamConfig(name="S", subjects=("s.*",)), False),
    ],
)
def test_only_the_stream_s_own_transform_makes_sure_of_a_partition_token(
    the_config: StreamConfig, yes: bool
) -> None:
    assert writes_partition(the_config, 4, 1) is yes


def test_a_server_is_given_one_pattern_or_none() -> None:
    sure = config("{{partition(4,1)}}.s.{{wildcard(1)}}")
    base = {"stream": "S", "splitBy": "partition", "partitions": "4"}
    plain = parse_options(base)
    assert server_filter(plain, Slice(0, 9, (3,)), sure) == "3.>"
    assert server_filter(plain, Slice(0, 9, (1, 3)), sure) == ""
    assert server_filter(plain, Slice(0, 9), sure) == ""
    assert server_filter(plain, Slice(0, 9, (3,)), StreamConfig(name="S")) == ""
    hashed = parse_options({**base, "partitionBy": "hash=2"})
    assert server_filter(hashed, Slice(0, 9, (3,)), sure) == ""
    second = parse_options({**base, "partitionBy": "token=2"})
    assert server_filter(second, Slice(0, 9, (3,)), config("s.{{partition(4,1)}}.x")) == "*.3.>"
    one = parse_options({**base, "subjects": "0.s.a"})
    assert server_filter(one, Slice(0, 9, (3,)), sure) == "0.s.a"
    two = parse_options({**base, "subjects": "0.s.a,1.s.b"})
    assert server_filter(two, Slice(0, 9, (3,)), sure) == ""


pytestmark = pytest.mark.usefixtures("links_end")


def options(feed: Feed, **more: str) -> Any:
    return parse_options({"stream": feed.name, "servers": feed.url, **more})


def rows(batches: list[pa.RecordBatch]) -> list[int]:
    return [n for batch in batches for n in batch.column("sequence").to_pylist()]


@pytest.mark.parametrize("guaranteed", [True, False])
@pytest.mark.parametrize("max_tasks", ["2", "6"])
def test_the_partitions_of_a_range_are_each_read_once_and_in_order(
    make_feed: Callable[..., Feed], guaranteed: bool, max_tasks: str
) -> None:
    feed = make_feed()
    if guaranteed:
        transform = {
            "src": f"{feed.name}.*",
            "dest": f"{{{{partition(6,1)}}}}.{feed.name}.{{{{wildcard(1)}}}}",
        }
        subjects = [f"{feed.name}.*"]
        feed.call(
            f"STREAM.UPDATE.{feed.name}",
            {"name": feed.name, "subjects": subjects, "subject_transform": transform},
        )
        rule = "token"
    else:
        rule = "hash=2"
    feed.publish([f"key{n % 50}" for n in range(3000)])
    wanted = options(
        feed, splitBy="partition", partitions="6", maxTasks=max_tasks, partitionBy=rule
    )
    seen: list[int] = []
    for piece in split_by_partition(10, 3000, partitions=6, max_tasks=int(max_tasks)):
        batches = list(read_slice(wanted, ("sequence", "partition"), piece))
        assert rows(batches) == sorted(rows(batches))
        assert {n for b in batches for n in b.column("partition").to_pylist()} <= set(
            piece.partitions
        )
        seen += rows(batches)
    assert sorted(seen) == list(range(11, 3001))
    assert feed.consumers() == 0


def test_a_message_outside_all_partitions_fails_the_task(feed: Feed) -> None:
    feed.publish(["0.a", "oops.b"])
    wanted = options(feed, splitBy="partition", partitions="2", partitionBy="token=2")
    with pytest.raises(ConfigurationError, match="belongs to none of the 2 partitions"):
        list(read_slice(wanted, ("sequence",), Slice(0, 2, (1,))))


def publish_poison(feed: Feed) -> None:
    """Messages 2 and 3 of five: a subject that is not text, a header line without a colon."""
    feed.publish(["a"])
    block = b"NATS/1.0\r\nno colon\r\n\r\n"
    name = feed.name.encode()
    feed.link.send(b"PUB %b.\xff %b 3\r\nbad\r\n" % (name, feed._inbox))
    feed.link.send(
        b"HPUB %b.h %b %d %d\r\n%bbad\r\n" % (name, feed._inbox, len(block), len(block) + 3, block)
    )
    acks: list[Any] = []
    while len(acks) < 2:
        acks += feed.link.poll(5.0)
    assert all(b'"seq"' in ack[5] for ack in acks), acks
    feed.publish(["b", "c"])


READ = ("sequence", "subject", "headers")


def test_bad_messages_are_skipped_and_counted(feed: Feed, caplog: pytest.LogCaptureFixture) -> None:
    publish_poison(feed)
    with pytest.raises(BadMessageError, match="message 2 cannot be read: its subject"):
        list(read_slice(options(feed), READ, Slice(0, 5)))
    wanted = options(feed, onBadMessage="skip")
    assert rows(list(read_slice(wanted, READ, Slice(0, 5)))) == [1, 4, 5]
    assert f"stream {feed.name!r}: 2 bad messages of this task were skipped" in caplog.text
    assert "the first is message 2: its subject" in caplog.text


def test_what_a_task_of_a_pipeline_sets_aside_is_noted_and_counted_once(
    feed: Feed, make_feed: Callable[..., Feed], tmp_path: Path
) -> None:
    publish_poison(feed)
    dead = make_feed()
    losses = tmp_path / "0001.losses.jsonl"
    use = Use("orders", (), "p/q", "r", str(losses)).text
    wanted = options(feed, onBadMessage="skip", pipeline=use)
    for _ in range(2):
        list(read_slice(wanted, READ, Slice(0, 5)))
    list(read_slice(wanted, READ, Slice(3, 5)))
    letters = options(feed, onBadMessage=f"deadletter:{dead.name}.bad", pipeline=use)
    list(read_slice(letters, READ, Slice(0, 2)))
    file = Path(file_beside(str(losses)))
    assert file.name == "0001.aside.jsonl"
    assert read_aside(file) == ({"skipped": 2, "dead_letters": 1}, False)
    feed.publish(["a"], lambda _: b"no json")
    decoded = options(feed, onBadMessage="skip", valueFormat="json", pipeline=use)
    layout = layout_of(decoded, StructType().add("sequence", "long").add("a", "integer"))
    list(read_slice(decoded, layout, Slice(5, 6)))
    assert read_aside(file)[0]["malformed"] == 1
    file.write_bytes(file.read_bytes() + b"{" + b" " * BYTES_MAX)
    before = file.stat().st_size
    list(read_slice(wanted, READ, Slice(1, 5)))
    assert file.stat().st_size == before
    assert read_aside(file) == ({"skipped": 2, "dead_letters": 1, "malformed": 1}, True)


def test_bad_messages_go_to_a_stream_as_dead_letters_and_once_however_often_a_batch_runs(
    make_feed: Callable[..., Feed], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    feed, dead = make_feed(), make_feed()
    publish_poison(feed)
    wanted = options(feed, onBadMessage=f"deadletter:{dead.name}.bad")
    piece = Slice(0, 5)
    assert rows(list(read_slice(wanted, READ, piece))) == [1, 4, 5]
    put_back(feed, copied(feed, tmp_path / "copy"))
    assert rows(list(read_slice(wanted, READ, piece))) == [1, 4, 5]
    monkeypatch.setattr(reader, "FEW", 0)  # the other way to read has the same times
    assert rows(list(read_slice(wanted, READ, piece))) == [1, 4, 5]
    letters = dead.stored(range(1, 10))
    assert [letter.payload for letter in letters] == [b"bad", b"bad"]
    first, second = (parse_headers(letter.headers) for letter in letters)
    assert first["Headrace-Sequence"] == "2"
    assert first["Headrace-Subject"] == f"{feed.name}.\\xff"
    assert "not UTF-8" in first["Headrace-Failure"]
    assert second["Headrace-Stream"] == feed.name
    assert b"no colon" in base64.b64decode(second["Headrace-Headers"])


def test_a_dead_letter_that_is_too_large_names_its_message(make_feed: Callable[..., Feed]) -> None:
    feed, dead = make_feed(), make_feed()
    body = b"x" * feed.link.info.max_payload
    name = feed.name.encode()
    feed.link.send(b"PUB %b.\xff %b %d\r\n%b\r\n" % (name, feed._inbox, len(body), body))
    assert feed.link.poll(5.0)
    wanted = options(feed, onBadMessage=f"deadletter:{dead.name}.bad")
    with pytest.raises(BadMessageError, match="message 1 is too large for a dead letter"):
        list(read_slice(wanted, READ, Slice(0, 1)))


def test_dead_letters_that_no_stream_takes_fail_the_task(feed: Feed) -> None:
    publish_poison(feed)
    wanted = options(feed, onBadMessage="deadletter:nobody.listens")
    with pytest.raises(ConfigurationError, match=r"no stream takes the subject 'nobody\.listens'"):
        list(read_slice(wanted, READ, Slice(0, 5)))


def test_a_worker_keeps_its_connection_from_task_to_task(feed: Feed) -> None:
    feed.publish_numbers(1, 10)
    wanted = options(feed)
    for _ in range(3):
        assert rows(list(read_slice(wanted, ("sequence",), Slice(0, 10)))) == list(range(1, 11))
    (kept,) = POOL._idle
    kept.link._sock.shutdown(2)
    assert rows(list(read_slice(wanted, ("sequence",), Slice(5, 10)))) == [6, 7, 8, 9, 10]
    assert [each.link.is_alive() for each in POOL._idle] == [True]
