"""Parts of declared pipelines in a real session: plans, expectations, replays."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.errors import ConfigurationError
from headrace.pipeline import resets
from headrace.pipeline.checking.sources_and_sinks import check
from headrace.pipeline.checkpoints.checkpoint import Start, checkpoint_of
from headrace.pipeline.checkpoints.fingerprints import tell_changes
from headrace.pipeline.checkpoints.totals import Batch, Totals
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.model import NO_CONSENT, Consent, Declared, PipelineError
from headrace.pipeline.queries.frames import Frames, start
from headrace.pipeline.running.run import replay, run_here
from headrace.pipeline.running.runner import Ended
from headrace.pipeline.status.status import status_of
from headrace.pipeline.triggers import AVAILABLE_NOW
from headrace.spark.lost_messages import Loss

from .conftest import ON_OURS, Feed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FILE = """[pipeline]
name = "numbers"
checkpoint = "checkpoint"
[sources.orders]
options = {{ stream = "{stream}", servers = "{url}" }}
[views.numbers]
sql = "SELECT sequence, CAST(substring(CAST(data AS string), 2) AS int) AS number FROM orders"
[[views.numbers.expect]]
check = "number <> 4"
otherwise = "quarantine"
to = "fours"
[[views.numbers.expect]]
name = "small"
check = "number < 8"
otherwise = "fail"
[views.tenfold]
sql = "SELECT sequence, number * 10 AS number FROM numbers"
[sinks.out]
from = "tenfold"
format = "json"
options = {{ path = "out" }}
[sinks.fours]
format = "json"
options = {{ path = "fours" }}
"""


@pytest.fixture
def declare(feed: Feed, tmp_path: Path) -> Callable[..., Declared]:
    feed.publish_numbers(1, 6)

    def make(*changes: tuple[str, str]) -> Declared:
        text = FILE.format(stream=feed.name, url=feed.url)
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        file = tmp_path / "numbers.toml"
        file.write_text(text)
        return read(file)

    return make


def rows(folder: Path) -> list[dict[str, object]]:
    files = [file for file in folder.glob("part-*") if file.is_file()]
    found = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return sorted(found, key=lambda row: row["sequence"])


def out_alone(declared: Declared) -> Declared:
    """Without the other query."""
    return replace(declared, sinks={"out": declared.sinks["out"]})


@ON_OURS
@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        (("AS number FROM orders", "AS number, nothing FROM orders"), 6, "nothing"),
        (('check = "number < 8"', 'check = "number <"'), 12, "PARSE_SYNTAX_ERROR"),
        (('check = "number <> 4"', 'check = "amount > 4"'), 8, "amount"),
        (("number * 10", "tenfold(number)"), 16, "tenfold"),
    ],
)
def test_what_spark_refuses_has_the_line_of_that_part(
    spark: SparkSession,
    declare: Callable[..., Declared],
    change: tuple[str, str],
    line: int,
    said: str,
) -> None:
    declared = declare(change)
    with pytest.raises(PipelineError) as caught:
        Frames(spark, declared, "out").of_sink(declared.sinks["out"])
    (problem,) = caught.value.problems
    assert problem.place.line == line
    assert said in problem.text
    assert "\n" not in problem.text


@ON_OURS
def test_a_row_that_must_not_fail_ends_the_query_with_its_expectation(
    spark: SparkSession, declare: Callable[..., Declared], feed: Feed
) -> None:
    declared = declare()
    sink = declared.sinks["out"]
    generation = checkpoint_of(declared, "out").current()
    query = start(spark, declared, sink, generation, AVAILABLE_NOW).query
    query.awaitTermination()
    assert [row["number"] for row in rows(declared.file.parent / "out")] == [10, 20, 30, 50, 60]
    feed.publish_numbers(7, 9)
    query = start(spark, declared, sink, generation, AVAILABLE_NOW).query
    with pytest.raises(Exception, match=r"fails the expectation 'small' \(.*numbers.toml:12\)"):
        query.awaitTermination()
    assert len(rows(declared.file.parent / "out")) == 5, "nothing of that batch"


class Listening:
    """Hears the batches of a run."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.losses: list[tuple[str, Loss]] = []

    def batch(self, batch: Batch, totals: Totals) -> None:
        self.batches.append(batch)

    def lost(self, query: str, loss: Loss) -> None:
        self.losses.append((query, loss))

    def __getattr__(self, event: str) -> Callable[..., None]:
        return lambda *what: None


