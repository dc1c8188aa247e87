"""Connections without sockets: what either end says arrives after a while, in order, or never.

What is on its way when a connection is cut is lost, and either end may or may not be told. A process that
is frozen is sent to all the same: its kernel takes it. A process that was killed hangs up, unless its whole
machine is gone.
"""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.wire.frames import Frame
from headrace.wire.inprocess import Acceptor, Chunk, ClientEnd, ServerEnd
from sim.groups.loop import SECOND, Process, Universe

if TYPE_CHECKING:
    from sim.groups.host import Host

__all__ = ["Far", "Network", "Wire"]

_SEEN_TO = re.compile(rb"PUB \$JS\.API\.CONSUMER\.(INFO|DELETE)\.(\S+)")
_ASKED = re.compile(rb"PUB \$JS\.API\.((?!CONSUMER\.MSG)\S+)")


@dataclass(frozen=True)
class Far:
    """What a link takes in addition, in seconds: both ways together, by chance, and which of them is slow."""

    round_trip: float = 0.0
    jitter: float = 0.0
    to_server_share: float = 0.5

    def draw(self, to: int, rng: random.Random) -> float:
        if not self.round_trip and not self.jitter:
            return 0.0
        share = self.to_server_share if to == 1 else 1 - self.to_server_share
        return self.round_trip * share + self.jitter * rng.random()


class Network:
    """All connections, and how long they take. ``far``: of processes whose links are longer."""

    def __init__(self, universe: Universe, rng: random.Random, delay: float) -> None:
        self.universe = universe
        self.rng = rng
        self.delay = delay
        """Seconds, on average; now and then it is much more."""
        self.far: Callable[[str], Far] = lambda name: Far()
        self.kernel = Process(universe, "kernel")
        self.wires: dict[int, Wire] = {}
        self.refusing: set[str] = set()
        """Processes that cannot reach anybody."""
        self.on_look: Callable[[Process, str], None] = lambda process, name: None
        self.on_deletion: Callable[[Process, str], None] = lambda process, name: None
        """Called when the broker is about to be told to delete a consumer."""
        self.lease_ns = 1 << 62
        self.on_slowness: Callable[[Process], None] = lambda process: None
        """Called when what a process says or hears on a wire has been held up, within a lease, for more than
        half of it: its renewal, four ways one after the other, may take longer than the lease has left."""
        self._numbers = 0

    def dialer(self, process: Process, host: Host) -> Acceptor:
        """What a client in ``process`` connects with."""

        def dial(client: ClientEnd) -> ServerEnd:
            self._numbers += 1
            return Wire(self, self._numbers, process, host, client)

        return dial

    def wires_of(self, process: Process) -> list[Wire]:
        return [wire for wire in self.wires.values() if wire.process is process]

    def draw_ns(self) -> int:
        """How long something takes that is sent now."""
        draw = self.rng.random()
        seconds = self.delay * (0.5 + draw)
        if draw > 0.98:
            seconds *= 20
        return round(seconds * SECOND)


