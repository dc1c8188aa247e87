"""One client's connection: what it says goes over in pieces of any size, what it hears finds its request."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from headrace.broker.core.net.inprocess import InProcessSession
from headrace.broker.core.net.session import Session
from headrace.broker.core.peer import Peer
from headrace.wire import Parser, frames
from headrace.wire.inprocess import PublishRun
from sim.whole.plant import Plant

__all__ = ["Heard", "Link"]

Heard = Callable[[bytes, bytes, bytes, bytes], None]
"""Called with subject, reply, headers and payload of a message."""

RELAXED = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
PEDANTIC = b'CONNECT {"verbose":false,"pedantic":true,"headers":true,"no_responders":true}\r\n'
PLAIN = b'CONNECT {"verbose":true,"headers":true,"no_responders":true}\r\n'

HELLO = {"relaxed": RELAXED, "direct": RELAXED, "pedantic": PEDANTIC, "plain": PLAIN}


class Link:
    """A session and the bytes on their way to it.

    ``say`` takes bytes and what they mean: ``effect`` is called when the broker is about to have the
    last of them. What the broker says is heard at once: only a power cut loses it.
    """

    def __init__(self, plant: Plant, kind: str) -> None:
        self.plant = plant
        self.kind = kind
        self.session = plant.hub.connect(Peer(), InProcessSession if kind == "direct" else Session)
        plant.links[self.session.client_id] = self
        self.sid = self.session.client_id
        self.errors: list[str] = []
        self._parser = Parser.for_client()
        self._requests: dict[bytes, Heard] = {}
        self._topics: dict[bytes, Heard] = {}
        self._numbers = 0
        self._queue = bytearray()
        self._effects: deque[tuple[int, Callable[[], None]]] = deque()
        self._end = 0
        self.say(HELLO[kind] + b"SUB _I.%d.> 1\r\n" % self.sid)

    # -- to the broker

    def say(self, data: bytes, effect: Callable[[], None] | None = None) -> None:
        self._queue += data
        self._end += len(data)
        if effect is not None:
            self._effects.append((self._end, effect))

    def say_run(self, run: PublishRun, effect: Callable[[], None]) -> None:
        """Hand over a run, after everything said before."""
        assert isinstance(self.session, InProcessSession)
        self.push()
        effect()
        self.session.receive_chunks([run])

    def inbox(self, heard: Heard) -> bytes:
        """A reply subject, what comes to which is given to ``heard``."""
        self._numbers += 1
        key = b"%d" % self._numbers
        self._requests[key] = heard
        return b"_I.%d.%b" % (self.sid, key)

    def forget(self, inbox: bytes) -> None:
        """Nothing more comes to this inbox, or nobody minds."""
        self._requests.pop(inbox.rsplit(b".", 1)[1], None)

    def listen(self, subject: bytes, heard: Heard) -> None:
        """Subscribe to a subject of any other kind."""
        self._numbers += 1
        sid = b"t%d" % self._numbers
        self._topics[sid] = heard
        self.say(b"SUB %b %b\r\n" % (subject, sid))

    def open(self, heard: Heard) -> bytes:
        """An inbox with a subscription of its own, for messages that keep their subjects."""
        inbox = b"P.%d.%d" % (self.sid, self._numbers + 1)
        self.listen(inbox, heard)
        return inbox

    def close(self, inbox: bytes) -> None:
        """End such a subscription."""
        sid = b"t" + inbox.rsplit(b".", 1)[1]
        self._topics[sid] = _late
        self.say(b"UNSUB %b\r\n" % sid)

    @property
    def waiting(self) -> int:
        """How many bytes have not gone over."""
        return len(self._queue)

    def push(self, nbytes: int | None = None) -> None:
        """Hand over so many of the waiting bytes, or all."""
        if not self._queue:
            return
        chunk = bytes(self._queue[:nbytes])
        del self._queue[: len(chunk)]
        handed = self._end - len(self._queue)
        while self._effects and self._effects[0][0] <= handed:
            self._effects.popleft()[1]()
        self.session.receive(chunk)

    # -- from the broker

    def heard(self, parts: list[Any]) -> None:
        data = bytearray()
        for part in parts:
            if isinstance(part, tuple):
                self._frame(part)
            else:
                data += part
        for frame in self._parser.feed(bytes(data)) if data else ():
            self._frame(frame)

    def _frame(self, frame: Any) -> None:
        if frame[0] == frames.MSG:
            _, subject, sid, reply, headers, payload = frame
            if sid != b"1":
                self._topics[sid](subject, reply, headers, payload)
                return
            heard = self._requests.get(subject.split(b".", 3)[2])
            assert heard is not None, f"an answer nobody waits for: {frame}"
            heard(subject, reply, headers, payload)
        elif frame[0] == frames.ERR:
            self.errors.append(frame[1])


def _late(subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
    """What comes to an inbox that is over: only a status may."""
    assert headers.startswith((b"NATS/1.0 4", b"NATS/1.0 1")), (subject, headers)
