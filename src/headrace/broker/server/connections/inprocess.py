"""A client in this event loop, in the place of a socket: its chunks into its session, and frames back.

Calls go straight in one direction only: what the client says is handled while it says it, and what the
session has to say leaves at the end of the tick, as with sockets.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from ....errors import ConfigurationError, ConnectionClosedError
from ....wire import Parser
from ....wire.frames import Frame
from ....wire.inprocess import Chunk, ClientEnd
from ...core.net.inprocess import InProcessSession
from ...core.peer import Peer
from .tracing import say_closed, who

if TYPE_CHECKING:
    from .pump import Pump

logger = logging.getLogger("headrace.broker")

TICK_BYTES_MAX: Final = 1024 * 1024  # from one client in one tick, or kept of it; then it waits


class InProcessConnection:
    """The server's end; to the pump it is one connection among others."""

    def __init__(self, pump: Pump, client: ClientEnd) -> None:
        self._pump = pump
        self._client = client
        self._parser = Parser.for_client()
        self._held = pump.reading_paused
        self._paused = False
        self._received = 0  # in this tick
        self._over = False
        self.is_waiting = False
        self._why = ""
        self._reason: Exception | None = None
        self.gone = asyncio.Event()
        """Set once the client knows that it is over."""
        self._session = pump.hub.connect(Peer(), InProcessSession)
        pump.connections[self._session.client_id] = self
        logger.debug("cid:%d - Client connection created in process", self._session.client_id)
        self._regulate()
        pump.wake()

    # What the client calls

    def receive(self, chunks: list[Chunk]) -> None:
        session = self._session
        if self._over or session.closed:
            return
        pump = self._pump
        pump.slices.begin()
        self._handle(chunks)
        before, self._received = self._received, self._received + sum(map(len, chunks))
        if not before:
            pump.loop.call_soon(self._next_tick)
        self._regulate()

    def close(self) -> None:
        self._end("Client Closed")

    # What the pump and the broker call

    @property
    def seniority(self) -> int:
        return self._session.client_id

    @property
    def subscriptions(self) -> int:
        return len(self._session.subscriptions)

    def flush(self) -> None:
        """Hand over what the session has to say; hang up if it is closed."""
        session = self._session
        if self._over:
            return
        before = session.output.written
        parts = session.take_output()
        if parts:
            try:
                self._client.frames_received(self._frames(parts), session.output.written - before)
            except Exception as error:
                logger.exception("cid:%d - the client failed to take frames", session.client_id)
                self._reason = error
                self._end("Client Failed")
                return
            self._pump.hub.wrote(session, 0)
        if session.closed:
            self._reason = ConnectionClosedError(session.close_reason)
            self._end(session.close_reason)
        else:
            if session.wants_slice:
                self._pump.slices.ask(self)
            if self._paused:
                self._regulate()

    def use_slice(self) -> None:
        """Go on with what the client said before."""
        self._handle(None)
        if not self._over:
            self._regulate()
        elif not self._session.wants_slice:
            self._leave()

    def hold_reading(self, hold: bool) -> None:
        """Let the client wait, because the disk is behind, or go on."""
        self._held = hold
        self._regulate()

    def hurry(self) -> None:
        """The broker stops: there is nothing to hurry, frames are taken at once."""

    def abort(self) -> None:
        self._end("Client Closed")

    # Private

    def _handle(self, chunks: list[Chunk] | None) -> None:
        """Handle what the client says, or with None what it said before, as far as there is time."""
        session = self._session
        pressure = self._pump.pressure
        is_behind, queued = pressure.is_behind, 0
        if is_behind:
            queued = self._pump.hub.queued_bytes
        try:
            if chunks is None:
                session.go_on()
            else:
                session.receive_chunks(chunks)
        except Exception:
            # A fault of ours, so of any kind. This client cannot be told what became of its messages, and is
            # hung up on; the loop serves everybody else, too, and an error that left here would end in its
            # handler, with the client still connected and its input half handled.
            logger.exception("%s - failed while handling a client's data", who(session))
            session.close("Internal Error")
        if is_behind:
            pressure.staged(self, self._pump.hub.queued_bytes - queued)
        if session.wants_slice:
            self._pump.slices.ask(self)
        self._pump.wake()

    def _next_tick(self) -> None:
        self._received = 0
        self._regulate()

    def _regulate(self) -> None:
        """Let the client say more, unless it has said enough for now, or there is a reason to wait."""
        session = self._session
        if self._over:
            return
        much = max(self._received, session.kept_bytes) > TICK_BYTES_MAX
        pause = self._held or much or (session.holds_input and not session.wants_slice)
        if pause == self._paused:
            return
        self._paused = pause
        if pause:
            self._client.pause_writing()
        else:
            self._client.resume_writing()

    def _frames(self, parts: list[Any]) -> list[Frame]:
        """The frames among the parts as they are, and those the bytes in between stand for."""
        if bytes not in set(map(type, parts)):
            return parts
        frames: list[Frame] = []
        for part in parts:
            if isinstance(part, bytes):
                frames += self._parser.feed(part)
            else:
                frames.append(part)
        return frames

    def _end(self, reason: str) -> None:
        """It is over: the client is told after this turn of the loop, or when what it said is handled."""
        if self._over:
            return
        self._over = True
        self._why = reason
        if not self._session.wants_slice or self._pump.hub.is_shutting_down:
            self._leave()

    def _leave(self) -> None:
        session = self._session
        self._pump.slices.withdraw(self)
        session.disconnected(self._why)
        session.take_output()
        self._pump.pressure.forget(self)
        self._pump.connections.pop(session.client_id, None)
        say_closed(session, self._why)
        self._pump.wake()
        self._pump.loop.call_soon(self._tell)

    def _tell(self) -> None:
        self.gone.set()
        self._client.connection_lost(self._reason)


def accept(pump: Pump | None, client: ClientEnd) -> InProcessConnection:
    """A connection for a client in the broker's own loop; see ``wire.inprocess.Acceptor``."""
    if pump is None or pump.hub.is_shutting_down:
        raise ConnectionClosedError("the broker is not running")
    if asyncio.get_running_loop() is not pump.loop:
        raise ConfigurationError(
            "an in-process connection is made in the broker's own event loop; "
            "from another one connect to client_url"
        )
    return InProcessConnection(pump, client)
