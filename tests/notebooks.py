"""Runs a Jupyter notebook as IPython does: one namespace, one event loop, ``await`` at the top."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
from pathlib import Path
from typing import Any

from headrace.documents import read_json


def read_notebook(path: Path) -> dict[str, Any]:
    """Its document. Raises AssertionError where it is none of format 4."""
    document = read_json(path.read_bytes())
    assert isinstance(document, dict), path
    assert document["nbformat"] == 4, path
    return document


def code_cells(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Its cells of code, in order."""
    return [cell for cell in document["cells"] if cell["cell_type"] == "code"]


def shown_output(cell: dict[str, Any]) -> str:
    """What the notebook says that a cell prints."""
    return "".join("".join(each["text"]) for each in cell["outputs"] if each["name"] == "stdout")


async def run_notebook(path: Path) -> list[str]:
    """Run it; what each cell printed."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed = []
    for number, cell in enumerate(code_cells(read_notebook(path)), 1):
        source, name = "".join(cell["source"]), f"{path.name}, cell {number}"
        code = compile(source, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            result = eval(code, namespace)
            if inspect.isawaitable(result):
                await result
        printed.append(out.getvalue())
    return printed
