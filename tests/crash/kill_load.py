"""Publishers on bare sockets that remember every acknowledgement, and a reader of whole streams."""

from __future__ import annotations

import json
import re
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from crash.kill_checker import History, Message

STREAM = "CRASH"
WINDOW = 256
RECEIVE_BYTES = 1 << 18
PATIENCE_SECONDS = 30.0
POLL_SECONDS = 0.01

_ACK = re.compile(rb"MSG _INBOX\.load\.\d+\.(\d+) 1 \d+\r\n(\{[^\r]*\})\r\n")
_SEQUENCE = re.compile(rb'"seq": ?(\d+)')
_DELIVERY = re.compile(
    rb"MSG crash\.\d+ \d+ \$JS\.ACK\.[^.]+\.[^.]+\.\d+\.(\d+)\.[^ ]+ \d+\r\n(\d+):(\d+)\r\n"
)


def connect(host: str, port: int) -> socket.socket:
    """A greeted connection without headers, so that what comes is plain MSG."""
    wire = socket.create_connection((host, port), timeout=PATIENCE_SECONDS)
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    wire.sendall(b'CONNECT {"verbose":false,"pedantic":false,"headers":false}\r\nPING\r\n')
    greeting = b""
    while b"PONG\r\n" not in greeting:
        chunk = wire.recv(4096)
        if not chunk:
            raise ConnectionError("the server hung up while greeting")
        greeting += chunk
    return wire


class Publisher:
    """Keeps ``WINDOW`` messages in flight on one connection; counters go on across connections."""

    def __init__(self, number: int, history: History) -> None:
        self.number = number
        self.refusals_are_fair = False  # a disk that has lost its power takes nothing
        self.history = history
        self._sent = 0
        history.attempted[number] = 0

    def open(self, host: str, port: int) -> socket.socket:
        self._wire = connect(host, port)
        self._wire.sendall(b"SUB _INBOX.load.%d.* 1\r\n" % self.number)
        self._wire.setblocking(False)
        self._in_flight = 0
        self._output = b""
        self._input = b""
        return self._wire

    @property
    def has_output(self) -> bool:
        return bool(self._output) or self._in_flight < WINDOW

    def write(self) -> None:
        if not self._output:
            frames = []
            for counter in range(self._sent, self._sent + WINDOW - self._in_flight):
                payload = b"%d:%d" % (self.number, counter)
                reply = b"_INBOX.load.%d.%d" % (self.number, counter)
                frames.append(
                    b"PUB crash.%d %s %d\r\n%s\r\n" % (self.number, reply, len(payload), payload)
                )
            self._sent += len(frames)
            self.history.attempted[self.number] = self._sent
            self._in_flight += len(frames)
            self._output = b"".join(frames)
        self._output = self._output[self._wire.send(self._output) :]

    def read(self) -> bool:
        """Take in acknowledgements; False when the server is gone."""
        try:
            chunk = self._wire.recv(RECEIVE_BYTES)
        except ConnectionError:
            return False
        if not chunk:
            return False
        self._input += chunk
        end = 0
        for found in _ACK.finditer(self._input):
            end = found.end()
            self._in_flight -= 1
            sequence = _SEQUENCE.search(found[2])
            if self.refusals_are_fair and b'"error"' in found[2]:
                continue
            if b'"error"' in found[2] or sequence is None:
                raise AssertionError(f"the broker refused a publish: {found[2]!r}")
            self.history.acknowledged[self.number, int(found[1])] = int(sequence[1])
        self._input = self._input[end:]
        return True

    def close(self) -> None:
        self._wire.close()


def confirmed_to(publishers: list[Publisher]) -> int:
    """How many publishes are acknowledged in the history that they share."""
    return len(publishers[0].history.acknowledged)


