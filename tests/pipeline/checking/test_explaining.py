from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.cli import main
from headrace.pipeline.checking.explaining import Reads, explain
from headrace.pipeline.checkpoints.checkpoint import checkpoint_of
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.resets import parse_position, reset

from ..conftest import ORDERS


@pytest.fixture
def url(either_url: str) -> str:
    return either_url


@pytest.fixture
def explained(
    write: Callable[..., Path], url: str, stream: str
) -> Callable[..., list[tuple[object, ...]]]:
    """``explained(options)``: what the query reads with these options of its source."""

    def make(options: str) -> list[tuple[object, ...]]:
        file = write(ORDERS.replace('"ORDERS"', f'"{stream}", servers = "{url}"{options}'))
        return [
            (each.first, each.last, each.messages, each.because) for each in explain(read(file))
        ]

    return make


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", (1, 10, 10, "it is new: earliest")),
        (', startingOffsets = "latest", durable = "d"', (11, 10, 0, "it is new: latest")),
        (", startingOffsets = 4", (4, 10, 7, "it is new: sequence 4")),
        (
            ', startingTimestamp = "2013-01-01T00:00:00Z"',
            (1, 10, 10, "it is new: time 2013-01-01T00:00:00Z"),
        ),
    ],
)
def test_a_new_query_begins_where_its_file_says(
    explained: Callable[..., object], options: str, expected: tuple[object, ...]
) -> None:
    assert explained(options) == [expected]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("startingOffsets = 3, endingOffsets = 7", (3, 7, 5, "a table: anew for each batch")),
        ("endingOffsets = 70", (1, 10, 10, "a table: anew for each batch")),
        (
            "lastPerSubject = true",
            (1, 10, None, "a table: the latest of each subject, anew for each batch"),
        ),
    ],
)
def test_a_table_has_both_bounds_and_is_read_anew(
    write: Callable[..., Path], url: str, stream: str, options: str, expected: tuple[object, ...]
) -> None:
    text = ORDERS.replace('"ORDERS"', f'"{stream}", servers = "{url}"')
    table = (
        f'[sources.table]\nstreaming = false\noptions = {{ stream = "{stream}", servers = "{url}", '
        f"{options} }}\n"
        '[views.both]\nsql = "SELECT * FROM orders JOIN table USING (sequence)"\n'
    )
    file = write(text.replace('from = "orders"', 'from = "both"') + table)
    found = {each.source: each for each in explain(read(file))}
    assert set(found) == {"orders", "table"}
    one = found["table"]
    assert (one.first, one.last, one.messages, one.because) == expected


def test_subjects_markers_and_the_most_of_a_batch_are_told(
    write: Callable[..., Path], url: str, stream: str
) -> None:
    options = (
        f'"{stream}", servers = "{url}", subjects = "{stream}.1", includeMarkers = true, '
        "maxOffsetsPerTrigger = 2000, maxBytesPerTrigger = 100"
    )
    (found,) = explain(read(write(ORDERS.replace('"ORDERS"', options))))
    assert found == Reads(
        "out",
        "orders",
        stream,
        first=1,
        last=10,
        messages=5,
        because="it is new: earliest",
        subjects=(f"{stream}.1",),
        markers=True,
        at_a_time="2,000 messages, 100 bytes",
    )


def test_a_query_that_ran_begins_behind_its_checkpoint_and_a_reset_one_where_it_was_put(
    write: Callable[..., Path], url: str, stream: str
) -> None:
    declared = read(write(ORDERS.replace('"ORDERS"', f'"{stream}", servers = "{url}"')))
    generation = checkpoint_of(declared, "out").current()
    offset = {"epoch": "", "seq": 6, "v": 1}
    for folder, text in (
        ("offsets", f"v1\n{{}}\n{json.dumps(offset)}"),
        ("commits", "v1\n{}"),
    ):
        path = Path(generation.path) / folder
        path.mkdir(parents=True)
        (path / "0").write_text(text)
    (found,) = explain(declared)
    assert (found.first, found.last, found.messages) == (7, 10, 4)
    assert found.because == "its checkpoint"
    list(reset(declared, list(declared.sinks.values()), parse_position("3")))
    (found,) = explain(declared)
    assert (found.first, found.messages, found.because) == (3, 8, "it is new: sequence 3")


def test_a_checkpoint_that_cannot_be_read_is_told_and_not_taken_for_a_new_query(
    write: Callable[..., Path], url: str, stream: str
) -> None:
    declared = read(write(ORDERS.replace('"ORDERS"', f'"{stream}", servers = "{url}"')))
    folder = Path(checkpoint_of(declared, "out").current().path)
    offset = {"epoch": "", "seq": 2**63, "v": 1}
    for name, text in (("offsets", f"v1\n{{}}\n{json.dumps(offset)}"), ("commits", "v1\n{}")):
        (folder / name).mkdir(parents=True)
        (folder / name / "0").write_text(text)
    (found,) = explain(declared)
    assert f"no stream has one beyond {2**63 - 1}" in found.error
    assert (found.first, found.because) == (None, "")


def test_a_stream_or_server_that_is_not_there_is_told_in_its_row(
    write: Callable[..., Path], url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(ORDERS.replace('"ORDERS"', f'"NOTHING", servers = "{url}"'))
    assert main(["pipeline", "explain", str(file)]) == 0
    assert "has no stream 'NOTHING'" in capsys.readouterr().out
    away = '"NOTHING", servers = "nats://127.0.0.1:1", reconnectTimeout = "1s"'
    file = write(ORDERS.replace('"ORDERS"', away))
    (found,) = explain(read(file))
    assert "cannot reach" in found.error
    assert found.first is None


def test_it_is_shown_for_people_and_for_programs(
    pipeline_file: Path, stream: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "explain", str(pipeline_file)]) == 0
    shown = capsys.readouterr().out
    assert shown.split("\n")[0].split()[:6] == [
        *("QUERY", "SOURCE", "STREAM", "FIRST", "LAST", "MESSAGES")
    ]
    assert "it is new: earliest" in shown
    assert "left out" in shown
    assert main(["pipeline", "explain", "--json", str(pipeline_file)]) == 0
    first = json.loads(capsys.readouterr().out)[0]
    assert (first["stream"], first["first"], first["last"], first["markers"]) == (
        stream,
        1,
        10,
        False,
    )
