"""While developing: a program that is ended and started anew whenever its files change."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

__all__ = ["changed", "run_anew", "seen"]

LOOK_EVERY_S: Final = 0.5
FILES_MAX: Final = 10_000  # that are looked at
_HIDDEN: Final = ("__pycache__", "node_modules")

_log = logging.getLogger("headrace.worker")

Seen = dict[str, int]


def seen(folders: Sequence[Path]) -> Seen:
    """When each Python file below was changed. Hidden folders, and what is not ours, are left out."""
    found: Seen = {}
    for folder in folders:
        for path in _files(folder):
            try:
                found[str(path)] = path.stat().st_mtime_ns
            except FileNotFoundError:  # removed meanwhile
                continue
            if len(found) >= FILES_MAX:
                return found
    return found


def changed(before: Seen, after: Seen) -> list[str]:
    """The files that are new, gone or different."""
    return sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )


def _files(folder: Path) -> list[Path]:
    here, found = [folder], list[Path]()
    while here and len(found) < FILES_MAX:
        for path in here.pop().iterdir():
            if path.is_dir():
                if not path.name.startswith(".") and path.name not in _HIDDEN:
                    here.append(path)
            elif path.suffix == ".py":
                found.append(path)
    return found


async def run_anew(
    command: Sequence[str],
    folders: Sequence[Path],
    over: asyncio.Event,
    *,
    stop_timeout: float,
    every: float = LOOK_EVERY_S,
    told: Callable[[str], object] = _log.info,
) -> None:
    """Run ``command`` until ``over`` is set; it is told to end by SIGTERM, and killed where it does not.

    A program that has ended by itself is started again when a file changes.
    """
    before = await asyncio.to_thread(seen, folders)
    while not over.is_set():
        process = await asyncio.create_subprocess_exec(*command)
        try:
            files, before = await _until_changed(before, folders, over, every)
        finally:
            await _end(process, stop_timeout)
        if files:
            told(f"changed: {', '.join(files[:3])}{', …' if len(files) > 3 else ''}; starting anew")


async def _until_changed(
    before: Seen, folders: Sequence[Path], over: asyncio.Event, every: float
) -> tuple[list[str], Seen]:
    while True:
        try:
            async with asyncio.timeout(every):
                await over.wait()
        except TimeoutError:
            after = await asyncio.to_thread(seen, folders)
            if files := changed(before, after):
                return files, after
        else:
            return [], before


async def _end(process: asyncio.subprocess.Process, stop_timeout: float) -> None:
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(stop_timeout):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
