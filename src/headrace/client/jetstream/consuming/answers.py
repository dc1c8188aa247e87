"""What handlers answer on threads, on its way to the server."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ....errors import HeadraceError
from ....handling.callbacks import Queued
from ..message import DeliveredMessage, JetStreamMessage

if TYPE_CHECKING:
    from ...net.session import Session
else:
    Session = Any  # msgspec evaluates the annotations of a struct

SENT_WITHIN_S: Final = 0.002


class Answers:
    """Takes answers from any thread, and sends them from the loop's, at the latest ``SENT_WITHIN_S`` later.

    Waking the loop costs a system call. So what is answered soon after a thread began waits for its end, or
    for a timer; what comes later wakes the loop, and what follows soon goes together.

    Args:
        report: told of what could not be sent.
    """

    __slots__ = ("_is_armed", "_loop", "_made", "_report", "_session", "_thread")

    def __init__(self, session: Session, report: Callable[[Exception], None]) -> None:
        self._session = session
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._made: deque[bytes] = deque()
        self._is_armed = False  # something will call `_send`

    def expect(self) -> None:
        """A thread begins: no answer needs to wake the loop before the timer. Called on the loop's thread."""
        if not self._is_armed:
            self._is_armed = True
            self._loop.call_later(SENT_WITHIN_S, self._send)

    def add(self, command: bytes) -> None:
        """Send this soon. Raises ConnectionClosedError."""
        self._session.raise_if_closed()
        self._made.append(command)
        if threading.get_ident() == self._thread:
            self.send()
        elif not self._is_armed:
            self._is_armed = True
            self._loop.call_soon_threadsafe(self._send)

    def send(self) -> bool:
        """Send what was made so far; whether that is anything. Called on the loop's thread."""
        made = self._made
        if not made:
            return False
        commands = [made.popleft() for _ in range(len(made))]
        try:
            self._session.send_answers(b"".join(commands), len(commands))
        except HeadraceError as error:  # closed, or disconnected for long: they are delivered again
            self._report(error)
        else:
            self._session.outbox.write_now()
        return True

    def _send(self) -> None:
        if self.send():
            self._loop.call_later(SENT_WITHIN_S, self._send)
            return
        self._is_armed = False
        if self._made:  # one came in between, and found it armed
            self._is_armed = True
            self._loop.call_soon(self._send)


class MessageOnThread(JetStreamMessage, eq=False, kw_only=True):
    """A message whose answers may be given on any thread."""

    _answers: Answers

    @classmethod
    def of(cls, message: JetStreamMessage, answers: Answers) -> MessageOnThread:
        """Make it of a message that came on the loop."""
        return cls(message._session, message._frame, _answers=answers, _metadata=message._metadata)

    def ack(self) -> Queued:
        """Processed: it is not delivered again."""
        return DeliveredMessage.ack(self)

    def _send(self, data: bytes) -> None:
        self._answers.add(data)
