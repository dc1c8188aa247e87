"""Messages on which a pipeline's code fails: named, or put into quarantine, and the rest goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace import sync
from headrace.pipeline.checkpoints.checkpoint import checkpoint_of, read_skipped
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.failures.causes import Poison
from headrace.pipeline.running.run import run_here

from .conftest import ON_OURS, Feed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet:FutureWarning"),
]
MESSAGES, BAD = 3, (2,)
"""Few: batches with many messages and several bad ones are searched in ``tests/pipeline/failures``."""

FILE = """[pipeline]
name = "numbers"
checkpoint = "checkpoint"
on_failure = "continue"
[sources.orders]
options = {{ stream = "{stream}", servers = "{url}" }}
[views.numbers]
sql = "SELECT sequence, CAST(substring(CAST(data AS string), 2) AS int) AS number FROM orders"
[views.tenfold]
python = "views.py:tenfold"
{otherwise}
[sinks.out]
from = "tenfold"
format = "json"
options = {{ path = "out" }}
"""

VIEWS = """import pyarrow as pa


def tenfold(numbers):
    return numbers.mapInArrow(multiplied, "sequence bigint, number bigint")


def multiplied(batches):
    for batch in batches:
        numbers = [checked(each) for each in batch.column("number").to_pylist()]
        yield pa.RecordBatch.from_arrays([batch.column("sequence"), pa.array(numbers)],
                                         ["sequence", "number"])


def checked(number):
    if number == 2:
        raise ValueError("it is bad")
    return 10 * number
