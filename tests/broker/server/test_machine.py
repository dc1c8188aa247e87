"""A process may have so many open files: the store has its share, whoever connects."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import resource
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from headrace import connect
from headrace.broker.server import machine
from headrace.broker.store import FileStorage, LocalFiles
from jetstream_world import World

MESSAGES = 1500
STRANGERS = 400
LIMIT = 256
SERVE = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))
from headrace.cli import main
sys.exit(main(["serve", "-js", "-p", "-1", "-m", "-1", "-sd", sys.argv[1]]))
"""


def fill(directory: Path) -> None:
    """A store of many sealed segments, none of which is loaded when it is opened."""
    storage = FileStorage(directory, sync="os", threaded=False, segment_bytes=8192)
    world = World(storage)
    client = world.client()
    client.stream("S")
    client.consumer("C", max_ack_pending=-1)
    for number in range(MESSAGES):
        client.publish(b"s.x", b"%d" % number)
    world.hub.shutdown()
    world.tick()
    storage.close()
    segments = list(directory.glob("streams/*/*.seg"))
    assert len(segments) > 8


def stranger(port: int) -> tuple[socket.socket, bytes]:
    """Connects, and hears whether it may stay."""
    client = socket.create_connection(("127.0.0.1", port), timeout=10)
    heard = b""
    client.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
    while b"PONG" not in heard and b"-ERR" not in heard:
        try:
            data = client.recv(4096)
        except ConnectionResetError:
            break
        if not data:
            break
        heard += data
    return client, heard


async def consume(port: int) -> None:
    async with await connect(f"nats://127.0.0.1:{port}") as client:
        loop = asyncio.get_running_loop()
        met = [await loop.run_in_executor(None, stranger, port) for _ in range(STRANGERS)]
        try:
            stay = [heard for _, heard in met if b"PONG" in heard]
            refused = [heard for _, heard in met if b"'maximum connections exceeded'" in heard]
            assert LIMIT // 4 < len(stay) < LIMIT * 3 // 4
            assert len(refused) + len(stay) == STRANGERS
            consumer = await client.jetstream().consumer("S", "C")
            got = [int(m.payload) for m in await consumer.fetch(MESSAGES, max_wait=10)]
            assert got == list(range(MESSAGES))
            old = await (await client.jetstream().stream("S")).get_message(1)
            assert old.payload == b"0"
        finally:
            for stranger_socket, _ in met:
                stranger_socket.close()


def test_strangers_can_not_take_the_files_of_the_store(tmp_path: Path) -> None:
    fill(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE.format(limit=LIMIT), str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        log = ""
        while "Server is ready" not in log:
            line = process.stderr.readline()
            assert line, log
            log += line
        lowered = re.search(r"max_connections is lowered from 65536 to (\d+): .* 256 open", log)
        assert lowered, log
        port = re.search(r"client connections on 127\.0\.0\.1:(\d+)", log)
        monitor = re.search(r"http monitor on ([\d.:]+)", log)
        assert port is not None and monitor is not None
        with urllib.request.urlopen(f"http://{monitor[1]}/varz", timeout=10) as answer:
            assert json.load(answer)["max_connections"] == int(lowered[1])
        asyncio.run(consume(int(port[1])))
    finally:
        process.terminate()
        _, rest = process.communicate(timeout=20)
    assert "cannot be read" not in rest
    assert "Too many open files" not in rest
    assert process.returncode == 0


def test_a_reserve_is_enough_when_nothing_else_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    before = len(os.listdir("/proc/self/fd"))
    files = LocalFiles(2)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(map(int, os.listdir("/proc/self/fd"))) + 8
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        with pytest.raises(OSError) as shortage:
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        assert shortage.value.errno == errno.EMFILE
        for _ in range(3):
            one, two = files.open(f"{tmp_path}/file"), files.open(f"{tmp_path}/file")
            assert files.pread(one, 7, 0) == b"content"
            with pytest.raises(OSError) as shortage:
                files.open(f"{tmp_path}/file")
            assert shortage.value.errno == errno.EMFILE
            files.close(one)
            assert files.listdir(str(tmp_path)) == ["file"]
            with pytest.raises(FileNotFoundError):
                files.open(f"{tmp_path}/none")
            files.close(two)
            files.fsync_dir(str(tmp_path))
            with pytest.raises(OSError):
                os.open(os.devnull, os.O_RDONLY)  # nobody else gets what the store gave back
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for handle in taken:
            os.close(handle)
    files.release()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("limit", "store", "connections"),
    [(256, 64, 100), (1024, 256, 500), (65_536, 4_352, 60_000)],
)
def test_what_is_there_is_shared_out(
    monkeypatch: pytest.MonkeyPatch, limit: int, store: Any, connections: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))
    monkeypatch.setattr(machine, "_in_use", lambda: 12)
    shares = machine.share_out(store=True, monitor_max=256)
    assert shares.limit == limit
    assert shares.store == store
    assert shares.connections >= connections
    assert shares.store + shares.connections + shares.monitor + 12 < limit
    assert machine.share_out(store=False, monitor_max=0).store == 0
