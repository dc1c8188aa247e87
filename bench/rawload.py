"""Load by many bare sockets at once: each goes on when it was answered, and answers are only counted."""

from __future__ import annotations

import contextlib
import selectors
import time
from collections.abc import Callable, Iterator, Sequence

import peers
from rawsocket import RawConnection

RECEIVE_BYTES = 1 << 20
PATIENCE_S = 30.0
AHEAD = 20_000
"""So many core messages are on their way at most, so that no server gives up a reader as too slow."""


@contextlib.contextmanager
def connections(server: peers.ServerProcess, count: int) -> Iterator[list[RawConnection]]:
    """So many connections, closed at the end."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(RawConnection(server.host, server.port)) for _ in range(count)]


def in_turns(
    clients: Sequence[RawConnection],
    total: int,
    frame: Callable[[RawConnection, int], bytes],
    mark: bytes,
    each: int = 1,
) -> float:
    """``total`` requests, ``each`` in flight per connection; returns the seconds until the last answer.

    ``frame`` makes the request of a number, and ``mark`` stands in each answer once.
    """
    began = time.perf_counter()
    sent = answered = 0
    tails = dict.fromkeys(clients, b"")
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
            frames = [frame(client, number) for number in range(sent, min(sent + each, total))]
            sent += len(frames)
            client.socket.sendall(b"".join(frames))
        while answered < total:
            ready = selector.select(PATIENCE_S)
            if not ready:
                raise TimeoutError(f"{answered} of {sent} requests were answered in time")
            for key, _ in ready:
                client = key.data
                data = tails[client] + _received(client)
                found = data.count(mark)
                cut = data.rfind(mark) + len(mark) if found else 0
                tails[client] = data[max(cut, len(data) - len(mark) + 1) :]
                answered += found
                frames = [frame(client, number) for number in range(sent, min(sent + found, total))]
                sent += len(frames)
                if frames:
                    client.socket.sendall(b"".join(frames))
    return time.perf_counter() - began


def flow(
    publisher: RawConnection,
    readers: Sequence[RawConnection],
    message: bytes,
    total: int,
    expected_bytes: int,
    at_once: int = 500,
) -> float:
    """Publish core messages until ``readers`` have had so many bytes together; returns the seconds."""
    chunk, per_message = message * at_once, expected_bytes / total
    began = time.perf_counter()
    sent = received = 0
    out = memoryview(b"")
    buffer = bytearray(RECEIVE_BYTES)
    publisher.socket.setblocking(False)
    with selectors.DefaultSelector() as selector:
        for reader in readers:
            reader.socket.setblocking(False)
            selector.register(reader.socket, selectors.EVENT_READ, reader)
        writing = False
        while received < expected_bytes:
            if not out and sent < total and sent - received / per_message < AHEAD:
                out = memoryview(chunk)[: len(message) * min(at_once, total - sent)]
                sent += len(out) // len(message)
            if bool(out) != writing:
                writing = bool(out)
                if writing:
                    selector.register(publisher.socket, selectors.EVENT_WRITE, None)
                else:
                    selector.unregister(publisher.socket)
            ready = selector.select(PATIENCE_S)
            if not ready:
                raise TimeoutError(f"{received} of {expected_bytes} bytes came in time")
            for key, _ in ready:
                if key.data is None:
                    out = out[publisher.socket.send(out) :]
                else:
                    received += key.data.socket.recv_into(buffer)
    return time.perf_counter() - began


def _received(client: RawConnection) -> bytes:
    data = client.socket.recv(RECEIVE_BYTES)
    if not data:
        raise ConnectionError("the server closed the connection")
    if b'"error"' in data or b"-ERR" in data:
        raise RuntimeError(f"the server refused: {data[:300]!r}")
    return data
