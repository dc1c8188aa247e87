"""A member of ``examples/exactly_once.py`` in a process of its own, until it is killed or told to end.

python booking_worker.py EXAMPLE URL DATABASE MEMBER
"""

from __future__ import annotations

import asyncio
import importlib.util
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import headrace
from headrace.errors import HeadraceError

PAUSE_S: Final = 0.001  # beside each booking, so that many are under way when something dies


def slowed(book: Callable[..., bool], seconds: float) -> Callable[..., bool]:
    """The booking, with time to be killed in before it and after it."""

    def call(*args: object) -> bool:
        time.sleep(seconds)
        done = book(*args)
        time.sleep(seconds)
        return done

    return call


def load(path: str) -> Any:
    spec = importlib.util.spec_from_file_location("the_example", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def main(path: str, url: str, database: str, member: str) -> None:
    example = load(path)
    example.Bank.book = slowed(example.Bank.book, PAUSE_S)
    bank = example.Bank(Path(database))
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    async with headrace.connect(
        url, reconnect_wait=0.02, reconnect_wait_max=0.1, retry_first_connect=True
    ) as connection:
        while not over.is_set():
            try:
                await example.work(connection.jetstream(timeout=2), bank, member, over)
            except HeadraceError as error:  # the server was away when it joined
                print(repr(error), file=sys.stderr, flush=True)
                await asyncio.sleep(0.002)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
