"""Guides are programs: their pieces run in order, and print what stands behind ``→``."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["ROOT", "Block", "blocks_of", "commands_of", "metrics_listed", "run_block", "text_of"]

ROOT = Path(__file__).resolve().parents[1]
_FENCED = re.compile(r"(?ms)^```([^\n]*)\n(.*?)^```$")
_PRINTED = re.compile(r"(?m)# → (.*)$")
_INCLUDED = re.compile(r"(?m)^```\{literalinclude\} (\S+)\n:language: (\w+)\n```$")


class Block(NamedTuple):
    """A piece of a guide's program."""

    guide: Path
    line: int
    code: str

    @property
    def printed(self) -> list[str]:
        """What it says that it prints."""
        return _PRINTED.findall(self.code)


def text_of(page: Path) -> str:
    """A page as its readers see it: with the files that it includes."""

    def shown(found: re.Match[str]) -> str:
        return f"```{found[2]}\n{(page.parent / found[1]).read_text()}```"

    return _INCLUDED.sub(shown, page.read_text())


def blocks_of(guide: Path) -> list[Block]:
    """Its pieces."""
    text = text_of(guide)
    return [
        Block(guide, text.count("\n", 0, found.start(2)), found[2])
        for found in _FENCED.finditer(text)
        if found[1] == "python"
    ]


def metrics_listed(prefix: str) -> list[tuple[str, str, str]]:
    """Name, type and meaning of each that the page of metrics lists; the type by its rule."""
    text = (ROOT / "docs" / "metrics.md").read_text()
    (rule,) = re.findall(r"What ends with .*?\sgauges\.", text, re.DOTALL)
    histograms = re.findall(r"`(headrace_\w+)`", rule)

    def kind(name: str) -> str:
        if name in histograms:
            return "histogram"
        return "counter" if name.endswith("_total") else "gauge"

    return [
        (found[2], kind(found[1]), found[3])
        for found in re.finditer(rf"(?m)^- `({prefix}(\w+))`: (.*)$", text)
    ]


def commands_of(guide: Path) -> list[str]:
    """The lines beginning with ``headrace`` that a reader is to type; those that go on are joined."""
    lines = [
        line
        for language, block in _FENCED.findall(text_of(guide))
        if not language
        for line in block.replace("\\\n", "").splitlines()
    ]
    return [line.partition(" # ")[0].strip() for line in lines if line.startswith("headrace ")]


async def run_block(block: Block, names: dict[str, Any]) -> None:
    """Run it among the names of those before."""
    code = compile(
        "\n" * block.line + block.code,
        str(block.guide),
        "exec",
        flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
        dont_inherit=True,
    )
    result = eval(code, names)
    if inspect.iscoroutine(result):
        await result


def load(program: Path) -> Any:
    """A program of ``examples`` as a module: it runs what it does when it is imported."""
    spec = importlib.util.spec_from_file_location(f"example_{program.stem}", program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
