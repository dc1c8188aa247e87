from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.pipeline.declaring.keys import TABLES
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.model import PipelineError

from ..conftest import ORDERS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "pipelines.md"
SHOWN = {
    "sources": "[sources.<name>]",
    "views": "[views.<name>]",
    "expect": "[[views.<name>.expect]]",
    "sinks": "[sinks.<name>]",
}


def _shown(default: object) -> str:
    if isinstance(default, bool):
        default = "true" if default else "false"
    elif isinstance(default, float):
        default = f"{default:g}s"
    elif isinstance(default, tuple):
        default = ", ".join(default)
    return f"`{default}`" if default else ""


def table_of_keys() -> str:
    """Every key, as it stands in the documentation: a row for those that are next to each other and say the
    same, and the name of a table before its first key alone."""
    rows = []
    for table, keys in TABLES.items():
        for (default, doc), same in groupby(keys, key=lambda key: (_shown(key.default), key.doc)):
            names = [key.name for key in same]
            name = f"`{SHOWN.get(table, f'[{table}]')}`" if names[0] == keys[0].name else ""
            rows.append(
                f"| {name} | {', '.join(f'`{each}`' for each in names)} | {default} | {doc} |"
            )
    return "\n".join(rows)


def test_the_page_has_every_key() -> None:
    _, _, rest = PAGE.read_text().partition("<!-- keys: checked by the tests -->\n")
    table = rest.partition("\n\n")[0]
    assert table.splitlines()[2:] == table_of_keys().splitlines()


def test_the_example_of_the_page_is_a_pipeline(tmp_path: Path) -> None:
    text = PAGE.read_text().partition("```toml\n")[2].partition("```")[0]
    assert text.startswith("# orders.toml")
    file = tmp_path / "orders.toml"
    file.write_text(text)
    declared = read(file)
    assert declared.views["paid"].inputs == ("orders",)
    assert list(declared.sinks) == ["paid", "rejected"]
    python = (
        PAGE.read_text().rpartition("## In Python")[2].partition("```\n")[2].partition("```")[0]
    )
    made = tmp_path / "orders.py"
    made.write_text(python)
    assert list(read(made).views) == ["paid"]


class Rows:
    """Rows of a batch, as far as the page's function looks at them."""

    def __init__(self, *sequences: int) -> None:
        self._sequences = sequences

    def toArrow(self) -> pa.Table:
        return pa.table({"sequence": list(self._sequences), "amount": [1.5] * len(self._sequences)})


def test_the_function_of_the_page_writes_each_batch_of_each_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = PAGE.read_text().partition("# totals.py\n")[2].partition("```")[0]
    made: dict[str, Any] = {}
    exec(code, made)
    add = made["add"]
    for run, number, sequence in (("a", 0, 1), ("a", 0, 1), ("a", 1, 2), ("replay", 0, 1)):
        add(Rows(sequence), number, run)
    with closing(sqlite3.connect("totals.db")) as table:
        found = table.execute("SELECT sequence FROM paid ORDER BY sequence").fetchall()
    assert found == [(1,), (1,), (2,)]


def test_a_lease_that_is_too_short_is_refused_with_the_reason(write: Callable[..., Path]) -> None:
    text = ORDERS + '[lease]\nseconds = "1s"\n'
    with pytest.raises(PipelineError, match=r"seconds: '1s' is too short; accepted: 2s or more"):
        read(write(text))
