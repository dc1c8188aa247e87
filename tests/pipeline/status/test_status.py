from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace import sync
from headrace.errors import ConfigurationError
from headrace.pipeline.checkpoints.checkpoint import Start, checkpoint_of
from headrace.pipeline.checkpoints.totals import Batch, Totals, ViewRows
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.model import Declared
from headrace.pipeline.options import options_of_sink, options_of_source
from headrace.pipeline.resets import chosen, parse_position, reset
from headrace.pipeline.status.notes import Notes, file_of, this_process
from headrace.pipeline.status.notes import write as write_notes
from headrace.pipeline.status.status import status_of
from headrace.spark.set_aside import Aside, tell


@pytest.fixture
def url(either_url: str) -> str:
    return either_url


def epoch(url: str, stream: str) -> str:
    with sync.connect(url) as connection:
        return connection.jetstream().stream(stream).info().created


def pretend(
    declared: Declared, query: str, ended: dict[int, dict[str, object]], planned: int
) -> None:
    """What Spark writes of batches that ended, and of those it has only planned."""
    folder = Path(checkpoint_of(declared, query).current().path)
    (folder / "offsets").mkdir(parents=True)
    (folder / "commits").mkdir()
    for batch in range(planned + 1):
        end = json.dumps(ended.get(batch, {}))
        (folder / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{end}")
        if batch in ended:
            (folder / "commits" / str(batch)).write_text("v1\n{}")


def test_a_pipeline_that_never_ran_has_everything_before_it(pipeline_file: Path) -> None:
    for each in status_of(read(pipeline_file)):
        assert (each.finished, each.planned, each.waiting) == (-1, -1, 10)
        assert each.sources[0].durable is None


def test_positions_waiting_messages_and_sums(pipeline_file: Path, url: str, stream: str) -> None:
    declared = read(pipeline_file)
    end = {"epoch": epoch(url, stream), "seq": 6, "v": 1}
    pretend(declared, "out", {0: {**end, "seq": 3}, 1: end}, planned=2)
    totals = Totals(checkpoint_of(declared, "out").current().totals)
    totals.add(Batch("out", 0, 3, 0.1, views={"v": ViewRows(3, {"a": 1})}))
    out, seen = status_of(declared)
    assert (out.finished, out.planned, out.waiting) == (1, 2, 4)
    assert (out.sources[0].sequence, out.sources[0].last) == (6, 10)
    assert out.totals.views == {"v": ViewRows(3, {"a": 1})}
    assert out.notes == (
        "1 finished batches are not in the sums: they ended as the runner was killed",
    )
    runner = Notes(this_process(), 1.0).with_query("out", state="running", since=1.0)
    write_notes(file_of(declared), runner)
    out, _ = status_of(declared)
    assert (out.state, out.notes) == ("running", ()), "the runner counts a moment after Spark"
    assert out.document()["expectations"] == {"v": {"rows": 3, "failed": {"a": 1}}}
    assert seen.waiting == 10


def test_what_sources_have_set_aside_is_told(pipeline_file: Path) -> None:
    declared = read(pipeline_file)
    file = Path(f"{checkpoint_of(declared, 'out').current().path}.aside.jsonl")
    file.parent.mkdir(parents=True)
    tell([Aside("malformed", "S", "0-5:", 3), Aside("dead_letters", "S", "0-5:", 1)], str(file))
    out, seen = status_of(declared)
    assert out.notes == ("3 values did not fit", "1 messages became dead letters")
    assert (out.document()["malformed"], out.document()["skipped"]) == (3, 0)
    assert seen.notes == ()


def test_messages_that_are_gone_before_they_were_read_are_told(
    pipeline_file: Path, url: str, stream: str
) -> None:
    declared = read(pipeline_file)
    pretend(declared, "out", {0: {"epoch": epoch(url, stream), "seq": 2, "v": 1}}, planned=0)
    with sync.connect(url) as connection:
        connection.jetstream().stream(stream).purge()
    out, seen = status_of(declared)
    assert (out.waiting, seen.waiting) == (0, 0)
    assert f"up to 8 messages of {stream} after sequence 2 were removed" in "".join(out.notes)
    assert not [note for note in seen.notes if "removed" in note], "it has read nothing yet"


def test_a_position_in_a_stream_made_again_is_none(pipeline_file: Path) -> None:
    declared = read(pipeline_file)
    end = {"epoch": "2020-01-01T00:00:00Z", "seq": 6, "stored": 1_577_836_801_000_000_000, "v": 1}
    pretend(declared, "out", {0: end}, planned=0)
    assert status_of(declared)[0].waiting == 10


def test_a_position_in_a_copy_that_was_put_back_is_where_it_was(
    pipeline_file: Path, url: str, stream: str
) -> None:
    declared = read(pipeline_file)
    with sync.connect(url) as connection:
        stored_ns = connection.jetstream().stream(stream).get_message(6).timestamp_ns
    end = {"epoch": "2020-01-01T00:00:00Z", "seq": 6, "stored": stored_ns, "v": 1}
    pretend(declared, "out", {0: end}, planned=0)
    assert status_of(declared)[0].waiting == 4


def test_only_messages_of_the_querys_subjects_wait(pipeline_file: Path, stream: str) -> None:
    text = pipeline_file.read_text().replace("durable =", f'subjects = "{stream}.1", durable =')
    pipeline_file.write_text(text)
    assert status_of(read(pipeline_file))[0].waiting == 5


def test_a_server_that_is_away_leaves_the_rest(
    pipeline_file: Path, url: str, free_port: int
) -> None:
    pipeline_file.write_text(
        pipeline_file.read_text().replace(url, f"nats://127.0.0.1:{free_port}")
    )
    out, _ = status_of(read(pipeline_file))
    assert out.waiting is None
    assert "Connection refused" in out.notes[0]


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", Start("earliest")),
        ("Latest", Start("latest")),
        ("100", Start("sequence", "100")),
        ("2026-01-01T01:00:00+01:00", Start("time", "2026-01-01T00:00:00Z")),
    ],
)
def test_places_in_a_stream(text: str, start: Start) -> None:
    assert parse_position(text) == start


