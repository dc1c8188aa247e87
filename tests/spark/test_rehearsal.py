"""Rehearsals of a runner that stands by, in a real session: what they find, and that nobody sees them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.pipeline.declaring.reading import read
from headrace.pipeline.model import Declared
from headrace.pipeline.standby.dry import DRY
from headrace.pipeline.standby.rehearsal import FRONT, GivenUpError, Rehearsal

from .conftest import ON_OURS, Feed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    ON_OURS,
    pytest.mark.filterwarnings("ignore:PySpark does not yet"),  # as a session of ours does
]

FILE = """[pipeline]
name = "numbers"
checkpoint = "{checkpoint}"

[sources.orders]
options = {{ stream = "{stream}", servers = "{url}", durable = "numbers" }}

[views.counted]
sql = "SELECT subject, count(*) AS many FROM orders GROUP BY subject"

[views.called]
python = "code.py:called"
rehearse = {view}

[views.lines]
sql = "{sql}"

[sinks.exactly]
from = "lines"
format = "jetstream"
options = {{ servers = "{url}", stream = "{out}", subject = "{out}.x", {exactly} }}

[sinks.many]
from = "counted"
format = "{kind}"
mode = "complete"

[sinks.files]
from = "called"
format = "parquet"
options = {{ path = "files" }}

[sinks.mine]
from = "orders"
python = "code.py:mine"
rehearse = {sink}
"""
SQL = "SELECT CAST(data AS string) AS text FROM orders"
GOOD: dict[str, str] = {
    "checkpoint": "checkpoint",
    "sql": SQL,
    "kind": "noop",
    "view": "false",
    "sink": "false",
    "exactly": 'delivery = "exactlyOnce", sinkId = "n"',
}

CODE = """
import pathlib

CALLS = pathlib.Path({calls!r})
FAILS = {fails}


def called(orders):
    return orders.mapInArrow(rows, "sequence bigint")


def rows(batches):
    called_with("rows")
    for batch in batches:
        yield batch.select(["sequence"])


def mine(frame, batch, run):
    if FAILS:
        raise ValueError("the table is not there")
    called_with(f"mine {{frame.count()}} {{batch}} {{run}}")


def called_with(what):
    with CALLS.open("a") as calls:
        calls.write(what + "\\n")
"""


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Temporary files lie apart: rehearsals of the machine take turns by a lock among them, and tests that
    run beside this one would be waited for, and their folders be taken for its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))


class World:
    """A pipeline, what it reads and what it would write to."""

    def __init__(self, folder: Path, source: Feed, target: Feed) -> None:
        self.folder, self.source, self.target = folder, source, target
        self.calls = folder / "calls"
        self.write_code()

    def write_code(self, *, fails: bool = False) -> None:
        text = CODE.format(calls=str(self.calls), fails=fails)
        (self.folder / "code.py").write_text(text)

    def declared(self, **changed: str) -> Declared:
        given = {"stream": self.source.name, **GOOD, **changed}
        file = self.folder / "numbers.toml"
        file.write_text(FILE.format(url=self.source.url, out=self.target.name, **given))
        return read(file)

    def outside(self) -> dict[str, Any]:
        """Streams, their messages, consumers, and files."""
        found: dict[str, Any] = {"files": sorted(map(str, self.folder.rglob("*.*")))}
        for feed in (self.source, self.target):
            state = feed.call(f"STREAM.INFO.{feed.name}")["state"]
            consumers = feed.call(f"CONSUMER.NAMES.{feed.name}")["consumers"]
            found[feed.name] = state["messages"], state["last_seq"], consumers
        found["streams"] = sorted(self.source.call("STREAM.NAMES")["streams"])
        return found


@pytest.fixture
def world(tmp_path: Path, feed: Feed, make_feed: Callable[..., Feed]) -> Iterator[World]:
    feed.publish(["a", "b"])
    target = make_feed(allow_atomic=True)
    target.call(
        f"STREAM.UPDATE.{target.name}",
        {
            "name": target.name,
            "subjects": [f"{target.name}.>", f"_sink.{target.name}.>"],
            "allow_atomic": True,
        },
    )
    yield World(tmp_path, feed, target)


def test_it_runs_every_plan_and_nothing_is_seen_outside_nor_code_of_the_user_called(
    spark: SparkSession, world: World
) -> None:
    declared = world.declared()
    (world.folder / "__pycache__").mkdir(exist_ok=True)
    before = world.outside()
    temporary = Path(tempfile.gettempdir())
    kept = set(temporary.glob(f"{FRONT}*"))
    rehearsal = Rehearsal(declared, spark)
    assert rehearsal.run() == []
    rehearsal.keep_warm()
    assert rehearsal.run() == []
    assert set(temporary.glob(f"{FRONT}*")) <= kept, "what it needed for itself is removed"
    after = world.outside()
    after["files"] = [each for each in after["files"] if "__pycache__" not in each]
    assert after == before
    assert not world.calls.exists()
    assert not (world.folder / "checkpoint").exists()
    assert rehearsal.step == ""


WRONG: dict[str, tuple[str, int, str]] = {
    "sql": ("SELECT nothing FROM orders", 15, "nothing"),
    "kind": ("kafka", 23, "kafka"),
    "checkpoint": ("code.py", 1, "checkpoints cannot be written into"),
}
"""What is wrong with a part, its line, and what of it is said: all of them in one rehearsal."""


@pytest.mark.parametrize("wrong", [{"stream": ("NOWHERE", 5, "NOWHERE")}, WRONG])
def test_what_would_keep_it_from_taking_over_is_told_with_its_line(
    spark: SparkSession, world: World, wrong: dict[str, tuple[str, int, str]]
) -> None:
    changed = {name: text for name, (text, _, _) in wrong.items()}
    problems = Rehearsal(world.declared(**changed), spark).run()
    for _, line, said in wrong.values():
        found = [each for each in problems if said in each.text]
        assert found, problems
        assert abs(found[0].place.line - line) <= 1


def test_code_of_the_user_that_asks_for_it_is_called_without_rows(
    spark: SparkSession, world: World
) -> None:
    before = world.outside()
    assert Rehearsal(world.declared(view="true", sink="true"), spark).run() == []
    assert set(world.calls.read_text().splitlines()) == {"rows", "mine 0 -1 rehearsal"}
    after = world.outside()
    for feed in (world.source, world.target):
        assert after[feed.name] == before[feed.name]


def test_code_that_asks_to_be_called_and_fails_is_why_a_runner_is_not_ready(
    spark: SparkSession, world: World
) -> None:
    world.write_code(fails=True)
    (problem,) = Rehearsal(world.declared(sink="true"), spark).run()
    assert "the table is not there" in problem.text
    assert problem.place.line == 33


def test_its_python_workers_are_those_of_the_pipelines_sources_and_sinks(
    spark: SparkSession, world: World
) -> None:
    session: Any = Rehearsal(world.declared(), spark)._session
    known = session._jsparkSession.sessionState().dataSourceManager()

    def workers_of(name: str) -> tuple[dict[str, str], str]:
        function = known.lookupDataSource(name).dataSourceCls()
        given = dict(function.envVars())
        # Spark adds its own to a function that has been used; they are the same for all.
        env = {name: value for name, value in given.items() if not name.startswith("SPARK_")}
        return env, function.pythonExec()

    assert workers_of(DRY) == workers_of("jetstream")


def test_one_that_is_given_up_ends_soon(spark: SparkSession, world: World) -> None:
    rehearsal = Rehearsal(world.declared(), spark)
    rehearsal.give_up()
    with pytest.raises(GivenUpError):
        rehearsal.run()
