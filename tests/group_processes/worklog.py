"""The log that members of a group append to, of whichever implementation they are. Standard library only.

A line is ``<time> <worker> <what> <details…>``; times are nanoseconds of the machine's monotonic clock, which
all its processes share. One line is one write, so lines of several processes do not mix, and nothing that was
written is lost when a process is killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["Line", "Log", "Task", "parse", "read", "run"]


@dataclass(frozen=True)
class Task:
    """What a worker is told on its command line."""

    url: str
    kind: str  # static or elastic
    stream: str
    group: str
    member: str
    worker: str
    log: str
    ack_wait: float = 1.0
    max_ack_pending: int = 1
    work: float = 0.005
    confirmed: bool = True  # acks are awaited
    concurrency: int = 1
    again: float = 0.1  # seconds after which who was refused asks again

    def argument(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, argument: str) -> Task:
        return cls(**json.loads(argument))


@dataclass(frozen=True)
class Line:
    """What happened, to whom, when."""

    at: int
    worker: str
    what: str
    details: tuple[str, ...] = ()


class Log:
    """Appends for one worker. A message that is handled is three lines: begun, done, what came of its ack."""

    def __init__(self, path: str | Path, worker: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._worker = worker

    def note(self, what: str, *details: object, worker: str = "") -> None:
        """``worker`` is for what is done to another one."""
        words = [time.monotonic_ns(), worker or self._worker, what, *details]
        line = " ".join(str(word).replace(" ", "_").replace("\n", "|") for word in words)
        os.write(self._file, line.encode() + b"\n")

    def begun(self, payload: bytes, sequence: int, generation: int) -> tuple[Any, ...]:
        """A message is in the handler's hands; its payload is ``key number``."""
        key, number = payload.decode().split()
        about = (key, number, sequence, generation)
        self.note("begun", *about)
        return about

    def done(self, about: tuple[Any, ...]) -> None:
        """Its work is done, whatever becomes of its acknowledgement."""
        self.note("done", *about)

    def acked(self, about: tuple[Any, ...]) -> None:
        """The server has confirmed its acknowledgement."""
        self.note("acked", *about)

    def unacked(self, about: tuple[Any, ...], trouble: BaseException) -> None:
        """The server has not, as far as the worker knows."""
        self.note("unacked", *about, repr(trouble))

    def close(self) -> None:
        os.close(self._file)


def read(path: Path) -> list[Line]:
    """All lines, in the order of their times."""
    if not path.exists():
        return []
    text = path.read_text()
    return sorted(map(parse, text[: text.rfind("\n") + 1].splitlines()), key=lambda line: line.at)


def parse(text: str) -> Line:
    """One line."""
    at, worker, what, *details = text.split(" ")
    return Line(int(at), worker, what, tuple(details))


def run(work: Callable[[Task, Log], Coroutine[Any, Any, None]]) -> None:
    """Be a worker in a process of its own: its task is the argument of the program."""
    task = Task.of(sys.argv[1])
    log = Log(task.log, task.worker)
    try:
        asyncio.run(work(task, log))
    finally:
        log.close()
