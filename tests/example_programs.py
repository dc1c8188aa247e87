"""The programs of ``examples`` as processes, started as their pages say."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

__all__ = ["WITHIN_S", "Program", "started"]

WITHIN_S = 60.0  # generous: processes start on a busy machine


class Program:
    """A process, and what it has said."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def said(self) -> str:
        return self._log.read_text()

    async def ended(self, *, told: bool, by: signal.Signals = signal.SIGTERM) -> str:
        """Wait for its end, after a signal if it is told to; what it has said. It ends with status 0."""
        if told:
            self._process.send_signal(by)
        status = await asyncio.to_thread(self._process.wait, WITHIN_S)
        assert status == 0, self.said
        return self.said


@asynccontextmanager
async def started(
    *command: str, url: str, log: Path, folder: Path, **environment: str
) -> AsyncIterator[Program]:
    """``python`` with these arguments in a folder; it is killed if it still runs at the end."""
    said = {**os.environ, "NATS_URL": url, "PYTHONDONTWRITEBYTECODE": "1", **environment}
    with log.open("ab") as sink:
        process = subprocess.Popen(
            [sys.executable, "-X", "dev", *command], cwd=folder, env=said, stdout=sink, stderr=sink
        )
    try:
        yield Program(process, log)
    finally:
        process.kill()
        process.wait()
