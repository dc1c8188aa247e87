"""How final a confirmed acknowledgement is: a worker, and a server that is killed again and again.

python tests/crash/confirmations.py [KILLS]

compares our broker with nats-server. The worker acknowledges with a reply, and notes each answer; what had
none when the server was killed is asked again of the next one. A message whose acknowledgement was confirmed
and that is delivered later came again.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

if __name__ == "__main__":  # run as a program
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import peers
from crash.kill_load import STREAM, Requester
from crash.kill_worker import DURABLE, Worker

MESSAGES = 20_000
ACK_WAIT_S = 2
TOLD_EVERY = 100
EARLIEST_S, LATEST_S = 0.02, 0.15


class Start(Protocol):
    """Starts a server on a directory, which may have a store already."""

    def __call__(self, directory: Path, *, port: int = ...) -> peers.ServerProcess: ...


@dataclass
class Found:
    """What came of an attack."""

    kills: int
    confirmed: int
    asked_again: int
    again: Set[int]
    """The sequences that were delivered after their acknowledgement had been confirmed."""
    delivered: Set[int]
    info: dict[str, Any]
    """The consumer's, at the end."""

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {self.confirmed} acknowledgements confirmed, {self.asked_again} asked "
            f"again: {len(self.again)} messages came again"
        )


def attack(start: Start, directory: Path, kills: int, seed: int) -> Found:
    """Kill the server so often while a worker acknowledges; then let the worker finish."""
    moments, worker, again = random.Random(seed), Worker(), set[int]()
    port = peers.free_port()

    def watched(act: Callable[[], Any]) -> Any:
        confirmed, before = set(worker.answered), len(worker.delivered)
        result = act()
        again.update(confirmed & set(worker.delivered[before:]))
        return result

    for cycle in range(kills):
        server = start(directory, port=port)
        try:
            if cycle == 0:
                _fill(server)
            seconds = moments.uniform(EARLIEST_S, LATEST_S)
            watched(partial(worker.work, server.host, server.port, seconds, server.kill))
        finally:
            server.kill()
        if (cycle + 1) % TOLD_EVERY == 0:
            print(f"{cycle + 1} of {kills} kills, {len(worker.answered)} acks answered")
    server = start(directory, port=port)
    try:
        info = watched(partial(worker.finish, server.host, server.port, 10.0 * ACK_WAIT_S))
    finally:
        assert server.stop() == 0, server.log_text()
    delivered = set(worker.delivered)
    return Found(kills, len(worker.answered), worker.asked_again, again, delivered, info)


def _fill(server: peers.ServerProcess) -> None:
    """A stream of messages and a durable consumer that wants each acknowledged."""
    with Requester(server.host, server.port) as requester:
        requester.create_stream()
        requester.publish("crash.0", MESSAGES)
        config = {
            "durable_name": DURABLE,
            "ack_policy": "explicit",
            "ack_wait": ACK_WAIT_S * 10**9,
            "max_ack_pending": 1000,
        }
        body = {"stream_name": STREAM, "config": config}
        reply = requester.ask(f"CONSUMER.CREATE.{STREAM}.{DURABLE}", body)
        assert "error" not in reply, reply


def main(kills: int) -> None:
    servers: dict[str, Start] = {
        "headrace": peers.start_headrace,
        "nats-server": peers.start_nats_server,
        "nats-server, sync_interval: always": partial(peers.start_nats_server, sync="always"),
    }
    for name, start in servers.items():
        with tempfile.TemporaryDirectory() as directory:
            print(f"{name}: {attack(start, Path(directory), kills, seed=1)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