@ON_OURS
def test_messages_that_are_gone_are_told_with_their_range_and_number(
    spark: SparkSession, declare: Callable[..., Declared], feed: Feed
) -> None:
    lax = ('servers = "', 'failOnDataLoss = false, servers = "')
    declared = declare(lax)
    run_here(declared, spark, Listening(), once=True)
    feed.publish_numbers(5, 6)
    feed.publish_numbers(1, 2)
    feed.call(f"STREAM.PURGE.{feed.name}", {"seq": 10})
    heard = Listening()
    ended = run_here(declared, spark, heard, once=True)
    assert [each.problem for each in ended] == [None, None]
    loss = Loss(feed.name, 7, 9, 3)
    assert sorted(heard.losses) == [("fours", loss), ("out", loss)]
    assert [row["number"] for row in rows(declared.file.parent / "out")][-1] == 20
    out, _ = status_of(declared)
    assert out.lost == (loss,)
    assert str(loss) in out.notes
    assert out.document()["lost"] == [loss._asdict()]


LATE = """[pipeline]
name = "late"
checkpoint = "checkpoint"
[sources.orders]
options = {{ stream = "{stream}", servers = "{url}" }}
[views.times]
sql = "SELECT timestamp_seconds(CAST(substring(CAST(data AS string), 2) AS int)) AS time FROM orders"
[views.late]
sql = "SELECT * FROM times"
watermark = {{ column = "time", delay = "10s" }}
[[views.late.expect]]
check = "time < timestamp '1970-01-02'"
[views.windows]
sql = "SELECT window(time, '10 seconds') AS window, count(*) AS n FROM late GROUP BY 1"
[sinks.out]
from = "windows"
format = "json"
options = {{ path = "out" }}
[sinks.times]
from = "times"
python = "windows.py:seen"
[sinks.nowhere]
from = "times"
format = "noop"
"""
LATE_VIEWS = """
def seen(rows, number):
    rows.collect()
"""


@ON_OURS
def test_rows_out_watermarks_and_late_rows_are_summed(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    file = tmp_path / "late.toml"
    file.write_text(LATE.format(stream=feed.name, url=feed.url))
    (tmp_path / "windows.py").write_text(LATE_VIEWS)
    declared = read(file)
    heard = Listening()
    windows_alone = out_alone(declared)
    runs = ((15, windows_alone), (90_000, windows_alone), (40, windows_alone), (3, declared))
    for number, run in runs:
        feed.publish_numbers(number, number)
        run_here(run, spark, heard, once=True)
    windows, times, nowhere = status_of(declared)
    assert windows.totals.late == 1
    assert windows.totals.watermark == "1970-01-01T00:00:30.000Z", (
        "no row that is left out moved it"
    )
    assert windows.totals.rows_out == 1, "one window is over"
    assert (windows.totals.rows, times.totals.rows, nowhere.totals.rows) == (4, 4, 4)
    assert (times.totals.rows_out, nowhere.totals.rows_out) == (4, 4)
    assert (times.totals.late, times.totals.watermark) == (0, "")


@ON_OURS
@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("tim", "view 'late' gives no column 'tim' for its watermark; did you mean 'time'?"),
        ("number", "column 'number' of view 'late' is INT, and a watermark is of a TIMESTAMP"),
    ],
)
def test_a_watermark_of_no_time_has_the_line_of_its_key(
    spark: SparkSession, feed: Feed, tmp_path: Path, column: str, said: str
) -> None:
    file = tmp_path / "late.toml"
    text = LATE.format(stream=feed.name, url=feed.url).replace(
        'column = "time"', f'column = "{column}"'
    )
    file.write_text(text.replace("SELECT * FROM times", "SELECT *, 1 AS number FROM times"))
    (tmp_path / "windows.py").write_text(LATE_VIEWS)
    declared = read(file)
    with pytest.raises(PipelineError) as caught:
        Frames(spark, declared, "out").of_sink(declared.sinks["out"])
    (problem,) = caught.value.problems
    assert problem.place.line == 10
    assert said in problem.text


