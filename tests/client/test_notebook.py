"""The notebook among the examples runs from its first cell to its last, and prints what it shows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from notebooks import code_cells, read_notebook, run_notebook, shown_output

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "first_hour.ipynb"


@pytest.mark.usefixtures("no_leaks")
async def test_the_notebook_prints_what_it_shows() -> None:
    cells = code_cells(read_notebook(NOTEBOOK))
    assert len(cells) > 4
    async with asyncio.timeout(120):
        printed = await run_notebook(NOTEBOOK)
    assert printed == [shown_output(cell) for cell in cells]
