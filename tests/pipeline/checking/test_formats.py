"""Formats and places of files that a pipeline names: whether there are such, without Spark."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.pipeline.checking.sources_and_sinks import check_options, unwritable
from headrace.pipeline.declaring.reading import read

from ..conftest import ORDERS

Write = Callable[..., Path]


def told(write: Write, text: str) -> list[tuple[int, str]]:
    return [(each.place.line, each.text) for each in check_options(read(write(text)))]


def test_a_format_that_there_is_not_is_told_with_what_there_is(write: Write) -> None:
    ((line, said),) = told(write, ORDERS.replace('"parquet"', '"parkett"'))
    assert line == 9
    assert (
        "sink 'out': there is no format 'parkett' here; did you mean 'parquet'?; there are:" in said
    )
    assert "parquet, orc, json" in said
    table = '[sources.more]\nformat = "jsn"\nstreaming = false\n'
    ((_, said),) = told(write, ORDERS + table)
    assert "source 'more': there is no format 'jsn' here; did you mean 'json'?" in said


@pytest.mark.parametrize(
    "change",
    [
        ('"parquet"', '"org.example.Own"'),
        ('"parquet"', '"PARQUET"'),
        ("[sinks.out]", '[spark.conf]\n"spark.jars.packages" = "io.x:y:1"\n[sinks.out]\n#'),
    ],
)
def test_formats_of_classes_and_packages_are_left_to_spark(
    write: Write, change: tuple[str, str]
) -> None:
    text = ORDERS.replace(*change).replace("\n#\n", "\n")
    assert told(write, text) == []
    if "jars" in change[1]:
        assert told(write, text.replace('"parquet"', '"own"')) == []


def test_files_need_a_path_that_can_be_written(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = ORDERS.replace('options = { path = "out" }', "")
    ((line, said),) = told(write, without)
    assert (line, said) == (
        9,
        "sink 'out': option 'path' is missing, the folder that parquet files go to",
    )
    (tmp_path / "file").touch()
    in_the_way = ORDERS.replace('"out" }', '"file/out" }').replace('"checkpoint"', '"file"')
    assert told(write, in_the_way) == [
        (12, f"sink 'out': path is file/out: {tmp_path}/file is a file, no folder"),
        (2, f"checkpoint is file: {tmp_path}/file is a file, no folder"),
    ]
    assert told(write, ORDERS.replace('"out" }', '"s3a://bucket/out" }')) == []
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    assert unwritable(tmp_path / "a" / "b") == f"{tmp_path} cannot be written by this user"
    assert not (tmp_path / "a").exists()
