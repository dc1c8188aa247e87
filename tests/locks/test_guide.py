"""The guide of locks is a program: it runs, and prints what stands behind ``→``."""

from __future__ import annotations

from typing import Any

import pytest

import guides
import peers


@pytest.mark.peer
async def test_the_guide_does_what_it_says(
    reference_server: peers.ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    for block in guides.blocks_of(guides.ROOT / "docs" / "how-to" / "locks.md"):
        code = block.code.replace("nats://127.0.0.1:4222", reference_server.url)
        await guides.run_block(block._replace(code=code), names)
        assert capsys.readouterr().out.splitlines() == block.printed, f"line {block.line}"
