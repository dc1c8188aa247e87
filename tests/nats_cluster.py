"""Three nats-servers that are one: what the tests of the client kill, freeze, cut off and restart.

Routes between servers go through cables, which a test may cut. Streams with three replicas are led by one of
the servers at a time; who that is, is asked of the servers' monitoring, as a user would.
"""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from itertools import permutations
from pathlib import Path
from typing import Any, Final

import peers
from headrace import sync
from headrace.errors import JetStreamApiError
from listening import Listening
from waiting import until_here

__all__ = ["Cable", "Cluster", "Clusters", "Node", "SickServersError"]

NODES: Final = 3
READY_S: Final = 40.0
STUCK_S: Final = 12.0
PLACED: Final = "PLACED"
POLL_S: Final = 0.05  # a leader of another process is elected without an event for us


class SickServersError(AssertionError):
    """The servers did not get well again, not even after a restart: what is done on them cannot be judged."""


class Cable:
    """Forwards TCP from a port of its own to another one, until it is cut: bytes then go nowhere, nothing is
    closed, and what connects is not answered. Mended, the old connections are dropped."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"cable to {port}", daemon=True)
        self._thread.start()
        self._ready.wait(10)

    def cut(self) -> None:
        self._cut = True

    def mend(self) -> None:
        self._loop.call_soon_threadsafe(self._drop)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        async with Listening(self._forward) as listening:
            self.port: int = listening.port
            self._ready.set()
            await self._over.wait()

    def _drop(self) -> None:
        self._cut = False
        for writer in self._writers:
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers.add(far_writer)
            try:
                await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
            finally:
                far_writer.transport.abort()
                self._writers.discard(far_writer)
        finally:
            self._writers.discard(writer)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if not self._cut:
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


class Node:
    """One of the servers."""

    def __init__(self, name: str, server: peers.ServerProcess, monitoring_port: int) -> None:
        self.name = name
        self.server = server
        self.monitoring_url = f"http://127.0.0.1:{monitoring_port}"

    def ask(self, path: str) -> dict[str, Any]:
        """What its monitoring says; nothing while it does not answer."""
        try:
            with urllib.request.urlopen(f"{self.monitoring_url}{path}", timeout=2) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            with error:
                return {"status": f"{error.code}", "error": error.read(1000).decode()}
        except OSError:
            return {}

    @property
    def healthy(self) -> bool:
        """Whether it has caught up with all streams it holds."""
        return self.ask("/healthz").get("status") == "ok"

    def leads(self, stream: str) -> bool:
        """Whether it believes that it leads a stream."""
        return self.leader_of(stream) == self.name

    def leader_of(self, stream: str) -> str | None:
        """The name of the server which it believes to lead a stream, if it knows of one."""
        accounts = self.ask("/jsz?accounts=true&streams=true").get("account_details") or []
        for account in accounts:
            for detail in account.get("stream_detail") or []:
                if detail["name"] == stream:
                    return detail.get("cluster", {}).get("leader") or None
        return None

    def health(self) -> str:
        """What its monitoring says is wrong with it."""
        return str(self.ask("/healthz").get("error", "no answer"))

    def kill(self) -> None:
        self.server.kill()

    def freeze(self) -> None:
        self.server.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.server.process.send_signal(signal.SIGCONT)

    def start_again(self) -> None:
        self.server.start_again()


class Cluster:
    """Three servers, started and ready; a context manager.

    ``config`` is what stands in the configuration of each, too.
    """

    def __init__(self, directory: Path, config: str = "") -> None:
        self._config = config
        self.nodes: list[Node] = []
        routes = [peers.free_port() for _ in range(NODES)]
        self._cables = {(a, b): Cable(routes[b]) for a, b in permutations(range(NODES), 2)}
        try:
            for number in range(NODES):
                self.nodes.append(self._start(directory, number, routes))
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def _start(self, directory: Path, number: int, routes: list[int]) -> Node:
        name, monitoring = f"n{number}", peers.free_port()
        # It names itself, too: from the number of routes it learns how many there will be.
        to = [
            routes[number] if each == number else self._cables[number, each].port
            for each in range(NODES)
        ]
        # What they tell each other of their addresses leads nowhere, or they would go around the cables.
        nowhere = f"127.0.0.1:{peers.free_port()}"
        all_of_us = ", ".join(f'"nats://127.0.0.1:{port}"' for port in to)
        config = f"""
            server_name: {name}
            http: "127.0.0.1:{monitoring}"
            ping_interval: "1s"
            ping_max: 2
            cluster {{
                name: three, host: "127.0.0.1", port: {routes[number]}, pool_size: 1
                advertise: "{nowhere}"
                routes: [{all_of_us}]
            }}
            {self._config}
        """
        server = peers.start_nats_server(directory / name, config=config)
        return Node(name, server, monitoring)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        for node in self.nodes:
            node.thaw()
            node.server.process.kill()
            node.server.process.wait(peers.STOP_SECONDS)
        for cable in self._cables.values():
            cable.close()

    @property
    def urls(self) -> str:
        """Of all servers, for a client."""
        return ",".join(node.server.url for node in self.nodes)

    # Who leads

    def leader_of(self, stream: str) -> Node | None:
        """The server that leads a stream, if there is one now and it knows."""
        return next((node for node in self.nodes if node.leads(stream)), None)

    def wait_for_leader(self, stream: str) -> Node:
        leader = self._wait(lambda: self.leader_of(stream), f"nobody leads {stream!r}")
        assert isinstance(leader, Node)
        return leader

    def wait_until_agreed(self, stream: str) -> None:
        """Until all of them name the same leader of a stream: one that was frozen or cut off takes itself for
        it, and for healthy, until it hears of another one."""

        def agreed() -> bool:
            leaders = {node.leader_of(stream) for node in self.nodes}
            return len(leaders) == 1 and leaders != {None}

        self._wait(agreed, f"the servers do not agree who leads {stream!r}")

    def others(self, node: Node) -> list[Node]:
        return [each for each in self.nodes if each is not node]

    def wait_until_ready(self) -> None:
        """Until each server runs, sees the others, and has caught up. One that was frozen sometimes never
        catches up with a stream by itself (2.15.1): it is started again, as an operator would do."""
        stuck = time.monotonic() + STUCK_S
        started_again = False

        def ready() -> bool:
            nonlocal started_again
            metas = [node.ask("/jsz").get("meta_cluster", {}) for node in self.nodes]
            if len({meta.get("leader") for meta in metas}) > 1:
                return (
                    False  # one that was frozen leads for itself alone, until it hears of another
                )
            for meta in metas:
                if not meta.get("leader") or meta.get("cluster_size") != NODES:
                    return False
                if any(replica.get("offline") for replica in meta.get("replicas") or []):
                    return False  # a leader places no stream on a server it takes for gone
            behind = [node for node in self.nodes if not node.healthy]
            if behind and time.monotonic() > stuck and not started_again:
                started_again = True
                for node in behind:
                    print(f"{node.name} does not catch up: {node.health()}; it is started again")
                    node.server.stop()
                    node.start_again()
            return not behind

        try:
            self._wait(ready, "the cluster is not ready")
        except AssertionError as error:
            health = ", ".join(f"{node.name}: {node.health()}" for node in self.nodes)
            raise SickServersError(f"the cluster is not ready: {health}") from error

    def wait_until_placing(self) -> None:
        """Until a stream can be made on all of them: who thaws may be taken for gone a little longer than the
        monitoring says. For servers without accounts."""

        def placed() -> bool:
            try:
                js.create_stream(name=PLACED, num_replicas=NODES)
            except JetStreamApiError as error:
                if error.err_code != 10005:  # no suitable peers
                    raise
                return False
            js.delete_stream(PLACED)
            return True

        with sync.connect(self.urls) as connection:
            js = connection.jetstream()
            try:
                self._wait(placed, "no stream of three replicas can be made")
            except AssertionError as error:
                raise SickServersError(str(error)) from error

    def _wait(self, found: Any, otherwise: str) -> Any:
        try:
            return until_here(found, otherwise, within=READY_S, every=POLL_S)
        except AssertionError as error:
            for node in self.nodes:
                error.add_note(node.server.log_text()[-3000:])
            raise

    # Faults

    def cut_off(self, node: Node) -> None:
        """Cut the cables between one server and the others; clients reach it as before."""
        for cable in self._cables_of(node):
            cable.cut()

    def mend(self) -> None:
        for cable in self._cables.values():
            cable.mend()

    def _cables_of(self, node: Node) -> Iterable[Cable]:
        number = self.nodes.index(node)
        return (cable for pair, cable in self._cables.items() if number in pair)


class Clusters:
    """One cluster after another, each used until its servers are sick for good; a context manager.

    After about one of fifty faults a server of 2.15.1 stays "not current" with a stream, or with the others,
    whatever one does.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made = 0
        self._cluster: Cluster | None = None

    def __enter__(self) -> Clusters:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_up()

    def whole(self) -> Cluster:
        """The cluster, ready; another one if its servers do not get ready."""
        if self._cluster is not None:
            try:
                self._cluster.wait_until_ready()
                self._cluster.wait_until_placing()
            except SickServersError as error:
                print(f"\n{error}; others are started")
                self.give_up()
        if self._cluster is None:
            self._made += 1
            self._cluster = Cluster(self._directory / f"{self._made}")
        return self._cluster

    def give_up(self) -> None:
        """Stop the cluster; the next use gets another one."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.stop()
