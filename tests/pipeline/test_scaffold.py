from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from headrace import sync
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.model import PipelineError
from headrace.pipeline.scaffold import (
    SINKS,
    Draft,
    expected_of,
    fields_in,
    fields_of,
    given_of,
    text_of,
)

if TYPE_CHECKING:
    import pytest

NOT_IN_NAMES = " .*>/\\\t\r\n\f\x00"
STREAMS = st.text(
    st.characters(exclude_characters=NOT_IN_NAMES, exclude_categories=("Cs", "Cc")),
    min_size=1,
    max_size=40,
)


@given(STREAMS, st.sampled_from(SINKS), st.booleans())
def test_a_draft_of_any_stream_is_a_pipeline_without_mistakes(
    tmp_path_factory: pytest.TempPathFactory, stream: str, sink: str, has_fields: bool
) -> None:
    fields = {"user": "STRING", "amount": "DOUBLE"} if has_fields else {}
    file = tmp_path_factory.mktemp("draft") / "orders.toml"
    draft = Draft("orders", stream, "nats://127.0.0.1:4222", sink, fields=fields)
    file.write_text(text_of(draft), encoding="utf-8")
    try:
        declared = read(file, environment={})
    except PipelineError as error:
        raise AssertionError(str(error)) from error
    (source,) = declared.sources.values()
    assert source.name == draft.source
    if "$" not in stream:
        assert source.options["stream"] == stream
    assert declared.views["rows"].inputs == (source.name,)


def test_plain_fields_of_json_become_columns() -> None:
    document = {"a": 1, "b": 1.5, "c": True, "d": None, "e": [1], "f g": 1, "Data": "x", "h": "x"}
    assert fields_of(b"{}", document) == {
        "a": "BIGINT", "b": "DOUBLE", "c": "BOOLEAN", "d": "STRING", "h": "STRING"
    }  # fmt: skip
    assert fields_of(b"[]", []) == {}


def test_a_draft_has_a_test_with_values_that_are_made_up() -> None:
    draft = Draft("orders", "ORDERS", "", fields={"user": "STRING", "amount": "DOUBLE"})
    assert json.loads(given_of(draft)) == {"data": {"user": "text", "amount": 1.5}}
    assert json.loads(expected_of(draft)) == {"sequence": 1, "user": "text", "amount": 1.5}
    assert json.loads(expected_of(Draft("o", "O", ""))) == {"sequence": 1, "text": "text"}


def test_the_newest_message_is_looked_at(url: str, stream: str, free_port: int) -> None:
    assert fields_in(url, stream) == ({}, ""), "a number is no object"
    with sync.connect(url) as connection:
        js = connection.jetstream()
        js.publish(f"{stream}.1", b"no json")
        assert fields_in(url, stream) == ({}, "")
        js.publish(f"{stream}.1", b'{"user": "ann", "amount": 1.5}')
        assert fields_in(url, stream) == ({"user": "STRING", "amount": "DOUBLE"}, "")
        js.stream(stream).purge()
    assert "was removed" in fields_in(url, stream)[1]
    assert "stream" in fields_in(url, "NONE")[1]
    assert "cannot reach a NATS server" in fields_in(f"nats://127.0.0.1:{free_port}", stream)[1]


def test_the_command_writes_what_validates_and_overwrites_nothing(
    url: str, stream: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from headrace.cli import main

    file = tmp_path / "shop" / "orders.toml"
    command = ["pipeline", "new", str(file), "--servers", url]
    assert main(command) == 2
    assert "Give --stream NAME" in capsys.readouterr().err
    assert main([*command, "--stream", stream, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [Path(each).name for each in document["written"]] == [
        "orders.toml", f"{stream.lower()}.jsonl", "rows.jsonl"
    ]  # fmt: skip
    before = file.read_text()
    assert main([*command, "--stream", "OTHER"]) == 1
    assert "is there already; choose another name" in capsys.readouterr().err
    assert file.read_text() == before
    assert main(["pipeline", "validate", str(file)]) == 0
    assert main(["pipeline", "graph", str(file)]) == 0
    assert "└─ rows  view, SQL, 1 expectation" in capsys.readouterr().out
    assert main(["pipeline", "new", str(file.with_suffix(".py"))]) == 2
