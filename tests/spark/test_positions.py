"""What is done with a frame again sees what came meanwhile, though Spark keeps its plan."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from headrace.pipeline.declaring.reading import read
from headrace.pipeline.running.run import run_here
from headrace.spark.batches.plans import plan_batch
from headrace.spark.links.pool import POOL
from headrace.spark.offsets import DataLossError
from headrace.spark.options import parse_options
from headrace.spark.tasks.read_slice import read_slice

from .conftest import ON_OURS, Feed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from headrace.spark.slices import Slice

    from .losses import Losses

pytestmark = pytest.mark.usefixtures("links_end", "own_notes")


@pytest.fixture
def own_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))


PIPELINE = '''[pipeline]
name = "joined"
checkpoint = "checkpoint"
[sources.orders]
options = {{ stream = "{orders}", servers = "{url}", maxOffsetsPerTrigger = 1 }}
[sources.people]
streaming = false
options = {{ stream = "{people}", servers = "{url}" }}
[views.joined]
sql = """
SELECT orders.sequence AS at, CAST(CAST(people.data AS string) AS int) AS number
FROM orders JOIN people ON people.data = orders.data
"""
[sinks.found]
from = "joined"
python = "fed.py:take"
'''


class Deaf:
    """Hears nothing of a run."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


# Each batch lets one more person come: that which the next batch asks for.
FED = """
import json
from pathlib import Path

from headrace import sync


def take(rows, number):
    with Path(__file__).with_name("found").open("a") as file:
        for row in rows.collect():
            print(json.dumps([number, row["at"], row["number"]]), file=file)
    with sync.connect("{url}") as connection:
        connection.jetstream().publish("{people}.p", b"%d" % (number + 2))
"""


def options(feed: Feed, **more: object) -> Any:
    given = {"stream": feed.name, "servers": feed.url} | {k: str(v) for k, v in more.items()}
    return parse_options(given, streaming=False)


def of(wanted: Any, piece: Slice, job: str) -> list[int]:
    read = read_slice(wanted, ("sequence",), piece, job)
    return [n for batch in read for n in batch.column("sequence").to_pylist()]


def all_of(wanted: Any, pieces: list[Slice], job: str = "1") -> list[int]:
    return [n for piece in pieces for n in of(wanted, piece, job)]


@pytest.mark.parametrize("seed", range(6))
def test_the_tasks_of_a_plan_read_a_stream_without_a_gap_whenever_each_begins(
    feed: Feed, seed: int
) -> None:
    choose = random.Random(seed)
    end = choose.randrange(0, 300)
    feed.publish_numbers(1, end)
    wanted = options(feed, minMessagesPerTask=40, maxTasks=choose.randrange(1, 6))
    pieces = plan_batch(wanted)
    planned = end
    for job in range(3):
        order = choose.sample(range(len(pieces)), len(pieces))
        found: dict[int, list[int]] = {}
        ends: list[int] = []
        for number in order:
            found[number] = of(wanted, pieces[number], str(job))
            ends.append(end)
            # As by the job itself, which appends what it has read.
            more = choose.randrange(0, 30)
            feed.publish_numbers(end + 1, end + more)
            end += more
        again = choose.choice(order)  # a task that Spark runs again
        assert of(wanted, pieces[again], str(job)) == found[again]
        rows = [n for number in range(len(pieces)) for n in found[number]]
        assert rows == list(range(1, ends[0] + 1 if job else planned + 1))


def test_a_stream_that_was_empty_when_it_was_planned_is_read_when_it_is_not(feed: Feed) -> None:
    for more in ({}, {"splitBy": "partition", "partitions": 3, "partitionBy": "hash"}):
        wanted = options(feed, **more)
        pieces = plan_batch(wanted)
        first = len(all_of(wanted, pieces))
        feed.publish_numbers(1, 5)
        assert len(all_of(wanted, pieces)) == first
        assert len(all_of(wanted, pieces, "2")) == first + 5


def test_a_subject_without_messages_yet_is_read_when_it_has_some(feed: Feed) -> None:
    feed.publish(["other"] * 20)
    wanted = options(feed, subjects=f"{feed.name}.mine")
    pieces = plan_batch(wanted)
    assert all_of(wanted, pieces) == []
    feed.publish(["other", "mine", "other", "mine"])
    assert all_of(wanted, pieces, "2") == [22, 24]


