"""A NATS client made of a socket and nothing else: it speaks the text protocol and writes a transcript.

It uses no code of the project, so that a mistake in our parser cannot hide itself.
"""

from __future__ import annotations

import json
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from conformance import masking

__all__ = ["CLOSED", "Closed", "Session", "Step", "Wire"]

REPLY_SECONDS = 2.0
QUIET_SECONDS = 0.1

Step = Callable[["Session"], None]


class Closed(Exception):
    """The server closed the connection."""


CLOSED = "(connection closed)"
SILENCE = "(silence)"


class Wire:
    """One connection. ``frame`` returns ``(kind, …)`` tuples of bytes; PINGs are answered on the way."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=REPLY_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self._early: deque[tuple[bytes, ...]] = deque()  # read by ``settle``, for ``frame``
        self._within_a_line = False
        self.settled = True

    def send(self, data: bytes) -> None:
        self.settled = False
        self._within_a_line = not data.endswith(b"\r\n")
        try:
            self._socket.sendall(data)
        except OSError:
            pass  # the server hung up while we talked: reading tells

    def close(self) -> None:
        self._socket.close()

    def frame(self, timeout: float = REPLY_SECONDS) -> tuple[bytes, ...] | None:
        """The next frame, or None when nothing came in time. Raises Closed."""
        return self._early.popleft() if self._early else self._frame(timeout)

    def settle(self) -> bool:
        """Wait until the server knows all that was sent here; whether frames came, which are kept."""
        if self._within_a_line:
            return False
        self.send(b"PING\r\n")
        try:
            while (frame := self._frame(REPLY_SECONDS)) is not None and frame[0] != b"PONG":
                self._early.append(frame)
        except Closed:
            pass  # who reads here next is told
        self.settled = True
        return bool(self._early)

    def _frame(self, timeout: float) -> tuple[bytes, ...] | None:
        deadline = time.monotonic() + timeout
        while True:
            line = self._until_line(deadline)
            if line is None:
                return None
            kind, _, rest = line.partition(b" ")
            if kind == b"PING":
                self.send(b"PONG\r\n")
                continue
            if kind == b"MSG":
                subject, sid, *reply, size = rest.split(b" ")
                return kind, subject, sid, b"".join(reply), b"", self._exactly(int(size))
            if kind == b"HMSG":
                subject, sid, *reply, header_size, size = rest.split(b" ")
                data = self._exactly(int(size))
                cut = int(header_size)
                return kind, subject, sid, b"".join(reply), data[:cut], data[cut:]
            return kind, rest

    def _receive(self, deadline: float) -> bool:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return False
        self._socket.settimeout(remaining)
        try:
            chunk = self._socket.recv(1 << 16)
        except TimeoutError:
            return False
        except ConnectionError as error:
            raise Closed from error
        if not chunk:
            raise Closed
        self._buffer += chunk
        return True

    def _until_line(self, deadline: float) -> bytes | None:
        while b"\r\n" not in self._buffer:
            if not self._receive(deadline):
                return None
        line, self._buffer = self._buffer.split(b"\r\n", 1)
        return line

    def _exactly(self, size: int) -> bytes:
        deadline = time.monotonic() + REPLY_SECONDS
        while len(self._buffer) < size + 2:
            if not self._receive(deadline):
                raise AssertionError(f"a frame of {size} bytes was cut off: {self._buffer[:200]!r}")
        data, rest = self._buffer[:size], self._buffer[size:]
        assert rest[:2] == b"\r\n", f"a payload must end with CR LF, found {rest[:2]!r}"
        self._buffer = rest[2:]
        return data


class Session:
    """One scenario against one server: connections by name, and what was seen, masked."""

    DEFAULT_CONNECT: Mapping[str, Any] = {
        "verbose": False,
        "pedantic": False,
        "headers": True,
        "no_responders": True,
        "protocol": 1,
        "lang": "conformance",
    }

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._wires: dict[str, Wire] = {}
        self._settling: set[str] = set()  # connections that said CONNECT
        self._inboxes = 0
        self.transcript: list[str] = []
        self.ack_replies: list[bytes] = []  # reply subjects of delivered messages, in order
        self.flow_reply = b""  # where the last request for flow control wants its answer
        self.pin = ""  # the id of the pinned client, from the last message that had one
        self.names: dict[str, str] = {}  # names the server invented, by the mask they get

    # Connections

    def greet(self, on: str, *, record: bool) -> None:
        """Open a connection and read the server's INFO; nothing is sent."""
        self._settling.discard(on)
        wire = self._wires[on] = Wire(*self._address)
        if record:
            self._record(on, wire)
        else:
            assert wire.frame() is not None, "no INFO"

    def wire(self, on: str) -> Wire:
        """The connection of this name; opened with the usual CONNECT when it is new."""
        if on not in self._wires:
            self.connect(on, self.DEFAULT_CONNECT)
        return self._wires[on]

    def connect(self, on: str, options: Mapping[str, Any]) -> None:
        """Open a connection, say CONNECT, wait for PONG; none of that is recorded."""
        self._settling.add(on)
        wire = self._wires[on] = Wire(*self._address)
        assert wire.frame() is not None, "no INFO"
        wire.send(b"CONNECT " + json.dumps(options).encode() + b"\r\n")
        for _ in range(2):  # a server may send a second INFO after its first PONG
            wire.send(b"PING\r\n")
            while (frame := wire.frame()) is not None and frame[0] != b"PONG":
                pass

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()

    # Recording

    def note(self, text: str) -> None:
        self.transcript.append(text)

    def _record(self, on: str, wire: Wire, timeout: float = REPLY_SECONDS) -> bytes:
        """Record one frame; returns its kind, ``b""`` for silence."""
        try:
            frame = wire.frame(timeout)
        except Closed:
            self.note(f"{on}: {CLOSED}")
            raise
        if frame is None:
            return b""
        if frame[0] in (b"MSG", b"HMSG") and frame[3].startswith(b"$JS.ACK."):
            self.ack_replies.append(frame[3])
        if frame[0] == b"HMSG" and frame[3].startswith(b"$JS.FC."):
            self.flow_reply = frame[3]
        if frame[0] == b"HMSG" and b"Nats-Pin-Id: " in frame[4]:
            self.pin = frame[4].partition(b"Nats-Pin-Id: ")[2].partition(b"\r")[0].decode()
        for line in masking.render(frame, self.names):
            self.note(f"{on}: {line}")
        return frame[0]

    def read(self, on: str, frames: int, timeout: float = REPLY_SECONDS) -> None:
        """Record exactly this many frames, or the silence instead of one of them."""
        wire = self.wire(on)
        for _ in range(frames):
            if not self._record(on, wire, timeout):
                self.note(f"{on}: {SILENCE}")
                return

    def read_for(self, on: str, subject: bytes, *, record: bool = True) -> None:
        """Pass over frames up to one whose subject begins with ``subject``, and record that one."""
        wire = self.wire(on)
        while (frame := wire.frame()) is not None:
            if frame[0] in (b"MSG", b"HMSG") and frame[1].startswith(subject):
                if record:
                    for line in masking.render(frame, self.names):
                        self.note(f"{on}: {line}")
                return
        self.note(f"{on}: {SILENCE}")

    def read_until_quiet(self, on: str, quiet: float = QUIET_SECONDS) -> None:
        """Record whatever comes until nothing has come for ``quiet`` seconds.

        The silence must be that of a server that had its turn, not of one the machine kept waiting.
        """
        wire = self.wire(on)
        while self._record(on, wire, quiet) or (on in self._settling and wire.settle()):
            pass

    def drain(self, on: str) -> None:
        """Send PING and record everything up to its PONG."""
        wire = self.wire(on)
        wire.send(b"PING\r\n")
        while True:
            kind = self._record(on, wire)
            if kind == b"PONG":
                return
            if not kind:
                self.note(f"{on}: {SILENCE}")
                return

    def read_until_closed(self, on: str, timeout: float = REPLY_SECONDS) -> None:
        wire = self.wire(on)
        while self._record(on, wire, timeout):
            pass
        self.note(f"{on}: (still open)")

    # Sending

    def send(self, on: str, data: bytes) -> None:
        """Send once the server knows what was sent on the other connections."""
        wire = self.wire(on)
        for other in self._settling - {on}:
            if not self._wires[other].settled:
                self._wires[other].settle()
        wire.send(data)

    def inbox(self, on: str) -> bytes:
        """Subscribe a fresh inbox; inboxes are numbered, so both servers see the same names."""
        self._inboxes += 1
        name = b"_INBOX.conformance.%d" % self._inboxes
        self.send(on, b"SUB %s %d\r\n" % (name, 1000 + self._inboxes))
        return name

    def publish(
        self, on: str, subject: bytes, reply: bytes, headers: bytes, payload: bytes
    ) -> None:
        target = subject + (b" " + reply if reply else b"")
        if headers:
            sizes = b"%d %d" % (len(headers), len(headers) + len(payload))
            frame = b"HPUB %s %s\r\n%s%s\r\n" % (target, sizes, headers, payload)
        else:
            frame = b"PUB %s %d\r\n%s\r\n" % (target, len(payload), payload)
        self.send(on, frame)


def run(steps: tuple[Step, ...], host: str, port: int) -> list[str]:
    """Run a scenario; a connection the server closes ends the step, not the scenario."""
    session = Session(host, port)
    try:
        for step in steps:
            try:
                step(session)
            except Closed:
                continue
    finally:
        session.close()
    return session.transcript


def clean_up(host: str, port: int) -> None:
    """Delete every stream, so that each scenario starts on an empty server."""
    session = Session(host, port)
    try:
        for name in _stream_names(session):
            _ask(session, b"$JS.API.STREAM.DELETE." + name.encode())
    finally:
        session.close()


def _stream_names(session: Session) -> Iterator[str]:
    reply = _ask(session, b"$JS.API.STREAM.NAMES")
    yield from (reply or {}).get("streams") or []


def _ask(session: Session, subject: bytes) -> dict[str, Any] | None:
    inbox = session.inbox("clean-up")
    session.publish("clean-up", subject, inbox, b"", b"")
    frame = session.wire("clean-up").frame()
    if frame is None or frame[0] != b"MSG":
        return None
    document: dict[str, Any] = json.loads(frame[5])
    return document