def load(
    publishers: list[Publisher],
    host: str,
    port: int,
    seconds: float,
    kill: Callable[[], None],
    acknowledged: int = 0,
) -> None:
    """Publish for so long, and until their history has so many acknowledgements; then kill the server and
    read what it had still said."""
    selector = selectors.DefaultSelector()
    try:
        for publisher in publishers:
            events = selectors.EVENT_READ | selectors.EVENT_WRITE
            selector.register(publisher.open(host, port), events, publisher)
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 or confirmed_to(publishers) < acknowledged:
            assert left > -PATIENCE_SECONDS, f"fewer than {acknowledged} are acknowledged"
            for key, events in selector.select(timeout=left if left > 0 else POLL_SECONDS):
                publisher = key.data
                if events & selectors.EVENT_READ and not publisher.read():
                    raise AssertionError("the server hung up before it was killed")
                if events & selectors.EVENT_WRITE and publisher.has_output:
                    publisher.write()
                writing = selectors.EVENT_WRITE if publisher.has_output else 0
                selector.modify(key.fileobj, selectors.EVENT_READ | writing, publisher)
        kill()
        for publisher in publishers:
            while _readable(publisher):
                pass
    finally:
        selector.close()
        for publisher in publishers:
            publisher.close()


def _readable(publisher: Publisher) -> bool:
    try:
        return publisher.read()
    except BlockingIOError:
        return False


class Requester:
    """The few JetStream calls the test needs."""

    def __init__(self, host: str, port: int) -> None:
        self._wire = connect(host, port)
        self._wire.sendall(b"SUB _INBOX.ask 1\r\n")

    def __enter__(self) -> Requester:
        return self

    def __exit__(self, *_: object) -> None:
        self._wire.close()

    def ask(self, call: str, body: object = None) -> dict[str, Any]:
        payload = b"" if body is None else json.dumps(body).encode()
        head = b"PUB $JS.API.%s _INBOX.ask %d\r\n" % (call.encode(), len(payload))
        self._wire.sendall(head + payload + b"\r\n")
        data = b""
        while True:
            chunk = self._wire.recv(RECEIVE_BYTES)
            if not chunk:
                raise ConnectionError("the server hung up")
            data += chunk
            found = re.search(rb"MSG _INBOX\.ask 1 (\d+)\r\n", data)
            if found and len(data) >= found.end() + int(found[1]) + 2:
                document: dict[str, Any] = json.loads(data[found.end() :][: int(found[1])])
                return document

    def create_stream(self) -> None:
        config = {"name": STREAM, "subjects": ["crash.*"], "storage": "file"}
        reply = self.ask(f"STREAM.CREATE.{STREAM}", config)
        assert "error" not in reply, reply

    def publish(self, subject: str, messages: int) -> None:
        """Store so many small messages and wait for every acknowledgement."""
        frame = b"PUB %s _INBOX.ask 1\r\nx\r\n" % subject.encode()
        for start in range(0, messages, 1000):
            count = min(1000, messages - start)
            self._wire.sendall(frame * count)
            data = b""
            while data.count(b'"seq":') < count or not data.endswith(b"}\r\n"):
                chunk = self._wire.recv(RECEIVE_BYTES)
                assert chunk, "the server hung up"
                data += chunk
            assert b'"error"' not in data, data[:500]

    def state(self) -> dict[str, Any]:
        reply = self.ask(f"STREAM.INFO.{STREAM}")
        assert "error" not in reply, reply
        state: dict[str, Any] = reply["state"]
        return state


def read_back(host: str, port: int, messages: int) -> Iterator[tuple[int, Message]]:
    """Every message of the stream as ``(sequence, (publisher, counter))``, in stream order."""
    with Requester(host, port) as requester:
        body = {"stream_name": STREAM, "config": {"durable_name": "READ", "ack_policy": "none"}}
        reply = requester.ask(f"CONSUMER.CREATE.{STREAM}.READ", body)
        assert "error" not in reply, reply
    wire = connect(host, port)
    try:
        wire.sendall(b"SUB _INBOX.read 1\r\n")
        data, taken, asked = b"", 0, 0
        while taken < messages:
            if taken == asked:
                batch = min(5000, messages - taken)
                asked += batch
                request = b'{"batch":%d,"expires":%d}' % (batch, PATIENCE_SECONDS * 10**9)
                subject = b"$JS.API.CONSUMER.MSG.NEXT.%s.READ" % STREAM.encode()
                wire.sendall(b"PUB %s _INBOX.read %d\r\n%s\r\n" % (subject, len(request), request))
            chunk = wire.recv(RECEIVE_BYTES)
            assert chunk, "the server hung up while being read"
            data += chunk
            end = 0
            for found in _DELIVERY.finditer(data):
                end = found.end()
                taken += 1
                yield int(found[1]), (int(found[2]), int(found[3]))
            data = data[end:]
            assert b"Request Timeout" not in data, f"{taken} of {messages} messages came"
    finally:
        wire.close()