@ON_OURS
def test_a_batch_that_only_a_killed_runner_has_written_is_told_as_missing_in_the_sums(
    spark: SparkSession, declare: Callable[..., Declared], feed: Feed
) -> None:
    declared = out_alone(declare())
    run_here(declared, spark, Listening(), once=True)
    generation = checkpoint_of(declared, "out").current()
    assert generation.totals is not None
    (Path(generation.path) / "commits" / "0").unlink()  # what a kill leaves that comes between
    (Path(generation.path) / "commits" / ".0.crc").unlink()  # the log of the sink and Spark's
    generation.totals.unlink()
    feed.publish_numbers(5, 6)
    heard = Listening()
    run_here(declared, spark, heard, once=True)

    batches = [each for each in heard.batches if each.query == "out"]
    assert [(each.number, each.rows, each.was_written) for each in batches] == [
        (0, 0, True),
        (1, 2, False),
    ]
    totals = Totals(generation.totals)
    assert (totals.rows, totals.views["numbers"].rows, totals.missed) == (2, 2, 1)
    assert totals.rows_out == 2
    found = [row["number"] for row in rows(declared.file.parent / "out")]
    assert found == [10, 20, 30, 50, 60, 50, 60], "nothing was written twice"


@ON_OURS
def test_a_range_goes_through_a_query_again_into_results_of_its_own(
    spark: SparkSession, declare: Callable[..., Declared]
) -> None:
    declared = declare()
    out, fours = declared.sinks["out"], declared.sinks["fours"]
    first, last = Start("sequence", "2"), Start("sequence", "5")
    replay(declared, spark, out, out, "fix", first, last)
    folder = declared.file.parent
    assert [row["number"] for row in rows(folder / "out-fix")] == [20, 30, 50]
    with pytest.raises(ConfigurationError, match="results of an earlier replay"):
        replay(declared, spark, out, out, "fix", first, last)
    replay(declared, spark, fours, out, "fours", first, Start("latest"))
    assert rows(folder / "out-fours") == [{"sequence": 4, "number": 4, "failed": ["number <> 4"]}]
    assert not (folder / "checkpoint").exists()


KEYED = """[pipeline]
name = "keyed"
checkpoint = "checkpoint"
[sources.orders]
schema = "sequence bigint, user string, n bigint"
[sources.orders.options]
stream = "{stream}"
servers = "{url}"
valueFormat = "json"
maxOffsetsPerTrigger = 60
minMessagesPerTask = 30
[views.totals]
sql = "SELECT user, count(*) AS orders, max(n) AS n FROM orders GROUP BY user"
[sinks.last]
from = "orders"
format = "jetstream"
options = {{ servers = "{url}", bucket = "last{stream}", key = "user" }}
[sinks.totals]
from = "totals"
format = "jetstream"
mode = "update"
[sinks.totals.options]
servers = "{url}"
bucket = "totals{stream}"
key = "user"
delivery = "exactlyOnce"
sinkId = "totals"
[sinks.whole]
from = "totals"
format = "jetstream"
mode = "complete"
options = {{ servers = "{url}", stream = "{out}", subject = "{out}.whole.{{user}}", key = "user" }}
[sinks.changes]
from = "totals"
format = "jetstream"
mode = "update"
[sinks.changes.options]
servers = "{url}"
stream = "{out}"
subject = "{out}.changes"
delivery = "exactlyOnce"
sinkId = "changes"
markerPrefix = "{out}._marks"
"""


