"""``headrace stream graph STREAM``."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections import deque
from typing import Final

import click

from ..shared.names import STREAM
from ..shared.units import DURATION, bytes_text, count_text
from ..shared.verbs import Session, online

_BARS: Final = "▁▂▃▄▅▆▇█"
_CLEAR: Final = "\x1b[H\x1b[2J"


@online(
    STREAM,
    click.option("--interval", type=DURATION, default=1.0, help="between two looks (1s)"),
    click.option("--count", type=click.IntRange(1), default=None, help="end after this many looks"),
)
async def graph(session: Session, stream: str, interval: float, count: int | None) -> None:
    """Draw how fast messages come and go, until Ctrl-C.

    On a terminal a picture is redrawn; elsewhere each look is a line.
    """
    found = await session.js.stream(stream)
    before = (await found.info()).state
    width = max(10, shutil.get_terminal_size().columns - 30)
    came: deque[float] = deque(maxlen=width)
    held: deque[float] = deque(maxlen=width)
    loop = asyncio.get_running_loop()
    looked, looks = loop.time(), 0
    while count is None or looks < count:
        await asyncio.sleep(interval)
        state, now = (await found.info()).state, loop.time()
        elapsed = now - looked
        rate = (state.last_seq - before.last_seq) / elapsed
        removed = (state.last_seq - before.last_seq) - (state.messages - before.messages)
        came.append(rate)
        held.append(state.messages)
        before, looked, looks = state, now, looks + 1
        document = {
            "stream": stream,
            "published_per_second": round(rate, 2),
            "removed_per_second": round(removed / elapsed, 2),
            "messages": state.messages,
            "bytes": state.bytes,
        }
        line = (
            f"{rate:10,.1f} msg/s in  {removed / elapsed:10,.1f} msg/s removed  "
            f"{count_text(state.messages):>12} messages  {bytes_text(state.bytes):>10}"
        )
        if session.output.is_text and sys.stdout.isatty():
            print(f"{_CLEAR}Stream {stream}\n\n{line}\n")
            print(f"published  {sparkline(came)}  {max(came):,.0f} msg/s at most")
            print(f"messages   {sparkline(held)}  {max(held):,.0f} at most", flush=True)
        else:
            session.output.line(document, line)
            sys.stdout.flush()


def sparkline(values: deque[float]) -> str:
    """A row of bars, the highest for the largest value."""
    top = max(values, default=0.0)
    if top <= 0:
        return _BARS[0] * len(values)
    return "".join(_BARS[min(7, int(value / top * 7.999))] for value in values)