def test_edges_that_are_named_do_not_move(feed: Feed) -> None:
    feed.publish_numbers(1, 10)
    ends: tuple[tuple[dict[str, object], list[int]], ...] = (
        ({"endingOffsets": 10}, [*range(1, 11)]),
        ({"endingOffsets": 4}, [*range(1, 5)]),
        ({"startingOffsets": 3, "endingOffsets": 14}, [*range(3, 15)]),
        ({"endingTimestamp": "2013-01-01T00:00:00Z"}, []),
        ({"endingTimestamp": "2113-01-01T00:00:00Z"}, [*range(1, 21)]),
        ({"endingOffsets": json.dumps({feed.name: 10})}, [*range(1, 11)]),
    )
    planned = [plan_batch(options(feed, **given)) for given, _ in ends]
    for (given, _), pieces in zip(ends, planned, strict=True):
        all_of(options(feed, **given), pieces)
    feed.publish_numbers(11, 20)
    for (given, wanted), pieces in zip(ends, planned, strict=True):
        assert all_of(options(feed, **given), pieces, "2") == wanted, given


def test_what_limits_removed_between_two_reads_is_no_loss_where_one_task_reads_from_the_start(
    feed: Feed,
) -> None:
    feed.publish_numbers(1, 100)
    one, many, named = (
        options(feed, **more)
        for more in (
            {},
            {"minMessagesPerTask": 25},
            {"startingOffsets": 1},
        )
    )
    planned = [plan_batch(each) for each in (one, many, named)]
    assert [len(pieces) for pieces in planned] == [1, 4, 1]
    for wanted, pieces in zip((one, many), planned, strict=False):
        assert all_of(wanted, pieces) == [*range(1, 101)]
    feed.call(f"STREAM.PURGE.{feed.name}", {"seq": 11})
    feed.publish_numbers(101, 110)
    assert all_of(one, planned[0]) == [*range(11, 101)]
    assert all_of(one, planned[0], "2") == [*range(11, 111)]
    assert all_of(many, planned[1], "2") == [*range(11, 111)]
    with pytest.raises(DataLossError, match="removed"):
        all_of(named, planned[2])
    feed.call(f"STREAM.PURGE.{feed.name}", {"seq": 41})
    assert all_of(one, planned[0], "3") == [*range(41, 111)]
    with pytest.raises(DataLossError, match="removed"):  # what its second task was to read
        all_of(many, planned[1])


@pytest.mark.parametrize("before", [3, 100])
def test_a_stream_made_again_is_noticed_whatever_there_was_to_read(feed: Feed, before: int) -> None:
    feed.publish_numbers(1, before)
    wanted = options(feed)
    pieces = plan_batch(wanted)
    feed.call(f"STREAM.DELETE.{feed.name}")
    feed.create()
    feed.publish_numbers(1, 5)
    with pytest.raises(DataLossError, match=r"made again.*Load the frame anew"):
        all_of(wanted, pieces)


def test_a_lost_link_is_replaced_while_the_edge_is_asked_for(feed: Feed, losses: Losses) -> None:
    feed.publish_numbers(1, 10)
    wanted = options(feed)
    pieces = plan_batch(wanted)
    all_of(wanted, pieces)
    feed.publish_numbers(11, 12)
    for round_ in losses.rounds(at_least=5):
        POOL.close()  # it would begin with the link that the round before has left
        with losses:
            found = all_of(wanted, pieces, f"round {round_}")
        assert found == [*range(1, 13)]