def test_other_places_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="accepted: earliest, latest, a sequence"):
        parse_position("yesterday")


def test_a_reset_begins_a_generation_and_sets_its_results_apart(
    pipeline_file: Path, url: str, stream: str
) -> None:
    declared = read(pipeline_file)
    sinks = chosen(declared, ["out"])
    ((_, first, said),) = reset(declared, sinks, parse_position("4"))
    assert (first.number, said) == (1, "nothing was run before")
    ((sink, generation, said),) = reset(declared, sinks, parse_position("latest"))
    assert said == "its results go to out-g2, beside those that are there"
    source = declared.sources["orders"]
    options = options_of_source(declared, source, "out", generation)
    assert options["startingOffsets"] == "11", "latest is where the end is now"
    assert options["durable"] == "shown-out", "two queries have one each"
    path = options_of_sink(declared, sink, generation.suffix)["path"]
    assert path == str(pipeline_file.parent / "out-g2")
    untouched = checkpoint_of(declared, "seen").current()
    assert (untouched.number, untouched.starts) == (1, {})
    assert status_of(declared)[0].notes == ("begins orders at sequence 11",)


def test_a_sink_that_knows_its_batches_gets_a_new_name_for_a_new_generation(
    pipeline_file: Path, url: str
) -> None:
    options = (
        f'{{ servers = "{url}", stream = "COPIES", delivery = "exactlyOnce", sinkId = "copies" }}'
    )
    text = pipeline_file.read_text().replace(
        'format = "noop"', f'format = "jetstream"\noptions = {options}'
    )
    pipeline_file.write_text(text)
    declared = read(pipeline_file)
    sinks = chosen(declared, ["seen"])
    reset(declared, sinks, Start("earliest"))
    ((sink, generation, said),) = reset(declared, sinks, Start("earliest"))
    assert said == "its rows are published again, as sinkId copies-g2"
    assert options_of_sink(declared, sink, generation.suffix)["sinkId"] == "copies-g2"


def test_a_query_that_is_not_there_is_refused(pipeline_file: Path) -> None:
    with pytest.raises(ConfigurationError, match="no query 'outt'; did you mean 'out'"):
        chosen(read(pipeline_file), ["outt"])


def test_a_sequence_is_no_place_in_two_streams_nor_in_files(pipeline_file: Path, url: str) -> None:
    text = pipeline_file.read_text().replace('from = "orders"', 'from = "both"', 1)
    more = f"""
[sources.others]
options = {{ stream = "OTHERS", servers = "{url}" }}
[views.both]
sql = "SELECT * FROM orders UNION ALL SELECT * FROM others"
"""
    pipeline_file.write_text(text + more)
    declared = read(pipeline_file)
    with pytest.raises(ConfigurationError, match="reads several streams"):
        reset(declared, chosen(declared, ["out"]), Start("sequence", "5"))
    assert reset(declared, chosen(declared, ["out"]), Start("earliest"))
    files = more.replace("[sources.others]", '[sources.others]\nformat = "json"')
    pipeline_file.write_text(text + files)
    declared = read(pipeline_file)
    with pytest.raises(ConfigurationError, match=r"orders.toml:\d+: source 'others'"):
        reset(declared, chosen(declared, ["out"]), Start("earliest"))


def test_a_source_of_several_streams_has_a_position_in_each(
    pipeline_file: Path, url: str, stream: str
) -> None:
    with sync.connect(url) as connection:
        js = connection.jetstream()
        js.create_stream(name="RETURNS", subjects=["returns"])
        js.publish("returns", b"1")
        text = pipeline_file.read_text().replace(f'"{stream}"', f'"{stream},RETURNS"')
        pipeline_file.write_text(text)
        declared = read(pipeline_file)
        offset = {"s": {stream: {"epoch": epoch(url, stream), "seq": 4}}, "v": 1}
        pretend(declared, "out", {0: offset}, planned=0)
        out, _ = status_of(declared)
        assert [(each.stream, each.sequence, each.waiting) for each in out.sources] == [
            (stream, 4, 6),
            ("RETURNS", 0, 1),
        ]
        ((_, generation, _),) = reset(declared, chosen(declared, ["out"]), Start("latest"))
        begins = json.loads(generation.starts["orders"].value)
        assert begins == {stream: 11, "RETURNS": 2}
        js.delete_stream("RETURNS")
