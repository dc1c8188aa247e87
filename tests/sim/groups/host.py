"""The broker as a process: the real hub, store and pump on a virtual loop. It can be killed and restarted."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from faultfs import FaultFS
from headrace.broker.core.hub import Hub
from headrace.broker.core.jetstream.config.options import JetStreamOptions
from headrace.broker.core.options import HubOptions
from headrace.broker.server.connections.inprocess import accept
from headrace.broker.server.connections.pump import Pump
from headrace.broker.store import MemoryStorage
from headrace.wire.inprocess import ServerEnd
from sim.groups.cast import Cast
from sim.groups.loop import SECOND, Process, Universe
from sim.groups.network import Network, Wire
from sim.whole.plant import HandDrivenStorage

__all__ = ["Host"]

SEGMENT_BYTES = 65536
PING_S = 2.0


class DiskStorage(HandDrivenStorage):
    """Syncs a while after it was told to, on the host's loop."""

    on_flush: Callable[[], None]

    def flush(self, done: Callable[[Exception | None], None]) -> None:
        super().flush(done)
        self.on_flush()


class Host:
    """One broker, restarted as often as the seed wants.

    Attributes:
        is_up: whether it takes connections.
        lost_ns: when it was killed last.
    """

    def __init__(
        self, universe: Universe, network: Network, rng: random.Random, cast: Cast
    ) -> None:
        self._universe = universe
        self._network = network
        self._rng = rng
        self._fs = FaultFS() if cast.disk else None
        self._options = JetStreamOptions(server_name="sim", pin_handover=cast.pin_handover)
        self._storage: Any = None
        self._pump: Pump | None = None
        self._commit_is_due = False
        self.boots = 0
        self.is_up = False
        self.lost_ns = -1
        self.process = Process(universe, "broker-0")
        self.hub: Hub

    def boot(self) -> None:
        """Open what is there and serve it."""
        self.boots += 1
        universe = self._universe
        self.process = Process(universe, f"broker-{self.boots}")
        self._commit_is_due = False
        notify = self._notify
        if self._fs is None:
            self._storage = self._storage or MemoryStorage()
        else:
            self._storage = DiskStorage(
                "/store",
                fs=self._fs,
                clock=universe,
                segment_bytes=SEGMENT_BYTES,
                salts=random.Random(self._rng.getrandbits(32)),
                notify=notify,
            )
            self._storage.on_flush = self._flushing
        options = HubOptions(
            ping_interval_ns=round(PING_S * SECOND), ping_first_ns=round(PING_S * SECOND)
        )
        self.hub = Hub(universe, random.Random(self._rng.getrandbits(32)), options)
        self._pump = Pump(self.hub, self.process)
        self.hub.start_jetstream(self._storage, self._options)
        self.is_up = True
        self._pump.wake()
        universe.note("broker up", self.boots)

    def accept(self, wire: Wire) -> ServerEnd:
        """A client has knocked; called in the broker's process."""
        return accept(self._pump, wire)

    def kill(self, power: bool) -> None:
        """It is gone: the process with what it had not written, or the machine with what was not synced."""
        assert self._pump is not None
        self._universe.note("broker killed", power)
        self.is_up = False
        self.lost_ns = self._universe.monotonic_ns()
        self._pump.stop()
        self.process.kill()
        if self._fs is not None:
            self._fs = self._fs.power_cut(self._rng) if power else self._fs.kill()
        for wire in list(self._network.wires.values()):
            wire.reset(tells_server=False)

    # The commit thread

    def _flushing(self) -> None:
        if not self._commit_is_due:
            self._commit_is_due = True
            slow = 50 if self._rng.random() < 0.01 else 1
            self.process.call_later(0.0004 * slow * (0.5 + self._rng.random()), self._commit)

    def _commit(self) -> None:
        self._commit_is_due = False
        while self._storage.hand.step():
            pass

    def _notify(self) -> None:
        assert self._pump is not None
        self.process.call_soon(self._pump.run, self._storage.complete)
