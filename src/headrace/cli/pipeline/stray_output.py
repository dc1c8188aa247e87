"""Keeps what is printed by code of users, by Spark and by its workers away from what a command shows."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from ...pipeline.session.spark_log import Pump


@contextmanager
def apart(log: Path, *, errors: bool) -> Iterator[TextIO]:
    """Within, everything that is printed goes to the end of ``log``; what is yielded is the standard output.

    Processes that are started within inherit that. Where standard output is no file, as in a test, only what
    Python prints is kept apart.

    Args:
        errors: standard error goes there, too.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    streams = {1: sys.stdout, 2: sys.stderr} if errors else {1: sys.stdout}
    for stream in streams.values():
        stream.flush()
    kept = {number: os.dup(number) for number, each in streams.items() if _is_a_file(each, number)}
    shown = sys.stdout
    if 1 in kept:
        shown = os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding, buffering=1)
    try:
        with _opened(log, is_file=bool(kept)) as opened:
            for number in kept:
                os.dup2(opened.fileno(), number)
            sys.stdout, sys.stderr = opened, opened if errors else sys.stderr
            try:
                yield shown
            finally:
                opened.flush()
                sys.stdout = streams[1]
                sys.stderr = streams.get(2, sys.stderr)
                shown.flush()
                for number, descriptor in kept.items():  # before the log takes nothing any more
                    os.dup2(descriptor, number)
    finally:
        for descriptor in kept.values():
            os.close(descriptor)
        if 1 in kept:
            shown.close()


@contextmanager
def _opened(log: Path, *, is_file: bool) -> Iterator[TextIO]:
    """The log, kept small where processes may print to it."""
    if not is_file:
        with log.open("a", encoding="utf-8", errors="backslashreplace", buffering=1) as file:
            yield file
        return
    with (
        Pump(log) as pump,
        os.fdopen(
            os.dup(pump.fileno()), "w", encoding="utf-8", errors="backslashreplace", buffering=1
        ) as file,
    ):
        yield file


def _is_a_file(stream: TextIO, number: int) -> bool:
    """Whether a stream writes to the descriptor of that number."""
    try:
        return stream.fileno() == number
    except (OSError, ValueError, AttributeError):
        return False
