"""Where members meet, and what can happen there: our broker, nats-server, or three nats-servers as one."""

from __future__ import annotations

import asyncio
import random
from typing import Protocol
from urllib.parse import urlsplit

import peers
from nats_cluster import Cable, Cluster

__all__ = ["Lines", "OneServer", "Place", "ThreeServers"]


class Place(Protocol):
    """Servers that members connect to."""

    replicas: int
    tolerated: frozenset[str]
    """Faults (of the checker) that are the servers' own."""

    @property
    def urls(self) -> str: ...

    async def restart(self, chance: random.Random) -> None:
        """Kill or stop a server, and start it again."""


class OneServer:
    """One server in a process of its own."""

    replicas = 1
    tolerated: frozenset[str] = frozenset()

    def __init__(self, server: peers.ServerProcess) -> None:
        self._server = server

    @property
    def urls(self) -> str:
        return self._server.url

    async def restart(self, chance: random.Random) -> None:
        end = chance.choice([self._server.kill, self._server.stop])
        await asyncio.to_thread(end)
        await asyncio.to_thread(self._server.start_again)


class ThreeServers:
    """A cluster: streams have three replicas, and one server at a time may be away.

    After a restart there it happens (2.15.1) that what was acknowledged, and confirmed, is delivered
    once more. It is the servers' own doing. nats-py shows it, with one consumer of a replicated work
    queue and nothing but double acks: each time the consumer was deleted after five of them and made
    anew, 50 of 351 confirmed messages came again with no server restarted, and 95 of 465 with eight
    restarts. Of the same consumer left alone none came again in eight restarts (of 1,417), nor of a
    durable one, on a work queue or not. So the ack is confirmed before the stream removes the message,
    and a consumer deleted in between takes the ack with it. A member waits for the removal before it
    deletes its consumer (``member/consumer/consuming.py``): nats-py, doing so, had 0 of 845 again without
    restarts, and 2 of 515 with five. What is left is tolerated here: 1 of 1,360 in 60 random events,
    which the servers gave again to the same pin, 0.24 s after they had confirmed its ack.
    """

    replicas = 3
    tolerated = frozenset({"acked_before"})

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def urls(self) -> str:
        return self._cluster.urls

    async def restart(self, chance: random.Random) -> None:
        node = chance.choice(self._cluster.nodes)
        await asyncio.to_thread(chance.choice([node.kill, node.server.stop]))
        await asyncio.to_thread(node.start_again)
        await asyncio.to_thread(self._cluster.wait_until_ready)


class Lines:
    """The lines of one worker to the servers; they can be cut, and mended."""

    def __init__(self, urls: str) -> None:
        ports = [urlsplit(url).port for url in urls.split(",")]
        self._cables = [Cable(port) for port in ports if port is not None]
        self.urls = ",".join(f"nats://127.0.0.1:{cable.port}" for cable in self._cables)

    def cut(self) -> None:
        for cable in self._cables:
            cable.cut()

    def mend(self) -> None:
        for cable in self._cables:
            cable.mend()

    def close(self) -> None:
        for cable in self._cables:
            cable.close()
