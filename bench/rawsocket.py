"""A publisher and a requester on a bare socket: as little between the clock and the server as can be.

Frames are encoded before the clock starts and acknowledgements are counted, not parsed, so that what
is measured is the server.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import socket
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

ACK_MARK = b'"seq":'
RECEIVE_BYTES = 1 << 18


class RawConnection:
    """A connected, greeted NATS connection subscribed to one inbox."""

    _numbers = itertools.count()

    def __init__(self, host: str, port: int) -> None:
        self.inbox = b"_INBOX.bench%d-%d" % (os.getpid(), next(self._numbers))
        self.socket = socket.create_connection((host, port), timeout=30.0)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""
        self._read_line()  # INFO
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}
        self.socket.sendall(b"CONNECT " + json.dumps(options).encode() + b"\r\n")
        self.socket.sendall(b"SUB %b 1\r\nSUB %b.* 2\r\nPING\r\n" % (self.inbox, self.inbox))
        while self._read_line() != b"PONG":
            pass

    @classmethod
    def to(cls, url: str) -> RawConnection:
        """One to the server at ``nats://host:port``."""
        address = urlsplit(url)
        return cls(str(address.hostname), address.port or 4222)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # the server has closed it
            self.socket.shutdown(socket.SHUT_RDWR)  # or a thread that reads would keep it open
        self.socket.close()

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read_line(self) -> bytes:
        while b"\r\n" not in self._rest:
            chunk = self.socket.recv(RECEIVE_BYTES)
            if not chunk:
                raise ConnectionError("the server closed the connection")
            self._rest += chunk
        line, self._rest = self._rest.split(b"\r\n", 1)
        return line

    def _read_exactly(self, size: int) -> bytes:
        while len(self._rest) < size:
            chunk = self.socket.recv(RECEIVE_BYTES)
            if not chunk:
                raise ConnectionError("the server closed the connection")
            self._rest += chunk
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def ping(self) -> None:
        """A round trip without any work."""
        self.socket.sendall(b"PING\r\n")
        while (line := self._read_line()) != b"PONG":
            if line == b"PING":
                self.socket.sendall(b"PONG\r\n")

    def request(self, subject: str, body: object = None) -> dict[str, Any]:
        """Ask the JetStream API; raises RuntimeError when the reply is an error."""
        payload = b"" if body is None else json.dumps(body).encode()
        head = b"PUB %s %s %d\r\n" % (subject.encode(), self.inbox, len(payload))
        self.socket.sendall(head + payload + b"\r\n")
        while True:
            line = self._read_line()
            if line == b"PING":
                self.socket.sendall(b"PONG\r\n")
            elif line.startswith(b"MSG "):
                text = self._read_exactly(int(line.rsplit(b" ", 1)[1]) + 2)[:-2]
                reply: dict[str, Any] = json.loads(text)
                if "error" in reply:
                    raise RuntimeError(f"{subject}: {reply['error']}")
                return reply
            elif line.startswith((b"-ERR", b"HMSG")):
                raise RuntimeError(f"{subject}: {line!r}")

    def publish_acked(
        self,
        messages: int,
        window: int,
        payload_bytes: int,
        subject: Callable[[int], str] | str = "bench.publish",
        frames_per_chunk: int = 500,
        spread_bytes: int = 0,
        own_replies: bool = False,
        message_ids: bool = False,
    ) -> float:
        """Publish with at most ``window`` unacknowledged; returns the seconds until the last ack.

        With ``spread_bytes`` the sizes wander evenly that far around ``payload_bytes``. With
        ``own_replies`` each message has a reply subject of its own, as a client needs to tell acks apart;
        that costs a server more. With ``message_ids`` each has a ``Nats-Msg-Id`` that was never there before.
        """
        run = b"%022d" % next(self._numbers)
        chunks, size = [], []
        for start in range(0, messages, frames_per_chunk):
            count = min(frames_per_chunk, messages - start)
            frames = []
            for index in range(start, start + count):
                name = subject if isinstance(subject, str) else subject(index)
                length = payload_bytes - spread_bytes + index * 7919 % (2 * spread_bytes + 1)
                reply = b"%b.%d" % (self.inbox, index) if own_replies else self.inbox
                block = (
                    b"NATS/1.0\r\nNats-Msg-Id: %b.%d\r\n\r\n" % (run, index) if message_ids else b""
                )
                frames.append(_publish(name.encode(), reply, block, b"x" * length))
            chunks.append(b"".join(frames))
            size.append(count)
        return self._pump(chunks, size, messages, window)

    def _pump(self, chunks: list[bytes], size: list[int], messages: int, window: int) -> float:
        wire = self.socket
        wire.setblocking(False)
        poll = select.poll()
        poll.register(wire, select.POLLIN)
        sent = acked = index = 0
        tail = b""
        out = memoryview(b"")
        started = time.perf_counter()
        while acked < messages:
            if not out and index < len(chunks) and sent + size[index] - acked <= window:
                out = memoryview(chunks[index])
                sent += size[index]
                index += 1
            poll.modify(wire, select.POLLIN | (select.POLLOUT if out else 0))
            ((_, events),) = poll.poll(30_000) or [(0, 0)]
            if not events:
                raise TimeoutError(f"{acked} of {sent} published messages acknowledged in time")
            if events & select.POLLOUT:
                out = out[wire.send(out) :]
            if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
                data = tail + wire.recv(RECEIVE_BYTES)
                if len(data) == len(tail):
                    raise ConnectionError("the server closed the connection")
                if b'"error"' in data or b"-ERR" in data:
                    raise RuntimeError(f"the server refused: {data[:300]!r}")
                acked += data.count(ACK_MARK)
                # A mark cut in two by the chunk border is counted with the next chunk.
                cut = data.rfind(ACK_MARK)
                keep = max(len(data) - len(ACK_MARK) + 1, cut + len(ACK_MARK))
                tail = data[keep:]
        elapsed = time.perf_counter() - started
        wire.settimeout(30.0)
        self._rest = b""
        return elapsed


def _publish(subject: bytes, reply: bytes, block: bytes, payload: bytes) -> bytes:
    if not block:
        return b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(payload), payload)
    total = len(block) + len(payload)
    return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject, reply, len(block), total, block, payload)