@ON_OURS
def test_sinks_keep_the_latest_in_every_output_mode_and_numbered_batches_are_written_once(
    spark: SparkSession, make_feed: Callable[..., Feed], tmp_path: Path
) -> None:
    feed, out = make_feed(), make_feed(allow_atomic=True)
    buckets = [f"last{feed.name}", f"totals{feed.name}"]
    for bucket in buckets:
        config = {"subjects": [f"$KV.{bucket}.>"], "max_msgs_per_subject": 1, "allow_direct": True}
        feed.call(f"STREAM.CREATE.KV_{bucket}", {"name": f"KV_{bucket}", **config})
    file = tmp_path / "keyed.toml"
    file.write_text(KEYED.format(stream=feed.name, url=feed.url, out=out.name))
    declared = read(file)
    problems, _ = check(declared)
    assert not problems

    def publish(first: int, last: int) -> None:
        rows = [b'{"user":"u%d","n":%d}' % (number % 9, number) for number in range(first, last)]
        feed.publish(["a"] * len(rows), rows.__getitem__)

    def value(subject: str, stream: str) -> dict[str, int]:
        answer = feed.call(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
        document: dict[str, int] = json.loads(base64.b64decode(answer["message"]["data"]))
        return document

    def check_all(last: int) -> None:
        for user in range(9):
            mine = [number for number in range(last) if number % 9 == user]
            name = f"u{user}"
            row = {"user": name, "n": mine[-1]}
            assert value(f"$KV.{buckets[0]}.{name}", f"KV_{buckets[0]}") == {
                "sequence": mine[-1] + 1, **row,
            }  # fmt: skip
            total = {**row, "orders": len(mine)}
            assert value(f"$KV.{buckets[1]}.{name}", f"KV_{buckets[1]}") == total
            assert value(f"{out.name}.whole.{name}", out.name) == total

    publish(0, 100)
    heard = Listening()
    ended = run_here(declared, spark, heard, once=True)
    assert [each.problem for each in ended] == [None] * 4
    assert Counter(each.query for each in heard.batches) == Counter(
        dict.fromkeys(declared.sinks, 2)
    )
    check_all(100)
    last = out.control.stream_info().state.last_seq
    found = [m for m in out.stored(range(1, last + 1)) if m.subject.endswith(b".changes")]
    assert len(found) == 9 * 2, "each of the batches changes all totals once"
    with pytest.raises(ConfigurationError, match="would put older ones over them"):
        sink = declared.sinks["last"]
        replay(declared, spark, sink, sink, "fix", Start("sequence", "1"), Start("latest"))
    for bucket in buckets:
        feed.call(f"STREAM.DELETE.KV_{bucket}")


TWO_SOURCES = """[pipeline]
name = "numbers"
checkpoint = "checkpoint"
[sources.{a}]
options = {{ stream = "{stream}", subjects = "{stream}.a", servers = "{url}", onStreamReset = "earliest" }}
[sources.{b}]
options = {{ stream = "{other}", subjects = "{other}.b", servers = "{url}", onStreamReset = "earliest" }}
[views.{view}]
sql = "SELECT sequence, CAST(substring(CAST(data AS string), 2) AS int) AS number FROM {first} UNION ALL \
SELECT sequence, CAST(substring(CAST(data AS string), 2) AS int) AS number FROM {second}"
[sinks.out]
from = "{view}"
format = "json"
options = {{ path = "out" }}
"""


@ON_OURS
def test_sources_that_changed_places_or_streams_are_refused_with_their_cause(
    spark: SparkSession, feed: Feed, make_feed: Callable[..., Feed], tmp_path: Path
) -> None:
    other = make_feed()
    file = tmp_path / "numbers.toml"
    names = {"a": "paid", "b": "refunds", "first": "paid", "second": "refunds", "view": "all"}
    as_before = {**names, "stream": feed.name, "other": feed.name, "url": feed.url}

    def said(*, is_turned: bool = False, **changes: str) -> str:
        lines = TWO_SOURCES.format(**{**as_before, **changes}).splitlines(keepends=True)
        if is_turned:
            lines[3:7] = [*lines[5:7], *lines[3:5]]
        file.write_text("".join(lines))
        (ended,) = run_here(read(file), spark, Listening(), once=True)
        return ended.problem.text if ended.problem is not None else ""

    for each in (feed, other):
        each.publish_numbers(1, 3, "a")
        each.publish_numbers(4, 6, "b")
    assert said() == ""
    out = tmp_path / "out"
    assert [row["number"] for row in rows(out)] == [1, 2, 3, 4, 5, 6]
    swapped = said(first="refunds", second="paid")
    assert "its sources were put in another order" in swapped
    replaced = said(other=other.name)
    assert (
        f"the checkpoint is of stream '{feed.name}', and the source reads '{other.name}'"
        in replaced
    )
    assert "onStreamReset" not in swapped + replaced
    feed.publish_numbers(7, 8, "b")
    assert len(rows(out)) == 6, "nothing of it was written"
    renamed = {"a": "sales", "first": "sales", "view": "everything"}
    assert said(is_turned=True, **renamed) == "", "names, and places in the file, change nothing"
    assert [row["number"] for row in rows(out)] == [1, 2, 3, 4, 5, 6, 7, 8]


PAIRS = """
[views.pairs]
sql = "SELECT a.sequence, a.number + b.number AS number FROM numbers a JOIN numbers b USING (sequence)"
"""


@ON_OURS
def test_a_source_with_a_durable_is_joined_with_itself(
    spark: SparkSession, declare: Callable[..., Declared], feed: Feed
) -> None:
    declared = declare(
        ('servers = "', 'durable = "shown", servers = "'),
        ('[sinks.out]\nfrom = "tenfold"', f'{PAIRS}[sinks.out]\nfrom = "pairs"'),
    )
    for _ in range(2):
        ended = run_here(declared, spark, Listening(), once=True)
        assert [each.problem for each in ended] == [None, None]
        feed.publish_numbers(1, 2)
    found = [row["number"] for row in rows(declared.file.parent / "out")]
    assert found == [2, 4, 6, 10, 12, 2, 4]
    out, _ = status_of(declared)
    (state,) = out.sources
    assert (state.sequence, state.durable) == (8, 2)


@ON_OURS
def test_results_are_never_written_by_a_query_with_another_checkpoint(
    spark: SparkSession, declare: Callable[..., Declared], feed: Feed
) -> None:
    """Here and below a URL, which only Spark reaches."""
    name, checkpoint = 'name = "numbers"', 'checkpoint = "checkpoint"'

    def run(declared: Declared) -> Ended:
        (ended,) = run_here(out_alone(declared), spark, Listening(), once=True)
        return ended

    for folder, path in (("", "out"), ("url/", "file:{folder}/url/out")):
        first = declare()
        home = first.file.parent
        place = path.format(folder=home)
        at = f"file://{home}/url/checkpoint" if folder else "checkpoint"
        changes = [(checkpoint, f'checkpoint = "{at}"'), ('path = "out"', f'path = "{place}"')]
        first = declare(*changes)
        assert run(first).problem is None, folder
        results = home / folder / "out"
        before = rows(results)
        assert len(before) == 5

        ended = run(declare(*changes, (name, 'name = "renamed"')))
        assert ended.state == "failed"
        assert ended.problem is not None
        said = ended.problem.text
        assert "has the results of query 'out' of pipeline 'numbers', generation 1" in said
        assert rows(results) == before
        assert run(declare(*changes)).problem is None, "with its name it goes on"
    (anew,) = resets.chosen(renamed := declare((name, 'name = "renamed"')), ["out"])
    ((_, generation, _),) = resets.reset(renamed, [anew], Start("earliest"))
    query = start(spark, renamed, anew, generation, AVAILABLE_NOW).query
    query.awaitTermination()
    assert rows(home / "out-g2") == rows(home / "out")
    with pytest.raises(ConfigurationError, match="that of a generation"):
        replay(renamed, spark, anew, anew, "g2", Start("earliest"), Start("latest"))


SINKS = """
import json
from pathlib import Path

HERE = Path(__file__).parent


def written(key, rows):
    \"\"\"A table that has each key once.\"\"\"
    file = HERE / "table.json"
    table = json.loads(file.read_text()) if file.exists() else {}
    table.setdefault(key, [row["number"] for row in rows.collect()])
    file.write_text(json.dumps(table))


def two(rows, number):
    written(str(number), rows)


def three(rows, number, run):
    written(f"{run} {number}", rows)
"""


@ON_OURS
@pytest.mark.parametrize("function", ["two", "three"])
def test_a_function_that_knows_its_batches_misses_no_run(
    spark: SparkSession,
    declare: Callable[..., Declared],
    feed: Feed,
    function: str,
    tmp_path: Path,
) -> None:
    (tmp_path / "sinks.py").write_text(SINKS)
    change = 'from = "tenfold"\nformat = "json"\noptions = { path = "out" }'
    declared = declare((change, f'from = "tenfold"\npython = "sinks.py:{function}"'))
    home = declared.file.parent
    out = declared.sinks["out"]

    def run() -> None:
        generation = checkpoint_of(declared, "out").current()
        start(spark, declared, out, generation, AVAILABLE_NOW).query.awaitTermination()

    def table() -> dict[str, list[int]]:
        return dict(json.loads((home / "table.json").read_text()))

    run()
    generation = Path(checkpoint_of(declared, "out").current().path)
    (generation / "commits" / "0").unlink()  # what a kill leaves after the function
    (generation / "commits" / ".0.crc").unlink(missing_ok=True)
    run()
    assert list(table().values()) == [[10, 20, 30, 50, 60]], "nothing twice"
    first, last = Start("sequence", "2"), Start("latest")
    replay(declared, spark, out, out, "fix", first, last)
    with pytest.raises(ConfigurationError, match="there was a replay 'fix'"):
        replay(declared, spark, out, out, "fix", first, last)
    feed.publish_numbers(1, 2)
    run()
    resets.reset(declared, [out], Start("sequence", "5"))
    run()
    assert list(table().values()) == [
        [10, 20, 30, 50, 60],
        [20, 30, 50, 60],
        [10, 20],
        [50, 60, 10, 20],
    ]
    if function == "two":
        assert list(table()) == ["0", "1", "2", "3"]
        return
    runs = [key.split()[0] for key in table()]
    assert runs[0] == runs[2]
    assert len(set(runs)) == 3
    assert runs[1].startswith("numbers-out-replay-fix-")


WINDOWS = """[pipeline]
name = "numbers"
checkpoint = "checkpoint"
[sources.orders]
options = {{ stream = "{stream}", servers = "{url}" }}
[sources.others]
options = {{ stream = "{stream}", servers = "{url}" }}
[views.counted]
sql = "{sql}"
[sinks.out]
from = "counted"
format = "noop"
mode = "update"
"""
COUNTED = (
    "SELECT window(timestamp, '5 minutes') AS w, count(*) AS n FROM orders "
    "WHERE sequence > 0 GROUP BY window(timestamp, '5 minutes')"
)


@ON_OURS
def test_a_change_of_what_state_is_kept_by_is_refused_and_other_changes_are_said(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    file = tmp_path / "numbers.toml"
    feed.publish_numbers(1, 3)

    def said(sql: str, consent: Consent = NO_CONSENT) -> str:
        file.write_text(WINDOWS.format(stream=feed.name, url=feed.url, sql=sql))
        (ended,) = run_here(read(file), spark, Listening(), once=True, consent=consent)
        feed.publish_numbers(1, 2)
        return ended.problem.text if ended.problem is not None else ""

    wider = COUNTED.replace("5 minutes", "10 minutes")
    assert said(COUNTED) == ""
    assert tell_changes(read(file)) == ([], [])
    refused = said(wider)
    assert "kept state of count(1) by windows of 5m of timestamp when it last ran" in refused
    assert "and would now keep count(1) by windows of 10m of timestamp" in refused
    assert f"headrace pipeline reset {file} --query out --to earliest" in refused
    by_subject = "SELECT subject, count(*) AS n FROM orders GROUP BY subject"
    assert "would now keep count(1) by subject" in said(by_subject)
    sums = COUNTED.replace("count(*)", "sum(sequence)")
    assert "would now keep sum(sequence) by windows of 5m" in said(sums)
    both = f"{COUNTED} UNION ALL {COUNTED.replace('orders', 'others')}"
    assert "reads 2 sources, and its checkpoint is of 1: 'others' came" in said(both)
    (problem,), _ = tell_changes(read(file))
    assert "'others' came" in problem.text, "validate says it, too"

    filtered = COUNTED.replace("sequence > 0", "sequence > 1").replace("AS n", "AS many")
    file.write_text(WINDOWS.format(stream=feed.name, url=feed.url, sql=filtered))
    problems, (changed,) = tell_changes(read(file))
    assert problems == []
    assert changed.startswith(
        "query out since it last ran: view 'counted' has changed; the rows from"
    )
    assert "it keeps state of count(1) by windows of 5m of timestamp, and --plan says" in changed
    assert said(filtered) == "", "of the same state"
    assert tell_changes(read(file)) == ([], [])
    assert said(wider, Consent(changes=True)) == ""
    assert said(wider) == "", "it was accepted"