def test_the_partitions_of_a_frame_have_what_came_meanwhile(feed: Feed) -> None:
    feed.publish([f"key{n % 50}" for n in range(600)])
    wanted = options(
        feed, splitBy="partition", partitions=6, partitionBy="hash=2", minMessagesPerTask=100
    )
    pieces = plan_batch(wanted)
    assert len(pieces) == 6
    assert {bool(piece.route) for piece in pieces} == {True}
    for end in (600, 640, 700):
        seen: list[int] = []
        for piece in pieces:
            found = of(wanted, piece, str(end))
            assert found == sorted(found)
            seen += found
            if piece is pieces[0]:  # each partition has the same end
                feed.publish([f"key{n % 50}" for n in range(40 if end == 600 else 60)])
        assert sorted(seen) == list(range(1, end + 1))


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore")
class TestInSpark:
    """Spark asks for a plan once for each frame: should it do so each time, these still hold."""

    def load(self, spark: SparkSession, feed: Feed, **more: object) -> DataFrame:
        reader = spark.read.format("jetstream").option("servers", feed.url)
        return reader.option("stream", feed.name).options(**more).load()  # type: ignore[arg-type]

    @ON_OURS
    def test_a_frame_and_a_view_that_are_used_again_have_what_came_meanwhile(
        self, spark: SparkSession, feed: Feed
    ) -> None:
        frame = self.load(spark, feed)
        frame.createOrReplaceTempView("again")
        using = f"USING jetstream OPTIONS (servers '{feed.url}', stream '{feed.name}')"
        view, table = f"made_{feed.name}", f"again_{feed.name}"
        spark.sql(f"CREATE TEMPORARY VIEW {view} {using}")
        spark.sql(f"CREATE TABLE {table} {using}")
        named = spark.table(table)
        bounded = self.load(spark, feed, endingOffsets=3)
        try:
            for end in (0, 10):
                feed.publish_numbers(feed.control.head()[0].last_seq + 1, end)
                assert frame.count() == end
                assert len(frame.where("sequence > 5").collect()) == max(0, end - 5)
                assert named.count() == end
                for name in ("again", view, table):
                    assert spark.sql(f"SELECT count(*) FROM {name}").collect()[0][0] == end
                assert bounded.count() == min(3, end)
        finally:
            spark.sql(f"DROP TABLE {table}")
            spark.sql(f"DROP VIEW {view}")

    @ON_OURS
    def test_a_frame_split_by_partition_and_used_twice_in_a_query_has_all_rows_in_both_uses(
        self, spark: SparkSession, feed: Feed
    ) -> None:
        feed.publish([f"key{n % 50}" for n in range(600)])
        split = {"splitBy": "partition", "partitions": 6, "partitionBy": "hash=2"}
        frame = self.load(spark, feed, minMessagesPerTask=100, **split)
        assert frame.union(frame).groupBy("sequence").count().where("count = 2").count() == 600
        assert frame.join(frame.select("sequence"), "sequence").count() == 600

    @ON_OURS
    def test_a_stream_joined_with_a_frame_meets_what_came_to_it_meanwhile(
        self, spark: SparkSession, make_feed: Callable[..., Feed], checkpoint: str
    ) -> None:
        orders, people = make_feed(), make_feed()
        people.publish(["p"], lambda _: b"1")
        number = "CAST(CAST(data AS string) AS int) AS number"
        static = self.load(spark, people).selectExpr(number)
        reader = spark.readStream.format("jetstream").option("servers", orders.url)
        rows = reader.option("stream", orders.name).load().selectExpr(number, "sequence AS at")
        seen: list[tuple[int, int]] = []

        def sink(batch: DataFrame, _: int) -> None:
            seen.extend((row.at, row.number) for row in batch.collect())

        writer = rows.join(static, "number").writeStream.foreachBatch(sink)
        query = writer.option("checkpointLocation", checkpoint).start()
        try:
            for new in (1, 2, 3):
                if new > 1:
                    people.publish(["p"], lambda _, new=new: b"%d" % new)  # type: ignore[misc]
                orders.publish(["o"], lambda _, new=new: b"%d" % new)  # type: ignore[misc]
                query.processAllAvailable()
                assert sorted(seen) == [(n, n) for n in range(1, new + 1)]
        finally:
            query.stop()

    @ON_OURS
    def test_a_table_of_a_pipeline_is_read_anew_by_each_batch(
        self, spark: SparkSession, make_feed: Callable[..., Feed], tmp_path: Path
    ) -> None:
        orders, people = make_feed(), make_feed()
        file = tmp_path / "joined.toml"
        file.write_text(PIPELINE.format(url=orders.url, orders=orders.name, people=people.name))
        (tmp_path / "fed.py").write_text(FED.format(url=orders.url, people=people.name))
        people.publish(["p"], lambda _: b"1")
        orders.publish(["o"] * 3, lambda n: b"%d" % (n + 1))
        (ended,) = run_here(read(file), spark, Deaf(), once=True)
        assert (ended.state, ended.problem) == ("done", None)
        found = [json.loads(line) for line in (tmp_path / "found").read_text().splitlines()]
        assert found == [[0, 1, 1], [1, 2, 2], [2, 3, 3]]

    @ON_OURS
    def test_a_job_that_appends_to_the_stream_it_reads_does_not_meet_its_own_rows(
        self, spark: SparkSession, feed: Feed
    ) -> None:
        feed.publish_numbers(1, 400)
        frame = self.load(spark, feed, minMessagesPerTask=50, maxTasks=8)
        for last in (800, 1600):  # the second job begins with what the first one has written
            rows = frame.select("subject", "data").write.format("jetstream").mode("append")
            rows.option("servers", feed.url).option("stream", feed.name).save()
            assert feed.control.head()[0].last_seq == last
