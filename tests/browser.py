"""Fixtures: the system's Chromium, and a page of it. A folder's conftest takes them by name."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest

import peers

__all__ = ["chromium", "page"]


@pytest.fixture(scope="session")
def chromium() -> str:
    """The system's Chromium."""
    found = filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    return next(found, None) or peers.missing_peer("Chromium", "run scripts/install-chromium")


@pytest.fixture
async def page(chromium: str) -> AsyncIterator[Any]:
    """A page of a fresh browser. What goes wrong in it, in its own words, is in ``page.complaints``."""
    from playwright.async_api import async_playwright

    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=arguments)
        try:
            opened: Any = await browser.new_page(viewport={"width": 1300, "height": 850})
            opened.complaints = []
            opened.on("pageerror", lambda error: opened.complaints.append(str(error)))
            opened.on("dialog", lambda dialog: opened.complaints.append(f"dialog {dialog.message}"))
            opened.on(
                "console",
                lambda said: (
                    opened.complaints.append(said.text)
                    if said.type == "error" and "Failed to load resource" not in said.text
                    else None
                ),
            )
            opened.on(
                "request",
                lambda asked: (
                    opened.complaints.append(f"left the console: {asked.url}")
                    if not asked.url.startswith(("http://127.0.0.1:", "data:"))
                    else None
                ),
            )
            yield opened
        finally:
            await browser.close()
