"""The lines of standard input, as they come."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError
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
            putting = blocks.put(block)
            try:
                asyncio.run_coroutine_threadsafe(putting, loop).result()
            except (RuntimeError, CancelledError):
                putting.close()
                return  # the loop has ended, or does
            if not block or isinstance(block, OSError):
                return

    threading.Thread(target=read, name="standard input", daemon=True).start()
    begun: list[bytes] = []  # of a line whose end has not come
    size = 0
    while block := await blocks.get():
        if isinstance(block, OSError):
            raise Failure(f"standard input: {block.strerror}")
        first, *others = block.split(b"\n")
        begun.append(first)
        size += len(first)
        for other in others:
            yield b"".join(begun).removesuffix(b"\r")
            begun, size = [other], len(other)
        if size > LINE_BYTES_MAX:
            raise Failure(f"a line of standard input is longer than {LINE_BYTES_MAX >> 20} MiB")
    if size:
        yield b"".join(begun)
