"""How any thread sends through one publisher: in batches, in the order of the calls."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from ..message import HeadersLike
from ..publish.publisher import Publisher
from .loop_thread import LoopThread

__all__ = ["Sending"]

WAITING_MAX: Final = 4096  # messages not yet taken by the loop's thread; then `send` waits


class Sending:
    """Makes the commands of messages on the caller's thread; the loop's thread takes them many at a time
    and keeps the window. Several threads may send; numbers follow the order of their ``send`` calls."""

    __slots__ = ("_commands", "_inner", "_lock", "_next", "_pump", "_thread")

    def __init__(self, thread: LoopThread, inner: Publisher) -> None:
        self._thread = thread
        self._inner = inner
        self._lock = threading.Lock()  # numbers and queues in the same order
        self._next = 0
        self._commands: deque[Any] = deque()  # filled by senders, emptied by the pump
        self._pump: asyncio.Task[None] | None = None

    @property
    def sent(self) -> int:
        return self._next

    @property
    def in_flight(self) -> int:
        return self._inner.in_flight + len(self._commands)

    def send(self, subject: str, payload: bytes, headers: HeadersLike, *, msg_id: str) -> int:
        with self._lock:
            number = self._next
            command = self._inner._command(number, subject, payload, headers, msg_id)
            self._next = number + 1
            commands = self._commands
            commands.append(command)
            # What `_hand_over` does, without a call in the usual case: this runs per message.
            if len(commands) == 1 or len(commands) >= WAITING_MAX:
                self._hand_over()
            return number

    def send_many(
        self, messages: Iterable[tuple[str, bytes] | tuple[str, bytes, HeadersLike]]
    ) -> int:
        count = 0
        for message in messages:
            with self._lock:
                command = self._inner._command(self._next, *message)
                self._next += 1
                self._commands.append(command)
                self._hand_over()
            count += 1
        return count

    def flush(self) -> None:
        self._thread.run(self._flush())

    async def _flush(self) -> None:
        await self._all_taken()
        await self._inner.flush()

    def close(self) -> None:
        self._thread.run(self._close())

    async def _close(self) -> None:
        self._inner.close()
        await self._all_taken()

    def _hand_over(self) -> None:
        """Wake the loop's thread for the first command; wait for it when too many are queued."""
        if len(self._commands) >= WAITING_MAX:
            self._thread.run(self._all_taken())
        elif len(self._commands) == 1:
            self._thread.post(self._start_pump)

    # On the loop's thread

    def _start_pump(self) -> None:
        if self._commands and (self._pump is None or self._pump.done()):
            sending = self._inner._send_ready(self._commands)
            self._pump = asyncio.get_running_loop().create_task(sending, name="publisher")

    async def _all_taken(self) -> None:
        """Until the pump has taken every message queued so far."""
        while self._commands or (self._pump is not None and not self._pump.done()):
            self._start_pump()
            if self._pump is not None:
                await asyncio.wait([self._pump])
