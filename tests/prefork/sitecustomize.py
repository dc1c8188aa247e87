"""Python reads this as it starts, in the tests' session of Spark: ``server`` forks the readers of streams.

Spark starts a new Python for each stream that a query reads, and that imports PySpark, Arrow and the source
again: half of what a short query takes. This one hands its surroundings to a process that has imported them,
which forks, and ends with the fork. Without that process it goes on as any other Python.
"""

from __future__ import annotations

import os
import sys

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
PLACE = "HEADRACE_TESTS_PREFORK"


def hand_over(place: str) -> None:
    """Let a fork be this process, and end with its status; come back if nobody is there.

    What is sent: four bytes with the length of the rest, the folder, the environment, all parted by zeros.
    """
    import _socket  # what ``socket`` imports beside it takes longer than all of this

    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        link.connect(place)
    except OSError:
        return
    variables = [b"%b=%b" % each for each in os.environb.items()]
    message = b"\0".join([os.getcwdb(), *variables])
    streams = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
    head = len(message).to_bytes(4, "big")
    link.sendmsg([head], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
    link.sendall(message)
    status = link.recv(1)
    os._exit(status[0] if status else 1)


if __name__ == "sitecustomize" and sys.orig_argv[1:] == ["-m", RUNNER] and PLACE in os.environ:
    hand_over(os.environ[PLACE])
