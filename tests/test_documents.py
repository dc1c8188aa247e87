"""JSON and TOML of others: a value, or one kind of error, however they are made."""

from __future__ import annotations

import json
from pathlib import Path
from tomllib import TOMLDecodeError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.serve.config import read_file
from headrace.documents import DocumentError, parse_toml, read_json, read_typed
from headrace.errors import ConfigurationError
from headrace.limits import NESTING_MAX
from headrace.pipeline.declaring.document import read_toml
from headrace.pipeline.model import PipelineError

DEEP = 100_000


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@pytest.mark.parametrize("depth", [1, NESTING_MAX])
def test_what_is_nested_as_deep_as_may_be_is_read(depth: int) -> None:
    assert read_json(nested(depth)) == json.loads(nested(depth))
    assert parse_toml("a = " + nested(depth - 1).decode() if depth > 1 else "a = 1")


@pytest.mark.parametrize(
    "text",
    [
        nested(NESTING_MAX + 1),
        nested(DEEP),
        b"[" * DEEP,
        b'{"a":' * DEEP,
        b'{"a":' * (NESTING_MAX + 1) + b"1" + b"}" * (NESTING_MAX + 1),
        b'[{"a":' * NESTING_MAX + b"1" + b"}]" * NESTING_MAX,
    ],
    ids=len,
)
def test_json_nested_deeper_is_refused(text: bytes) -> None:
    with pytest.raises(DocumentError, match=r"max depth|Input data was truncated"):
        read_json(text)


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * DEEP,
        "a = " + "[" * NESTING_MAX + "]" * NESTING_MAX,
        "a = " + "{b=" * 5000,
        ".".join("a" * (NESTING_MAX + 1)) + " = 1",
        "[" + ".".join("a" * 5000) + "]",
    ],
    ids=len,
)
def test_toml_nested_deeper_is_refused(text: str) -> None:
    with pytest.raises(DocumentError, match="more than 100 tables and arrays in each other"):
        parse_toml(text)


def test_what_is_no_toml_says_where() -> None:
    with pytest.raises(TOMLDecodeError, match="line 2, column 5"):
        parse_toml("a = 1\nb = x\n")


@pytest.mark.parametrize("text", [b"\xff", b"", b"{", b"nul", b"1e999999", b'"\xff"', "\ud800"])
def test_what_is_no_json_is_refused(text: bytes | str) -> None:
    try:
        read_json(text)
    except DocumentError:
        return
    assert text == b"1e999999"


def test_a_type_is_asked_for() -> None:
    assert read_typed(b'{"a":1}', dict[str, int]) == {"a": 1}
    with pytest.raises(DocumentError, match="Expected `int`"):
        read_typed(b'{"a":"x"}', dict[str, int])
    with pytest.raises(DocumentError, match="exceeded max depth"):
        read_typed(b'{"a":' + nested(DEEP) + b"}", dict[str, Any])


@given(st.binary(max_size=400))
def test_whatever_comes_is_a_value_or_that_error(data: bytes) -> None:
    try:
        read_json(data)
    except DocumentError:
        pass


def test_files_of_users_are_refused_with_their_names(tmp_path: Path) -> None:
    file = tmp_path / "deep.toml"
    file.write_text("a = " + "[" * DEEP)
    with pytest.raises(PipelineError, match=r"deep\.toml.*more than 100 tables"):
        read_toml(file)
    with pytest.raises(ConfigurationError, match=r"deep\.toml: more than 100 tables"):
        read_file(file, {})
