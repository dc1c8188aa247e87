"""The guide of groups is a program, and its commands are what the command line takes."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

import guides
import peers
from headrace.cli import main
from headrace.groups.metrics import METRICS

GUIDE = guides.ROOT / "docs" / "groups.md"

pytestmark = pytest.mark.peer


async def test_the_guide_does_what_it_says(
    reference_server: peers.ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    try:
        for block in guides.blocks_of(GUIDE):
            code = block.code.replace("nats://127.0.0.1:4222", reference_server.url)
            await guides.run_block(block._replace(code=code), names)
            assert capsys.readouterr().out.splitlines() == block.printed, f"line {block.line}"
    finally:
        await names["nc"].close()


def test_the_guide_shows_what_it_prints() -> None:
    blocks = guides.blocks_of(GUIDE)
    prints = [line for block in blocks for line in block.code.splitlines() if "print(" in line]
    assert len(blocks) >= 8
    assert all("# → " in line for line in prints)


def test_the_commands_of_the_guide_are_taken(capsys: pytest.CaptureFixture[str]) -> None:
    """Each is understood; none is run: they speak to a port where nobody listens."""
    commands = [line for line in guides.commands_of(GUIDE) if line.startswith("headrace group ")]
    assert len(commands) >= 8
    for line in commands:
        words = shlex.split(line.replace("…", "x"))[1:]
        assert main([*words, "--server", "nats://127.0.0.1:1"]) == 3, line
        assert "127.0.0.1:1" in capsys.readouterr().err


def test_the_guide_lists_every_metric() -> None:
    listed = re.findall(r"`headrace_group_(\w+)`", GUIDE.read_text())
    assert sorted(listed) == sorted(metric.name for metric in METRICS)
