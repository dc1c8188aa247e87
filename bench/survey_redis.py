"""Rows of ``survey`` for Redis Streams with ``appendfsync always``, where a redis-server is installed."""

from __future__ import annotations

import contextlib
import selectors
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import cpu
import peers
from contenders import ROOT
from survey_rows import PAYLOAD, Measured

NAME = "redis, appendfsync always"
RedisRow = Callable[[int, int], Measured]
"""From its port and process id to what was measured."""
_PATIENCE_S = 30.0


def is_installed() -> bool:
    return shutil.which("redis-server") is not None


@contextlib.contextmanager
def running() -> Iterator[tuple[int, int]]:
    """A fresh server on the disk of the other stores: its port and its process."""
    area = ROOT / "bench" / "results" / "stores"
    area.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=area))
    port = peers.free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory)]
    command += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(directory)


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1.0) as probe:
                probe.sendall(b"PING\r\n")
                if probe.recv(7) == b"+PONG\r\n":
                    return
        except OSError:
            time.sleep(0.01)
    raise TimeoutError("redis-server did not start in time")


def _command(*words: bytes) -> bytes:
    head = b"*%d\r\n" % len(words)
    return head + b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])


def _in_turns(
    sockets: Sequence[socket.socket], total: int, make: Callable[[int], bytes], ends: int, each: int
) -> float:
    """``total`` commands, ``each`` in flight per socket, whose answers have so many line ends."""
    began = time.perf_counter()
    sent = answered = 0
    lines = dict.fromkeys(sockets, 0)
    with selectors.DefaultSelector() as selector:
        for each_socket in sockets:
            selector.register(each_socket, selectors.EVENT_READ)
            upto = min(sent + each, total)
            each_socket.sendall(b"".join(map(make, range(sent, upto))))
            sent = upto
        while answered < total:
            ready = selector.select(_PATIENCE_S)
            if not ready:
                raise TimeoutError(f"{answered} of {sent} commands were answered in time")
            for key, _ in ready:
                asked: socket.socket = key.fileobj  # type: ignore[assignment]
                data = asked.recv(1 << 20)
                if not data or b"-ERR" in data:
                    raise ConnectionError(f"redis-server says {data[:200]!r}")
                found, lines[asked] = divmod(lines[asked] + data.count(b"\n"), ends)
                answered += found
                upto = min(sent + found, total)
                if upto > sent:
                    asked.sendall(b"".join(map(make, range(sent, upto))))
                    sent = upto
    return time.perf_counter() - began


def _timed(
    clients: int,
    messages: int,
    make: Callable[[int], bytes],
    ends: int,
    each: int,
    at: tuple[int, int],
) -> Measured:
    port, pid = at
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            for _ in range(clients)
        ]
        before = cpu.of_process(pid)
        seconds = _in_turns(sockets, messages, make, ends, each)
        return messages, seconds, cpu.of_process(pid) - before


def _add(streams: int, number: int) -> bytes:
    name = b"bench.%d" % (number * 7919 % streams)
    return _command(b"XADD", name, b"*", b"m", PAYLOAD)


def _set(keys: int, number: int) -> bytes:
    return _command(b"SET", b"key.%d" % (number * 7919 % keys), PAYLOAD)


def _publish(clients: int, messages: int, streams: int, each: int, at: tuple[int, int]) -> Measured:
    return _timed(clients, messages, partial(_add, streams), 2, each, at)


def _put(clients: int, messages: int, each: int, at: tuple[int, int]) -> Measured:
    return _timed(clients, messages, partial(_set, 10_000), 1, each, at)


def _confirm(messages: int, at: tuple[int, int]) -> Measured:
    """A consumer group's next message read, and acknowledged before the one after it."""
    port, pid = at
    with socket.create_connection(("127.0.0.1", port)) as asker:
        _in_turns([asker], messages, partial(_add, 1), 2, 1_000)
        group = _command(b"XGROUP", b"CREATE", b"bench.0", b"g", b"0")
        _in_turns([asker], 1, lambda _: group, 1, 1)
        read = _command(
            b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", b"1", b"STREAMS", b"bench.0", b">"
        )
        before, began = cpu.of_process(pid), time.perf_counter()
        for _ in range(messages):
            asker.sendall(read)
            data = b""
            while not data.endswith(PAYLOAD + b"\r\n"):
                data += asker.recv(1 << 16)
            name = data.split(b"\r\n")[7]  # the message's id
            asker.sendall(_command(b"XACK", b"bench.0", b"g", name))
            if asker.recv(1 << 16) != b":1\r\n":
                raise ConnectionError("redis-server did not acknowledge")
        return messages, time.perf_counter() - began, cpu.of_process(pid) - before


REDIS_ROWS: dict[str, Callable[[tuple[int, int]], Measured]] = {
    "awaited publish, 1 connection": partial(_publish, 1, 1_500, 1, 1),
    "awaited publish, 10 connections": partial(_publish, 10, 6_000, 1, 1),
    "awaited publish, 100 connections": partial(_publish, 100, 30_000, 1, 1),
    "100 streams, window 1,000": partial(_publish, 1, 20_000, 100, 1_000),
    "1,000 streams, window 1,000": partial(_publish, 1, 6_000, 1_000, 1_000),
    "1,000 streams, window 16,000": partial(_publish, 1, 32_000, 1_000, 16_000),
    "1,000 streams, 100 connections": partial(_publish, 100, 6_000, 1_000, 1),
    "one subject, window 16,000": partial(_publish, 1, 300_000, 1, 16_000),
    "key-value put, 10,000 keys": partial(_put, 1, 100_000, 4_000),
    "key-value put, 20 awaited": partial(_put, 20, 20_000, 1),
    "ack_sync, one at a time": partial(_confirm, 2_000),
}
"""The same work under the same names: XADD for a publish, SET for a put, XREADGROUP and XACK."""
