"""A process that has imported what ``headrace serve`` imports, and forks one for each that is asked for.

Each line of standard input asks for one, in JSON: its arguments, its environment, and its log. The answer is
its number. In between is another process that ends at once, so that the server is a child of who asked. This
one ends with its standard input.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

IMPORTED: Final = (
    "headrace.cli.serve.command",
    # what a server imports as it starts
    "concurrent.futures.thread",
    "encodings.idna",
    "headrace.broker.core.accounts.accounts",
    "headrace.broker.core.monitor.system_services",
    "headrace.broker.core.net.session",
    "uvloop",
)


def asked_for() -> dict[str, Any] | None:
    """Fork what is asked for, until nothing is any more: None. In a fork: what it is to be."""
    while line := sys.stdin.buffer.readline():
        reading, writing = os.pipe()
        between = os.fork()
        if between == 0:
            if number := os.fork():
                os.write(writing, b"%d\n" % number)
                os._exit(0)
            os.close(reading)
            os.close(writing)
            asked: dict[str, Any] = json.loads(line)
            return asked
        os.waitpid(between, 0)
        sys.stdout.buffer.write(os.read(reading, 100))
        sys.stdout.flush()
        os.close(reading)
        os.close(writing)
    return None


def become(asked: dict[str, Any]) -> None:
    """Have the streams, the folder, the environment and the arguments of a process of its own."""
    log = os.open(asked["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, stream in enumerate((nothing, log, log)):
        os.dup2(stream, number)
    os.close(log)
    os.close(nothing)
    os.chdir(Path(asked["log"]).parent)
    sys.path[0] = os.getcwd()
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["headrace", *asked["arguments"]]


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for who asks, and for the servers
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a fork that searched it for garbage would copy it
    wanted = asked_for()
    if wanted is not None:
        become(wanted)
        runpy.run_module("headrace", run_name="__main__", alter_sys=True)
