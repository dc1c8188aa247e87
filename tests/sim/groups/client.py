"""A real client's connection in a process of the simulation, with its randomness from the seed."""

from __future__ import annotations

import random

from headrace.client.connection import Connection
from headrace.client.net.inprocess import inprocess_session
from headrace.client.net.options import Options
from headrace.client.nuid import Nuid
from sim.groups.host import Host
from sim.groups.loop import Process
from sim.groups.network import Network

__all__ = ["connect"]

OPTIONS = Options(
    connect_timeout=2.0,
    reconnect_wait=0.05,
    reconnect_wait_max=1.0,
    retry_first_connect=True,
    ping_interval=1.5,
    max_pings_out=2,
    request_timeout=3.0,
    on_event=lambda _event: None,
)


async def connect(process: Process, network: Network, host: Host, rng: random.Random) -> Connection:
    """Called in ``process``. It is restored for as long as the process lives.

    What is on its way takes a while here, so the readers of every second one may run where it is received, as
    with sockets.
    """
    session = inprocess_session(network.dialer(process, host), OPTIONS)
    session.may_run_readers = sum(process.name.encode()) % 2 == 0
    session.random = random.Random(rng.getrandbits(64))
    session.nuid = Nuid(random.Random(rng.getrandbits(64)))
    await session.start()
    return Connection(session)
