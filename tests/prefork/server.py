"""A process that has imported what a reader of a stream imports, and forks one for each that is asked for.

``python server.py PLACE`` listens at that socket and ends when its standard input does.
"""

from __future__ import annotations

import array
import fcntl
import gc
import importlib
import os
import select
import signal
import socket
import sys
import traceback
from typing import Final, NoReturn

RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
IMPORTED: Final = (
    RUNNER,
    "headrace.spark.source",
    "headrace.spark.links.pool",
    "pyarrow.compute",
    "pandas",  # Arrow imports it, where it is, to make its first array
)


def serve(place: str) -> None:
    runner, *_ = [importlib.import_module(name) for name in IMPORTED]
    gc.collect()
    gc.freeze()  # a fork that searched it for garbage would copy it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they ended
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(place)
        listening.listen(64)
        print("ready", flush=True)
        while True:
            ready, _, _ = select.select([sys.stdin, listening], [], [])
            if sys.stdin in ready:
                return
            link, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                be(link, runner)
            link.close()


def be(link: socket.socket, runner: object) -> NoReturn:
    """Be the process at the other end of the link: with its streams, folder and environment."""
    status = 1
    try:
        take_over(link)
        with runner.get_sock_file_to_executor(timeout=None) as executor:  # type: ignore[attr-defined]
            runner.main(executor, executor)  # type: ignore[attr-defined]
        status = 0
    except SystemExit as end:
        status = end.code & 0xFF if isinstance(end.code, int) else 1
    except BaseException:  # as an interpreter does: it is told, and is the status
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    link.send(bytes([status]))
    os._exit(status)


def take_over(link: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    streams = array.array("i")
    head, [(_, _, sent)], _, _ = link.recvmsg(4, socket.CMSG_SPACE(3 * streams.itemsize))
    streams.frombytes(sent)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    message = bytearray()
    length = int.from_bytes(head, "big")
    while len(message) < length:
        part = link.recv(length - len(message))
        if not part:
            raise EOFError("the process that is to be forked has ended")
        message += part
    folder, *variables = bytes(message).split(b"\0")
    os.chdir(folder)
    os.environb.clear()
    os.environb.update(dict(each.split(b"=", 1) for each in variables))
    # Who ends it ends the other process; this one then gets SIGIO, and ends of that.
    fcntl.fcntl(link, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(link, fcntl.F_GETFL)
    fcntl.fcntl(link, fcntl.F_SETFL, flags | os.O_ASYNC)


if __name__ == "__main__":
    serve(sys.argv[1])
