"""A measured piece of work in a process of its own: no client runs on the heap another one has left."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection

import cpu

__all__ = ["apart"]


def apart(work: Callable[[], float]) -> tuple[float, float]:
    """What ``work`` returns, and the seconds of processor time it took (Linux, macOS)."""
    context = multiprocessing.get_context("fork")
    mine, other = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(work, other))
    process.start()
    other.close()
    try:
        value, seconds = mine.recv()
    except EOFError:
        raise RuntimeError("the measured work failed; what it said is above") from None
    finally:
        process.join()
        mine.close()
    return float(value), float(seconds)


def _run(work: Callable[[], float], answer: Connection) -> None:
    before = cpu.of_ourselves()
    value = work()
    answer.send((value, cpu.of_ourselves() - before))
    answer.close()
