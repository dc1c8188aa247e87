from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.pipeline.declaring.reading import read
from headrace.pipeline.model import Declared, PipelineError
from headrace.pipeline.testing.cases import read_cases, write_expected

from ..conftest import ORDERS


@pytest.fixture
def declared(write: Callable[..., Path]) -> Declared:
    return read(write(ORDERS))


def put(declared: Declared, name: str, text: str) -> Path:
    file = declared.file.with_suffix(".tests") / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def problems(declared: Declared, *names: str) -> list[str]:
    with pytest.raises(PipelineError) as caught:
        read_cases(declared, names)
    root = f"{declared.file.parent}/"
    return [str(problem).replace(root, "") for problem in caught.value.problems]


def test_a_case_is_a_folder_of_rows(declared: Declared) -> None:
    put(declared, "one/sources/orders.jsonl", '{"data": 1}\n\n{"data": 2}\n')
    put(declared, "one/sinks/out.jsonl", "")
    put(declared, "two/sources/orders.jsonl", "")
    one, two = read_cases(declared)
    assert [each.row for each in one.given["orders"]] == [{"data": 1}, {"data": 2}]
    assert one.given["orders"][1].place.line == 3
    assert one.expected == {("sinks", "out"): []}
    assert (two.name, two.expected) == ("two", {})
    assert read_cases(declared, ["two"]) == [two]


def test_without_tests_it_is_said_how_to_write_one(declared: Declared) -> None:
    (said,) = problems(declared)
    assert said.startswith(
        "orders.tests: there are no tests of orders.toml. Write what a source is given to "
        "orders.tests/CASE/sources/orders.jsonl"
    )


def test_every_mistake_is_told_with_its_place(declared: Declared) -> None:
    put(declared, "one/sources/orders.jsonl", '{"data": 1}\n{"data": \n[1]\n')
    put(declared, "one/sources/ordres.jsonl", "")
    put(declared, "one/sinks/out.json", "")
    put(declared, "one/sink/out.jsonl", "")
    put(declared, "two/sinks/out.jsonl", "")
    (declared.file.with_suffix(".tests") / "two" / "sinks" / "out.jsonl").write_bytes(b"\xff")
    one = "orders.tests/one"
    first, second, third, fourth, fifth, sixth, seventh = problems(declared)
    assert first == f"{one}/sink: not known here; did you mean 'sinks'?"
    assert second.startswith(f"{one}/sources/orders.jsonl:2: no JSON: ")
    assert third == f"{one}/sources/orders.jsonl:3: a line is a row: an object of JSON, {{…}}"
    assert fourth == (
        f"{one}/sources/ordres.jsonl: the pipeline has no source of this name; did you mean 'orders'?"
    )
    assert fifth == f"{one}/sinks/out.json: rows are in files .jsonl, one of JSON a line"
    assert sixth == "orders.tests/two/sinks/out.jsonl: cannot be read: it is not UTF-8"
    assert seventh == "orders.tests/two: no source is given anything: write sources/NAME.jsonl"
    assert (
        problems(declared, "there")[0]
        == "orders.tests: there is no test 'there'; accepted: one, two"
    )


def test_what_is_written_keeps_the_columns_and_the_order_that_were_there(tmp_path: Path) -> None:
    file = tmp_path / "sinks" / "out.jsonl"
    rows: list[dict[str, object]] = [{"a": 1, "b": 2}, {"a": 3, "b": None}]
    assert write_expected(file, rows, []) == 2
    assert file.read_text() == '{"a": 1, "b": 2}\n{"a": 3, "b": null}\n'
    assert write_expected(file, [*rows, {"a": 0, "b": 0}], [{"a": 3}, {"a": 5}, {"a": 1}]) == 3
    assert file.read_text() == '{"a": 3}\n{"a": 1}\n{"a": 0}\n'
    assert [each.name for each in file.parent.iterdir()] == ["out.jsonl"]
