"""The names that ``headrace.client`` has, which are loaded when they are asked for."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import peers
from headrace import client


@pytest.mark.parametrize("name", client.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(client, name) is not None
    assert name in dir(client)


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(client.__file__).read_text())
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    found = (node for node in ast.walk(blocks[0]) if isinstance(node, ast.ImportFrom))
    assert {alias.name for node in found for alias in node.names} == set(client.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"headrace\.client.*nonsense"):
        _ = client.nonsense


def test_a_process_of_spark_loads_a_few_rooms_only() -> None:
    peers.package("pyspark")
    code = (
        "import sys, headrace.spark.source, headrace.spark.sink.writer\n"
        "print(*(m for m in ('headrace.client.connection', 'headrace.client.kv') if m in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""
