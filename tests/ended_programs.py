"""What a program says of the messages that it handles, until it is ended."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence

__all__ = ["told_by"]

ENOUGH = 3


async def told_by(
    program: asyncio.subprocess.Process, end: str, ways: Sequence[str]
) -> dict[str, list[int]]:
    """Let it handle a few messages in each way, end it, and read what it said to the end.

    Args:
        end: "return" for a line that it waits for; else SIGTERM ends it.

    Returns:
        The numbers of the messages, by what became of them and how: "begun plain", "acked plain".
    """
    told: dict[str, list[int]] = {
        f"{what} {way}": [] for what in ("begun", "acked") for way in ways
    }

    async def read(until_enough: bool) -> None:
        assert program.stdout is not None
        while line := (await program.stdout.readline()).decode():
            what, _, number = line.rpartition(" ")
            told[what].append(int(number))
            if until_enough and all(len(told[f"acked {way}"]) >= ENOUGH for way in ways):
                return

    async with asyncio.timeout(120):  # two Pythons start, on a machine that may be busy
        await read(True)
        if end == "return":
            assert program.stdin is not None
            program.stdin.write(b"\n")
        else:
            program.send_signal(signal.SIGTERM)
        await read(False)
        await program.wait()
    return told
