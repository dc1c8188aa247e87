"""What the tests of the console's pages do in a browser."""

from __future__ import annotations

from typing import Any


async def go(page: Any, path: str, heading: str) -> None:
    await page.evaluate("path => { location.hash = path }", f"#/{path}")
    await page.locator("main h2", has_text=heading).first.wait_for()


async def act(page: Any, button: str, confirm: str = "", **fields: str) -> None:
    """Open an action, fill it in, do it, and wait for the word that it is done."""
    await page.get_by_role("button", name=f"{button} …", exact=True).first.click()
    dialog = page.locator("dialog[open]").last
    for name, value in fields.items():
        await dialog.locator(f"[name={name}]").fill(value)
    do = dialog.locator("form button").first
    if confirm:
        assert await do.is_disabled(), "nothing is destroyed before the name is typed"
        await dialog.locator("[name=confirm]").fill(confirm)
    await do.click()
    await page.locator(".toast").wait_for()
    await dialog.wait_for(state="detached")


async def read(page: Any, said: str = "") -> None:
    """See the word that something is done, and let it go at once: by itself it stays for seconds."""
    if said:
        await page.locator(".toast", has_text=said).wait_for()
    await page.evaluate("dispatchEvent(new CustomEvent('toast', { detail: null }))")
    await page.locator(".toast").wait_for(state="detached")


def check(page: Any) -> None:
    assert page.complaints == []
