from __future__ import annotations

import logging
from typing import Any

import pytest

from console_world import fill
from headrace.console.watcher import Watcher
from waiting import until

OURS = pytest.mark.parametrize("server", ["headrace"], indirect=True)


@OURS
async def test_a_fault_of_the_console_is_said_and_it_looks_on(
    world: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watcher = world.console.sources.watcher
    await fill(world.js)
    await world.get("/overview?now=1")
    take, faults = watcher._take, 0

    async def broken() -> Any:
        nonlocal faults
        faults += 1
        raise ValueError("nobody foresaw that")

    with caplog.at_level(logging.WARNING, logger="headrace.console"):
        monkeypatch.setattr(watcher, "_take", broken)
        watcher._wanted.set()
        await until(lambda: faults >= 1 and watcher.error)
        watcher._wanted.set()
        await until(lambda: faults >= 2)
    seen = await world.get("/overview")
    assert (
        seen["error"] == "The console failed to look at the server: ValueError: nobody foresaw that"
    )
    assert seen["streams"] == 3, "the last look stays"
    (told,) = [each for each in caplog.records if each.name == "headrace.console"]
    assert told.exc_info is not None
    assert told.levelno == logging.ERROR
    monkeypatch.setattr(watcher, "_take", take)
    watcher._wanted.set()
    await until(lambda: not watcher.error)


@OURS
async def test_what_fails_after_the_look_leaves_the_one_before(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher: Watcher = world.console.sources.watcher
    await watcher.refresh()
    before = watcher.look

    def broken(*_: object) -> dict[str, Any]:
        raise KeyError("curve")

    monkeypatch.setattr("headrace.console.watcher.curves", broken)
    await watcher.refresh()
    assert watcher.look is before
    assert "KeyError" in watcher.error
