"""Whoever answers the requests that are measured: a bare socket in a process of its own.

``python bench/echo.py HOST PORT SUBJECT`` says "ready" and answers until it is ended.
"""

from __future__ import annotations

import re
import sys

from rawsocket import RawConnection

_REQUEST = re.compile(rb"MSG \S+ \S+ (\S+) \d+\r\n")


def main() -> None:
    host, port, subject = sys.argv[1:]
    with RawConnection(host, int(port)) as connection:
        wire = connection.socket
        wire.settimeout(None)
        wire.sendall(b"SUB " + subject.encode() + b" 9\r\nPING\r\n")
        ready = False
        # Requests come one at a time and are small: a line is never cut in two.
        while data := wire.recv(65_536):
            for reply in _REQUEST.findall(data):
                wire.sendall(b"PUB %b 2\r\nok\r\n" % reply)
            if b"PING\r\n" in data:
                wire.sendall(b"PONG\r\n")
            if not ready and b"PONG\r\n" in data:
                ready = True
                print("ready", flush=True)


if __name__ == "__main__":
    main()