class Wire:
    """One connection; the client's end of it is what the client calls."""

    def __init__(
        self, network: Network, number: int, process: Process, host: Host, client: ClientEnd
    ) -> None:
        self.network = network
        self.number = number
        self.process = process
        self._host = host
        self._client = client
        self._server: ServerEnd | None = None
        self._far = network.far(process.name)
        self._is_silent = False
        self._told = [False, False]  # the client's end, and the server's, know that it is over
        self._arrival_ns = [0, 0]  # of what was last sent to either
        self._held_up: deque[tuple[int, int]] = deque()  # when, and for how long
        network.wires[number] = self
        refused = process.name in network.refusing
        self._later(1, self._knock, refused)

    # What the client calls

    def receive(self, chunks: list[Chunk]) -> None:
        if not self._told[0]:
            self._later(1, self._to_server, chunks)

    def close(self) -> None:
        """The client leaves."""
        if not self._told[0]:
            self._tell_client(None)
            self._later(1, self._tell_server)

    # What the broker calls

    def frames_received(self, frames: list[Frame], size: int) -> None:
        self._later(0, self._to_client, frames, size)

    def pause_writing(self) -> None:
        """It never comes to that: nobody says so much at once here."""

    def resume_writing(self) -> None:
        """See ``pause_writing``."""

    def connection_lost(self, reason: Exception | None) -> None:
        self._told[1] = True
        self._later(0, self._tell_client, reason)

    # What may happen to it

    def reset(self, *, tells_client: bool = True, tells_server: bool = True) -> None:
        """Cut it. Whoever is not told finds out by itself."""
        self.silence()
        kernel, network = self.network.kernel, self.network
        if tells_client:
            error = ConnectionResetError("the connection was reset")
            kernel._at(network.universe._now_ns + network.draw_ns(), self._tell_client, (error,))
        if tells_server:
            kernel._at(network.universe._now_ns + network.draw_ns(), self._tell_server, ())

    def silence(self) -> None:
        """From here on, and with what is on its way, nothing arrives."""
        self._is_silent = True

    def stall(self, seconds: float) -> None:
        """What is sent from now on arrives after that time at the earliest."""
        until_ns = self.network.universe._now_ns + round(seconds * SECOND)
        self._arrival_ns = [max(each, until_ns) for each in self._arrival_ns]

    # Private

    def _later(self, to: int, call: Callable[..., None], *args: Any) -> None:
        network = self.network
        drawn_ns = network.draw_ns()
        far_ns = round(self._far.draw(to, network.rng) * SECOND)
        when_ns = network.universe._now_ns + drawn_ns + far_ns
        if drawn_ns > 2 * network.delay * SECOND:
            self._is_held_up(drawn_ns)
        if when_ns < self._arrival_ns[to]:
            when_ns = self._arrival_ns[to]
        self._arrival_ns[to] = when_ns
        network.kernel._at(when_ns, self._arrives, (call, args))

    def _is_held_up(self, for_ns: int) -> None:
        network, now_ns = self.network, self.network.universe._now_ns
        held_up = self._held_up
        held_up.append((now_ns, for_ns))
        while held_up[0][0] < now_ns - network.lease_ns:
            held_up.popleft()
        if sum(each_ns for _, each_ns in held_up) > network.lease_ns // 2:
            network.on_slowness(self.process)

    def _arrives(self, call: Callable[..., None], args: Any) -> None:
        if not self._is_silent:
            call(*args)

    def _knock(self, refused: bool) -> None:
        host = self._host
        if host.is_up and not refused:
            host.process.call_soon(self._accept)
        else:
            self._told[1] = True
            self._later(0, self._tell_client, ConnectionRefusedError("connection refused"))

    def _accept(self) -> None:
        self._server = self._host.accept(self)

    def _to_server(self, chunks: list[Chunk]) -> None:
        if self._server is not None and not self._told[1]:
            size = sum(map(len, chunks))
            self.network.universe.note(self.number, ">", size)
            for chunk in chunks:
                if isinstance(chunk, bytes) and b"API.CONSUMER." in chunk:
                    self._tell_of_consumers(chunk)
            if self.network.universe.story is not None:
                self._tell(chunks, self.network.universe.story)
            self._host.process.call_soon(self._server.receive, chunks)

    def _tell_of_consumers(self, chunk: bytes) -> None:
        for call, name in _SEEN_TO.findall(chunk):
            network = self.network
            told = network.on_deletion if call == b"DELETE" else network.on_look
            told(self.process, name.decode())

    def _tell(self, chunks: list[Chunk], story: list[str]) -> None:
        """What a client asks of JetStream, for the story."""
        for chunk in chunks:
            if isinstance(chunk, bytes):
                now = self.network.universe.now - 1000
                story += [
                    f"{now:9.4f}   {self.process.name}: {found.decode()}"
                    for found in _ASKED.findall(chunk)
                ]

    def _to_client(self, frames: list[Frame], size: int) -> None:
        if not self._told[0]:
            self.network.universe.note(self.number, "<", size)
            self.process.call_soon(self._hear, frames, size)

    def _hear(self, frames: list[Frame], size: int) -> None:
        if not self._told[0]:
            self._client.frames_received(frames, size)

    def _tell_client(self, reason: Exception | None) -> None:
        if not self._told[0]:
            self._told[0] = True
            self._is_over()
            self.network.universe.note(self.number, "lost")
            self.process.call_soon(self._client.connection_lost, reason)

    def _tell_server(self) -> None:
        if not self._told[1]:
            self._told[1] = True
            self._is_over()
            if self._server is not None:
                self._host.process.call_soon(self._server.close)

    def _is_over(self) -> None:
        if all(self._told):
            self.network.wires.pop(self.number, None)
