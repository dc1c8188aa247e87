"""A proxy that cuts a connection where chosen bytes pass for the nth time, and lets an accident happen."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

ESTABLISHED = "01"
CHUNK = 65536

Accident = Callable[[int], object]
"""What happens; it is handed the port of the process whose connection it is (see ``process_at``)."""


class Cut(NamedTuple):
    """Where: before the ``at``th time that these bytes pass, on whichever connection."""

    pattern: bytes
    at: int
    then: Accident


def process_at(port: int) -> int:
    """The process of this machine whose connection has this port. Linux."""
    inodes = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == ESTABLISHED and int(fields[1].rpartition(":")[2], 16) == port:
            inodes.add(f"socket:[{fields[9]}]")
    for each in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # it has just been closed
            if os.readlink(each) in inodes:
                return int(each.parts[2])
    raise AssertionError(f"no process has a connection of port {port}")


class CuttingProxy:
    """Forwards TCP to ``host:port``, but for what is cut: ``from_client`` and ``from_server``, each once.

    What stands before the bytes is forwarded, and they and what follows are not; then the accident happens,
    and the connection ends. Whoever connects afterwards is forwarded as before.
    """

    def __init__(
        self, host: str, port: int, *, from_client: Cut | None, from_server: Cut | None
    ) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._cuts = {True: from_client, False: from_server}
        self._passed = {True: 0, False: 0}
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._sockets: set[socket.socket] = set()
        self._has_ended = False
        self.done: list[bytes] = []
        self.wrong: list[BaseException] = []

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._begin(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # ``accept`` of the other thread ends
        with self._lock:
            self._has_ended = True
            for each in self._sockets:
                _end(each)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _begin(self, run: Callable[..., None], *given: object) -> None:
        thread = threading.Thread(target=run, args=given, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener has ended
            while True:
                client, _ = self._listener.accept()
                self._begin(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                server = socket.create_connection(self._target)
            except OSError:
                return  # the client sees its connection end, as with a server that goes
            with server, self._known(client, server):
                back = threading.Thread(target=self._pump, args=(server, client, False))
                back.start()
                self._pump(client, server, True)
                back.join()

    @contextlib.contextmanager
    def _known(self, *sockets: socket.socket) -> Iterator[None]:
        with self._lock:
            self._sockets.update(sockets)
            if self._has_ended:  # it was accepted at the last moment
                for each in sockets:
                    _end(each)
        yield
        with self._lock:
            self._sockets.difference_update(sockets)

    def _pump(self, here: socket.socket, there: socket.socket, is_client: bool) -> None:
        before = b""
        try:
            while data := here.recv(CHUNK):
                allowed, cut = self._allowed(before, data, is_client)
                there.sendall(data[:allowed])
                if cut is not None:
                    client = here if is_client else there
                    cut.then(client.getpeername()[1])
                    self.done.append(cut.pattern)
                    return
                before = (before + data)[-CHUNK:]
        except OSError:
            pass  # one of the two has gone
        except BaseException as error:
            self.wrong.append(error)
        finally:
            _end(here)
            _end(there)

    def _allowed(self, before: bytes, data: bytes, is_client: bool) -> tuple[int, Cut | None]:
        """How many of these bytes are forwarded, and the cut behind them."""
        with self._lock:
            cut = self._cuts[is_client]
            if cut is None:
                return len(data), None
            tail = before[-len(cut.pattern) + 1 :]  # without a whole one, which was counted
            for found in re.finditer(re.escape(cut.pattern), tail + data):
                self._passed[is_client] += 1
                if self._passed[is_client] == cut.at:
                    self._cuts[is_client] = None
                    return max(0, found.start() - len(tail)), cut
            return len(data), None


def _end(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
