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

    For some seconds after a restart it may confirm acks of a consumer that it then deletes and forgets
    (2.15.1): what was acknowledged is delivered once more.
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
