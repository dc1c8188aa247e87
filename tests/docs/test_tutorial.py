"""The lessons of the tutorial are programs: they run, and print what stands behind ``→``."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import guides
from headrace.cli.commands import COMMANDS
from headrace.jobs.client import AsyncJobsClient
from headrace.jobs.http import create_app
from headrace.jobs.models import Options
from headrace.jobs.runtime import Runtime
from headrace.jobs.store import open_database

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


@pytest.fixture
async def transport(tmp_path: Path) -> AsyncIterator[httpx2.AsyncBaseTransport]:
    """A job service in this process."""
    runtime = Runtime(open_database(f"sqlite:///{tmp_path / 'jobs.db'}", threads=2), Options())
    await runtime.start()
    yield httpx2.ASGITransport(app=create_app(runtime))
    await runtime.close()


async def test_the_lesson_about_jobs_does_what_it_says(
    transport: httpx2.AsyncBaseTransport,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Client(AsyncJobsClient):
        def __init__(self, url: str) -> None:
            super().__init__(url, transport=transport)

    monkeypatch.setattr("headrace.jobs.client.AsyncJobsClient", Client)
    names: dict[str, Any] = {}
    for block in guides.blocks_of(TUTORIAL / "jobs.md"):
        await guides.run_block(block, names)
        assert capsys.readouterr().out.splitlines() == block.printed, f"line {block.line}"


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
