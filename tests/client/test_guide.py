"""The guide of the client is a program: it runs, and prints what stands behind ``→``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import guides
import peers

GUIDE = guides.ROOT / "docs" / "client.md"

pytestmark = pytest.mark.peer


async def test_the_guide_does_what_it_says(
    reference_server: peers.ServerProcess,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(guides.ROOT)
    names: dict[str, Any] = {}
    try:
        for block in guides.blocks_of(GUIDE):
            code = block.code.replace("nats://127.0.0.1:4222", reference_server.url)
            await guides.run_block(block._replace(code=code.replace("/tmp", str(tmp_path))), names)
            assert capsys.readouterr().out.splitlines() == block.printed, f"line {block.line}"
    finally:
        await names["nc"].close()


def test_the_guide_shows_what_it_prints() -> None:
    blocks = guides.blocks_of(GUIDE)
    prints = [line for block in blocks for line in block.code.splitlines() if " print(" in line]
    assert len(blocks) > 15
    assert all("# → " in line or "lambda" in line for line in prints)


def test_what_is_to_be_awaited_is_shown_with_await() -> None:
    """In the text, too: who copies ``consumption.stop()`` has a coroutine that nobody runs."""
    text = GUIDE.read_text() + (GUIDE.parent / "explanation" / "closing.md").read_text()
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"(?ms)^```.*?^```$", "", text))
    calls = [each for each in inline if re.search(r"\w\.(?:stop|drain|close|leave)\(", each)]
    assert len(calls) > 5
    assert [each for each in calls if not each.startswith("await ")] == []
