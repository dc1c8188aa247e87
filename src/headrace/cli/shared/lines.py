"""The lines of standard input, as they come."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from typing import Final

from .errors import Failure

LINE_BYTES_MAX: Final = 64 << 20
"""A longer line is an error: no server takes a message of that size."""

_READ_BYTES: Final = 1 << 16
_BLOCKS_AHEAD: Final = 16


async def lines_of_input() -> AsyncIterator[bytes]:
    """Each line without its end. The event loop goes on between them, however long one takes to come.

    Raises:
        Failure: a line is longer than ``LINE_BYTES_MAX``, or standard input cannot be read.
    """
    loop = asyncio.get_running_loop()
    blocks: asyncio.Queue[bytes | OSError] = asyncio.Queue(_BLOCKS_AHEAD)
    descriptor = sys.stdin.fileno()

    def read() -> None:
        """In a thread that may wait for ever and ends with the process: no lock of Python's is held."""
        while True:
            try:
                block: bytes | OSError = os.read(descriptor, _READ_BYTES)
            except OSError as error:
                block = error
            try:
                asyncio.run_coroutine_threadsafe(blocks.put(block), loop).result()
            except RuntimeError:
                return  # the loop has ended
            if not block or isinstance(block, OSError):
                return

    threading.Thread(target=read, name="standard input", daemon=True).start()
    rest = b""
    while block := await blocks.get():
        if isinstance(block, OSError):
            raise Failure(f"standard input: {block.strerror}")
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r")
        if len(rest) > LINE_BYTES_MAX:
            raise Failure(f"a line of standard input is longer than {LINE_BYTES_MAX >> 20} MiB")
    if rest:
        yield rest