"""


class Heard:
    """The poison that a run tells of."""

    def __init__(self) -> None:
        self.poisons: list[tuple[str, Poison, bool]] = []

    def poison(self, query: str, poison: Poison, *, quarantined: bool) -> None:
        self.poisons.append((query, poison, quarantined))

    def __getattr__(self, event: str) -> Callable[..., None]:
        return lambda *what: None


def rows(folder: Path) -> list[int]:
    files = [file for file in folder.glob("part-*") if file.is_file()]
    lines = [line for file in files for line in file.read_text().splitlines()]
    return sorted(json.loads(line)["number"] for line in lines)


@ON_OURS
def test_a_message_that_fails_is_named_and_in_quarantine_it_is_the_only_row_missing(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    feed.publish_numbers(1, MESSAGES)
    (tmp_path / "views.py").write_text(VIEWS)
    file = tmp_path / "numbers.toml"
    file.write_text(FILE.format(stream=feed.name, url=feed.url, otherwise=""))
    heard = Heard()
    (ended,) = run_here(read(file), spark, heard, once=True)
    assert ended.state == "failed"
    said = (
        f"message 2 of stream '{feed.name}', subject '{feed.name}.n', fails in view 'tenfold', function "
        f"checked ({tmp_path}/views.py:17): ValueError: it is bad ({tmp_path}/views.py:17, in checked)"
    )
    assert str(ended.problem).endswith("; " + said)
    ((query, found, quarantined),) = heard.poisons
    assert (query, found.sequence, found.function, quarantined) == ("out", 2, "checked", False)
    assert rows(tmp_path / "out") == []

    letters = f"LETTERS{feed.name}"
    feed.call(f"STREAM.CREATE.{letters}", {"name": letters, "subjects": [f"dead.{feed.name}"]})
    aside = f'otherwise = "quarantine"\nletters = "dead.{feed.name}"'
    file.write_text(FILE.format(stream=feed.name, url=feed.url, otherwise=aside))
    declared = read(file)
    heard = Heard()
    (ended,) = run_here(declared, spark, heard, once=True)
    assert (ended.state, ended.problem) == ("done", None)
    assert ended.restarts >= 1, "more where a worker was lost by accident, as on a busy machine"
    told = [(each.sequence, aside) for _, each, aside in heard.poisons]
    assert told == [(number, True) for number in BAD]
    expected = [10 * number for number in range(1, MESSAGES + 1) if number not in BAD]
    assert rows(tmp_path / "out") == expected
    check_letters(feed, letters, said)

    feed.publish_numbers(MESSAGES + 1, MESSAGES + 2)
    run_here(declared, spark, Heard(), once=True)
    more = [10 * number for number in range(MESSAGES + 1, MESSAGES + 3)]
    assert rows(tmp_path / "out") == expected + more
    skipped = read_skipped(checkpoint_of(declared, "out").current())
    assert [(each.source, each.sequence, each.view) for each in skipped] == [
        ("orders", number, "tenfold") for number in BAD
    ]
    feed.call(f"STREAM.DELETE.{letters}")


def check_letters(feed: Feed, letters: str, said: str) -> None:
    with sync.connect(feed.url) as connection:
        consumer = connection.jetstream().stream(letters).ordered_consumer()
        found = consumer.fetch(len(BAD), max_wait=10)
    assert [each.payload for each in found] == [b"m%d" % number for number in BAD]
    headers: list[Any] = [each.headers for each in found]
    assert [each["Headrace-Sequence"] for each in headers] == [str(number) for number in BAD]
    assert {each["Headrace-Subject"] for each in headers} == {f"{feed.name}.n"}
    assert headers[0]["Headrace-Failure"] == said


@ON_OURS
def test_a_message_that_crashes_its_worker_is_named_and_put_into_quarantine_too(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    feed.publish_numbers(1, 3)
    crashes = VIEWS.replace('raise ValueError("it is bad")', "os._exit(9)")
    (tmp_path / "views.py").write_text("import os\n\n" + crashes)
    letters = f"LETTERS{feed.name}"
    feed.call(f"STREAM.CREATE.{letters}", {"name": letters, "subjects": [f"dead.{feed.name}"]})
    aside = f'otherwise = "quarantine"\nletters = "dead.{feed.name}"'
    file = tmp_path / "numbers.toml"
    # A worker that is lost by accident, as beside one that crashes, is none of the messages'.
    text = FILE.replace("[sources", 'restart = {{ attempts = 9, backoff = "100ms" }}\n[sources', 1)
    file.write_text(text.format(stream=feed.name, url=feed.url, otherwise=aside))
    heard = Heard()
    (ended,) = run_here(read(file), spark, heard, once=True)
    assert (ended.state, ended.problem) == ("done", None)
    assert [(each.sequence, each.view, aside) for _, each, aside in heard.poisons] == [
        (2, "tenfold", True)
    ]
    assert all("Spark lost a Python worker" in each.cause for _, each, _ in heard.poisons)
    assert rows(tmp_path / "out") == [10, 30]
    feed.link.close()  # nobody has read from it for as long as that took
    feed.link = feed.connect()
    feed.call(f"STREAM.DELETE.{letters}")


# Workers that are lost by accident, as on a busy machine, are none of the causes that are asked for.
OTHERS = """[pipeline]
name = "numbers"
checkpoint = "checkpoint"
on_failure = "continue"
restart = {{ attempts = 20, backoff = "100ms" }}
[sources.orders]
options = {{ stream = "{stream}", servers = "{url}" }}
[views.numbers]
sql = "SELECT sequence, subject, CAST(CAST(data AS string) AS int) AS number FROM orders"
[views.sums]
sql = "SELECT number, count(*) AS n FROM numbers GROUP BY number"
[sinks.cast]
from = "numbers"
format = "noop"
[sinks.state]
from = "sums"
format = "noop"
mode = "complete"
[sinks.function]
from = "orders"
python = "sinks.py:write"
[sinks.last]
from = "orders"
python = "sinks.py:seen"
after = "function"
"""


def test_sql_is_named_too_and_what_cannot_be_searched_is_said_in_words(
    spark: SparkSession, headrace_process: object, tmp_path: Path
) -> None:
    feed = Feed(str(headrace_process.url))  # type: ignore[attr-defined]
    feed.publish(["n"] * 4, lambda index: b"%d" % index if index != 2 else b"two")
    (tmp_path / "sinks.py").write_text(
        "def write(rows, batch, run):\n    raise ValueError('full')\n"
        "def seen(rows, batch, run):\n    open(__file__ + '.seen', 'w').close()\n"
    )
    file = tmp_path / "numbers.toml"
    file.write_text(OTHERS.format(stream=feed.name, url=feed.url))
    ended = run_here(read(file), spark, Heard(), once=True)
    cast, state, function, last = (str(each.problem) for each in ended)
    assert f"message 3 of stream '{feed.name}', subject '{feed.name}.n', fails in view" in cast
    assert f"fails in view 'numbers' ({file}:8): [CAST_INVALID_INPUT] The value 'two'" in cast
    assert "the query keeps state, so a message alone is not what the query makes of it" in state
    assert "it is write that fails, which writes them and is not tried" in function
    assert (
        f"query 'function' failed: ValueError: full ({tmp_path}/sinks.py:2, in write)" in function
    )
    assert last.endswith("query 'last' was not run: it is after 'function', which failed")
    assert [each.state for each in ended][2:] == ["failed", "not run"]
    assert not (tmp_path / "sinks.py.seen").exists()
    feed.close()
