"""Fixtures: the system's Chromium, and a page of it. A folder's conftest takes them by name.

Chromium and its driver are started once for the tests of a process, and so is what shows a page; so the tests
that may have a page run in one event loop, ``_function_scoped_runner``, with their fixtures.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

import peers

__all__ = [
    "EVERYTHING",
    "_function_scoped_runner",
    "_opened",
    "_shown",
    "chromium",
    "page",
    "violations",
]

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--disable-gpu",
    "--disable-software-rasterizer",
    # A process for each document, and one more to draw: starting them took as long as what is shown.
    "--renderer-process-limit=1",
    "--in-process-gpu",
)
VIEWPORT: Any = {"width": 1300, "height": 850}
EVERYTHING: dict[str, Any] = {"resultTypes": ["violations"]}
VIOLATIONS = """async ([within, rules]) => (await axe.run(within || document, rules)).violations.map(
    each => `${each.id}: ${each.nodes[0].html.slice(0, 200)}`)"""
FORGET = (
    "() => { if (location.origin !== 'null') { localStorage.clear(); sessionStorage.clear(); } }"
)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The system's Chromium; the one without windows where it is there, which takes a quarter less."""
    found = filter(None, map(shutil.which, PROGRAMS))
    return next(found, None) or peers.missing_peer("Chromium", "run scripts/install-chromium")


@pytest.fixture
def _function_scoped_runner(_session_scoped_runner: asyncio.Runner) -> asyncio.Runner:
    """What pytest-asyncio runs tests and fixtures with: a browser belongs to the loop it is started in."""
    return _session_scoped_runner


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def _opened(chromium: str) -> AsyncIterator[Any]:
    """A browser, which draws without the graphics card's ways: they would be played by the processor."""
    from playwright.async_api import async_playwright

    arguments = [*FLAGS, "--no-sandbox"] if os.geteuid() == 0 else [*FLAGS]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=arguments)
        yield browser
        await browser.close()


@pytest.fixture(scope="session")
def _shown() -> list[Any]:
    """The page of the test before, if the next one can have it."""
    return []


@pytest.fixture
async def page(_opened: Any, _shown: list[Any]) -> AsyncIterator[Any]:
    """A page that knows nothing of the tests before. What goes wrong in it, in its own words, is in
    ``page.complaints``.

    A test that gives the page scripts sets ``page.spoilt``; the next one has another page then, and so it has
    after a complaint.
    """
    opened = _shown.pop() if _shown else await _opened.new_page(viewport=VIEWPORT)
    opened.complaints, opened.spoilt = [], False
    listeners = _listeners(opened)
    for event, listener in listeners.items():
        opened.on(event, listener)
    yield opened
    for event, listener in listeners.items():
        opened.remove_listener(event, listener)
    if opened.spoilt or opened.complaints or opened.is_closed():
        await opened.context.close()
        return
    await opened.evaluate(FORGET)
    await opened.goto("about:blank")
    await opened.set_viewport_size(VIEWPORT)
    await opened.context.clear_cookies()
    _shown.append(opened)


def _listeners(page: Any) -> dict[str, Any]:
    complain = page.complaints.append
    return {
        "pageerror": lambda error: complain(str(error)),
        "dialog": lambda dialog: complain(f"dialog {dialog.message}"),
        "console": lambda said: (
            complain(said.text)
            if said.type == "error" and "Failed to load resource" not in said.text
            else None
        ),
        "request": lambda asked: (
            complain(f"left the console: {asked.url}")
            if not asked.url.startswith(("http://127.0.0.1:", "data:"))
            else None
        ),
    }


async def violations(
    page: Any, rules: dict[str, Any] = EVERYTHING, *, within: str = ""
) -> list[str]:
    """What axe says of the page, or of what is within a part of it; one line for each rule that is broken."""
    from axe_playwright_python.async_playwright import Axe

    # A document stays while its pages change: it gets axe, half a megabyte, once.
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(Axe().axe_script)
    found: list[str] = await page.evaluate(VIOLATIONS, [within, rules])
    return found
