"""The broker's core in this process, and sockets that lead to it without a network."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.core.net.session import Session
from headrace.broker.core.peer import Peer
from headrace.client.net.handshake import parse_info
from headrace.errors import ConnectFailedError
from headrace.spark import source
from headrace.spark.batches import driver, query
from headrace.spark.batches import driver as idle
from headrace.spark.links import link, outages
from headrace.spark.links.link import Link
from headrace.spark.links.pool import LinkPool
from headrace.spark.options import Connection
from headrace.spark.reading import reader
from headrace.spark.sink import task as links
from headrace.spark.sink import window, writer
from headrace.spark.tasks import read_slice
from headrace.wire import Parser
from sim.spark.procs import Killed, here
from sim.whole.plant import SECOND, Plant

__all__ = ["Broker", "VirtualSocket"]

_pull = reader._RangeReader._pull
CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'


class Broker:
    """One broker, killed and restarted as often as the seed wants, and the only clock.

    Attributes:
        on_step: called before every use of a socket, with the socket and whether it sends: here a seed kills,
            cuts and freezes.
        pulls: how often a task read by a consumer.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.plant = Plant(rng)
        self.plant.boot()
        self.on_step: Callable[[VirtualSocket, bool], None] = lambda socket, sends: None
        self.sockets: list[VirtualSocket] = []
        self.back_at = 0.0
        self.plans = 0
        self.few = rng.choice((0, reader.FEW))  # so small batches are read by a consumer, too
        self.pulls = 0

    @property
    def now(self) -> float:
        return self.plant.clock.monotonic_ns() / SECOND

    def connect(self, connection: Connection) -> Link:
        """A link as ``Link.open`` makes them."""
        self._come_back()
        if not self.plant.is_up:
            raise ConnectFailedError("cannot reach a NATS server; the plant is off")
        socket = VirtualSocket(self)
        parser = Parser.for_client()
        try:
            socket.sendall(CONNECT)
            hello = socket.recv(1 << 16)
        except OSError as error:
            raise ConnectFailedError(f"cannot reach a NATS server; {error}") from error
        if not hello:
            raise ConnectFailedError("cannot reach a NATS server; it closed the connection")
        info = parse_info(parser.feed(hello)[0][1])
        one: Any = socket
        return Link(connection, one, parser, info)

    def kill(self, seconds: float, *, power: bool) -> None:
        """It is away for so long."""
        self._come_back()
        if not self.plant.is_up:
            return
        if power:
            self.plant.lose_power()
        else:
            self.plant.die()
        self.back_at = self.now + seconds
        for socket in self.sockets:
            socket.cut()
        self.sockets.clear()

    def _come_back(self) -> None:
        if not self.plant.is_up and self.now >= self.back_at:
            self.plant.boot()

    def settle(self) -> None:
        """Let the broker work until it has nothing to do."""
        self._come_back()
        if self.plant.is_up:
            self.plant.settle()

    def advance(self, seconds: float) -> None:
        """Let time pass, for the broker too."""
        end = self.now + seconds
        if not self.plant.is_up and self.back_at <= end:
            self.plant.clock.advance(max(0.0, self.back_at - self.now))
            self._come_back()
        left = max(0.0, end - self.now)
        if self.plant.is_up:
            self.plant.advance(left)
            self.plant.settle()
        else:
            self.plant.clock.advance(left)

    def sleep(self, seconds: float) -> None:
        """What ``time.sleep`` is here."""
        proc = here()
        seconds = max(seconds, 1e-6)  # what rounds to nothing would never end
        if proc is None:
            self.advance(seconds)
        else:
            proc.pause(self.now + seconds)

    def _pulled(self, *given: Any) -> Any:
        self.pulls += 1
        return _pull(*given)

    def _time_ns(self) -> int:
        self.plans += 1
        return self.plans

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let the code under test connect here and live by this clock."""
        with pytest.MonkeyPatch.context() as patch:
            clock: Any = SimpleNamespace(
                monotonic=lambda: self.now, sleep=self.sleep, time_ns=self._time_ns
            )
            for module in (link, reader, driver, idle, writer, window):
                patch.setattr(module, "time", clock)
            patch.setattr(
                outages.ServerPatience.__init__,
                "__defaults__",
                (lambda: self.now, self.sleep, lambda: 0.0),
            )
            pool = LinkPool(now=lambda: self.now, process=_worker)
            patch.setattr(read_slice, "POOL", pool)
            patch.setattr(links, "POOL", pool)
            patch.setattr(Link, "open", self.connect)
            patch.setattr(reader, "FEW", self.few)
            patch.setattr(reader._RangeReader, "_pull", lambda *given: self._pulled(*given))
            patch.setattr(source, "exit_on_sigterm", lambda one: None)
            given = (lambda: self.now, self.sleep)
            patch.setattr(query.Query.__init__, "__defaults__", given)
            yield
            for each in pool._idle:
                each.link.close()


def _worker() -> int:
    proc = here()
    return -proc.worker if proc is not None else 0


class VirtualSocket:
    """What a link calls instead of a socket; the broker's answers are ``heard`` by it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._in = bytearray()
        self._timeout = 0.0
        self._is_letting_go = False
        self.is_cut = False
        self.is_closed = False
        self._session = broker.plant.hub.connect(Peer(), Session)
        one: Any = self
        broker.plant.links[self._session.client_id] = one
        broker.sockets.append(self)
        broker.plant.tick()

    def heard(self, parts: list[Any]) -> None:
        if not self.is_cut:
            for part in parts:
                self._in += part

    def cut(self, *, tells_server: bool = False) -> None:
        """Nothing goes through any more; what has arrived can be read."""
        self.is_cut = True
        if tells_server and not self._session.closed:
            self._session.disconnected()

    # What a link calls

    def settimeout(self, seconds: float) -> None:
        self._timeout = seconds

    def sendall(self, data: bytes) -> None:
        # A reader that ends lets go of its consumer, maybe in the finalizer of a generator, where nothing
        # that happens could be told.
        if data != b"PONG\r\n":
            self._is_letting_go = data.startswith(b"UNSUB") or b".CONSUMER.DELETE." in data[:200]
        try:
            self._step(True)
        except Killed:
            # What the kernel had taken by then arrives.
            self._deliver(data[: self._broker.rng.randrange(len(data) + 1)])
            self.cut(tells_server=True)
            raise
        if self.is_cut or self.is_closed or self._session.closed:
            raise ConnectionResetError("the connection was reset")
        self._deliver(data)

    def _deliver(self, data: bytes) -> None:
        if not self.is_cut and not self._session.closed and data:
            self._session.receive(data)
            self._broker.plant.tick()

    def recv(self, most: int) -> bytes:
        if self.is_closed:
            raise OSError("the socket is closed")
        if not self._in and self._timeout > 0:
            self._wait()
        if self._in:
            data = bytes(self._in[:most])
            del self._in[:most]
            return data
        if self.is_cut or self._session.closed:
            return b""
        if self._timeout == 0:
            raise BlockingIOError
        raise TimeoutError

    def _wait(self) -> None:
        broker = self._broker
        self._step(False)
        if self._in or self.is_cut:
            return
        broker.settle()
        if self._in or self.is_cut:
            return
        proc = here()
        if proc is not None:
            proc.pause(broker.now + self._timeout, lambda: bool(self._in) or self.is_cut)
            return
        end = broker.now + self._timeout
        while not self._in and not self.is_cut and broker.now < end:
            broker.advance(
                max(1e-6, min(0.05, end - broker.now))
            )  # less than that is no time at all

    def _step(self, sends: bool) -> None:
        proc = here()
        if proc is not None and proc.is_dead:
            raise ConnectionResetError("the process is dead")
        if self._is_letting_go:
            return
        self._broker.on_step(self, sends)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            if not self.is_cut:
                self.cut(tells_server=True)
