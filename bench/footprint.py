"""What the server keeps of each message, key, stream, consumer and connection: memory and open files.

Told is what a process's anonymous memory and its open files have grown by, divided by how many were
made. Pages of files, which the system takes back when it likes, are left out.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import contenders
import report
from contenders import Contender, running
from rawsocket import RawConnection
from waiting import until_here

CONFIG = {"name": contenders.STREAM, "subjects": ["bench.>"], "storage": "file", "num_replicas": 1}
WINDOW = 16_000
STILL = 100
"""Looks, at least a hundredth of a second apart, in which memory has to have stayed as it is."""

Make = Callable[[RawConnection, range, ExitStack], None]


def memory_kib(pid: int) -> int:
    """Anonymous memory of a process, as the system counts it."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("RssAnon")))


def settled(pid: int) -> tuple[int, int]:
    """Memory in bytes and open files, once nothing is under way any more."""
    seen: list[int] = []

    def is_still() -> bool:
        seen.append(memory_kib(pid))
        last = seen[-STILL:]
        return len(last) == STILL and max(last) - min(last) <= 64

    until_here(is_still, "its memory does not stay as it is", within=60)
    return seen[-1] * 1024, len(os.listdir(f"/proc/{pid}/fd"))


def messages(connection: RawConnection, which: range, _: ExitStack) -> None:
    """Of one subject, 100 bytes each."""
    connection.publish_acked(len(which), WINDOW, 100, lambda index: "bench.one")


def keys(connection: RawConnection, which: range, _: ExitStack) -> None:
    """A message each, of subjects of 20 characters."""
    connection.publish_acked(
        len(which), WINDOW, 16, lambda index: f"bench.key-{which[0] + index:010}"
    )


def streams(connection: RawConnection, which: range, _: ExitStack) -> None:
    """Without a message."""
    for number in which:
        config = {**CONFIG, "name": f"S{number}", "subjects": [f"s.{number}"]}
        connection.request(f"$JS.API.STREAM.CREATE.S{number}", config)


def consumers(connection: RawConnection, which: range, _: ExitStack) -> None:
    """Durable ones that nobody asks."""
    for number in which:
        name = f"c-{number}"
        config = {"durable_name": name, "ack_policy": "explicit", "filter_subject": f"bench.{name}"}
        subject = f"$JS.API.CONSUMER.CREATE.{contenders.STREAM}.{name}.bench.{name}"
        connection.request(subject, {"stream_name": contenders.STREAM, "config": config})


def connections(connection: RawConnection, which: range, kept: ExitStack) -> None:
    """With one subscription each."""
    host, port = connection.socket.getpeername()[:2]
    for number in which:
        one = kept.enter_context(socket.create_connection((host, port), timeout=30))
        one.sendall(b"CONNECT {}\r\nSUB inbox.%d 1\r\nPING\r\n" % number)
        seen = b""
        while b"PONG" not in seen:
            seen += one.recv(65536)


THINGS: dict[str, tuple[Make, int, int]] = {
    # The first million fills the cache of payloads, which is as large as it is set to be.
    "message": (messages, 1_000_000, 2_000_000),
    "key (subject)": (keys, 20_000, 200_000),
    "stream": (streams, 20, 200),
    "durable consumer": (consumers, 100, 800),
    "connection": (connections, 50, 500),
}
"""How each is made, how many before the first look, and how many between the two."""


def measure(contender: Contender, make: Make, before: int, count: int) -> tuple[float, float]:
    """Bytes and open files of each."""
    with running(contender) as server, ExitStack() as kept:
        connection = kept.enter_context(RawConnection("127.0.0.1", server.port))
        connection.request(f"$JS.API.STREAM.CREATE.{contenders.STREAM}", CONFIG)
        pid = server.process.pid
        make(connection, range(before), kept)
        memory, files = settled(pid)
        make(connection, range(before, before + count), kept)
        after, more = settled(pid)
        return (after - memory) / count, (more - files) / count


def run(chosen: list[Contender], only: str | None = None) -> None:
    """The table of docs/limits.md."""
    rows = []
    for contender in chosen:
        for name, (make, before, count) in THINGS.items():
            if only and only not in name:
                continue
            size, files = measure(contender, make, before, count)
            rows.append([contender.name, name, f"{count:,}", f"{size:,.0f}", f"{files:.2f}"])
    names = ["server", "each", "made", "bytes", "open files"]
    report.table("What the server keeps of each thing", names, rows)
