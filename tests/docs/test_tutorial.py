"""The lessons of the tutorial are programs: they run, and print what stands behind ``→``."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import guides
from headrace.cli.commands import COMMANDS

TUTORIAL = guides.ROOT / "docs" / "tutorial"
LESSONS = ["first-worker", "standby", "overflow", "group"]


@pytest.mark.parametrize("lesson", LESSONS)
async def test_a_lesson_does_what_it_says(
    lesson: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    try:
        for block in guides.blocks_of(TUTORIAL / f"{lesson}.md"):
            await guides.run_block(block, names)
            assert capsys.readouterr().out.splitlines() == block.printed, f"line {block.line}"
    finally:
        await names["nc"].close()
        await names["broker"].stop()


async def test_the_lesson_about_jobs_does_what_it_says_as_a_file(tmp_path: Path) -> None:
    """Its pieces, one after the other, are a program; only the port is another."""
    blocks = guides.blocks_of(TUTORIAL / "jobs.md")
    service = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headrace", "jobs", "serve", "--port", "0"),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
    )
    assert service.stdout is not None
    try:
        url = (await service.stdout.readline()).decode().split()[-1]
        code = "".join(block.code for block in blocks)
        assert code.count("http://127.0.0.1:8080") == 1
        lesson = tmp_path / "lesson.py"
        lesson.write_text(code.replace("http://127.0.0.1:8080", url))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(lesson)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        printed, errors = await process.communicate()
    finally:
        service.terminate()
        await service.wait()
    assert process.returncode == 0, errors.decode()
    assert printed.decode().splitlines() == [line for block in blocks for line in block.printed]


def test_every_lesson_is_in_the_list_and_run() -> None:
    listed = re.search(r"```\{toctree\}\n.*?\n(.*?)```", (TUTORIAL / "index.md").read_text(), re.S)
    assert listed is not None
    names = [line for line in listed[1].splitlines() if line and not line.startswith(":")]
    assert sorted(names) == sorted(
        path.stem for path in TUTORIAL.glob("*.md") if path.stem != "index"
    )
    assert set(LESSONS) < set(names)


def test_the_commands_of_the_pages_are_there() -> None:
    for page in (guides.ROOT / "docs").rglob("*.md"):
        for command in guides.commands_of(page):
            word = command.split()[1]
            assert word in COMMANDS or word.startswith("-"), f"{page.name}: {command}"
