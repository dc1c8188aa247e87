"""The guide of the client is a program: it runs, and prints what stands behind ``→``."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import peers

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "client.md"
_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
_PRINTED = re.compile(r"(?m)# → (.*)$")

pytestmark = pytest.mark.peer


class Block(NamedTuple):
    """A piece of the guide's program."""

    line: int
    code: str

    @property
    def printed(self) -> list[str]:
        return _PRINTED.findall(self.code)


def blocks() -> list[Block]:
    text = GUIDE.read_text()
    return [Block(text.count("\n", 0, found.start(1)), found[1]) for found in _BLOCK.finditer(text)]


async def run(block: Block, names: dict[str, Any]) -> None:
    code = compile(
        "\n" * block.line + block.code,
        str(GUIDE),
        "exec",
        flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
        dont_inherit=True,
    )
    result = eval(code, names)
    if inspect.iscoroutine(result):
        await result


async def test_the_guide_does_what_it_says(
    reference_server: peers.ServerProcess,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    try:
        for block in blocks():
            code = block.code.replace("nats://127.0.0.1:4222", reference_server.url)
            await run(block._replace(code=code.replace("/tmp", str(tmp_path))), names)
            assert capsys.readouterr().out.splitlines() == block.printed, f"line {block.line}"
    finally:
        await names["nc"].close()


def test_the_guide_shows_what_it_prints() -> None:
    prints = [line for block in blocks() for line in block.code.splitlines() if " print(" in line]
    assert len(blocks()) > 15
    assert all("# → " in line or "lambda" in line for line in prints)
