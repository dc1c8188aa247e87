"""A disk without room under PostgreSQL: readiness, and those who go on."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psycopg
import pytest

import postgres_server
from headrace.clock import ManualClock
from headrace.jobs.http import create_app
from headrace.jobs.models import Options
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.store import open_database
from jobs_world import PRODUCER, World
from waiting import until

DISK = "48m"
PAYLOAD_BYTES = 100_000  # random: they cannot be compressed


@dataclass
class SmallDisk:
    """A file system in memory on which a database lies, and the file that fills it."""

    directory: Path
    url: str = ""

    def fill(self) -> None:
        """Leave nothing."""
        with (self.directory / "filler").open("wb", buffering=0) as filler:
            for size in (1 << 20, 4096, 1):
                try:
                    while True:
                        filler.write(b"\0" * size)
                except OSError:
                    continue

    def free(self) -> None:
        (self.directory / "filler").unlink()


@pytest.fixture
def disk(postgres: postgres_server.PostgresServer) -> Iterator[SmallDisk]:
    """A real one, with a database of the server on it. Needs root on Linux."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("a small file system can be mounted by root on Linux only")
    directory = Path(tempfile.mkdtemp(prefix="headrace-full-"))
    directory.chmod(0o755)  # the server is another user
    mounted = directory / "disk"
    mounted.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=755", "headrace-full", str(mounted)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        shutil.rmtree(directory)
        pytest.skip(f"no small file system: {done.stderr.strip()}")
    try:
        place = mounted / "tablespace"
        place.mkdir()
        user = pwd.getpwnam("postgres")
        os.chown(place, user.pw_uid, user.pw_gid)
        with psycopg.connect(postgres.url(), autocommit=True) as connection:
            connection.execute(f"CREATE TABLESPACE small LOCATION '{place}'".encode())
            connection.execute(b'CREATE DATABASE "small" TABLESPACE small')
        yield SmallDisk(mounted, postgres.url("small"))
        postgres.drop("small")
        with psycopg.connect(postgres.url(), autocommit=True) as connection:
            connection.execute(b"DROP TABLESPACE small")
    finally:
        subprocess.run(["umount", "-l", str(mounted)], check=False)
        shutil.rmtree(directory)


async def broadcast(http: httpx2.AsyncClient) -> int:
    sent = await http.post(
        "/channel/c/broadcast", content=os.urandom(PAYLOAD_BYTES), headers=PRODUCER
    )
    return sent.status_code


async def test_it_is_not_ready_from_a_write_that_found_no_room_until_there_is_room(
    disk: SmallDisk, clock: ManualClock, options: Options
) -> None:
    runtime = Runtime(open_database(disk.url, threads=4), options, clock=clock)
    await runtime.start()
    try:
        transport = httpx2.ASGITransport(create_app(runtime))
        async with httpx2.AsyncClient(transport=transport, base_url="http://jobs") as http:
            await World(http, runtime, clock).define()

            async def ready() -> int:
                clock.advance(1)
                return (await http.get("/health/ready")).status_code

            assert await ready() == 200
            disk.fill()

            async def is_refused() -> bool:
                return await broadcast(http) == 503

            await until(is_refused, within=60)
            assert [await ready() for _ in range(10)] == [503] * 10
            disk.free()
            assert await ready() == 200
            assert await broadcast(http) == 201
            with psycopg.connect(disk.url) as connection:
                tables = connection.execute(
                    "SELECT count(*) FROM pg_class WHERE relname LIKE '%room%'"
                ).fetchone()
            assert tables == (0,), "nothing is left of what was tried"
    finally:
        await runtime.close()


async def test_a_full_disk_is_named_to_the_balancer_and_ends_nothing(disk: SmallDisk) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headrace", "jobs", "serve", "--port", "0", "--database", disk.url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        url = (await process.stdout.readline()).decode().split()[-1]
        async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=60) as http:
            for path, token in (("/producer/p", "pt"), ("/channel/c", "ct")):
                assert (await http.put(path, data={"token": token})).status_code == 200

            async def is_taken() -> bool:
                return await broadcast(http) == 201

            async def is_refused() -> bool:
                return await broadcast(http) == 503

            async def is_ready() -> bool:
                return (await http.get("/health/ready")).status_code == 200

            async def is_not() -> bool:
                return not await is_ready()

            await until(is_ready, within=60)
            disk.fill()
            await until(is_refused, within=60)
            await until(is_not, within=60)
            told = (await http.get("/health/ready")).json()
            assert told["status"] == "unavailable"
            assert "PostgreSQL's database small at 127.0.0.1" in told["detail"]
            assert "No space left on device" in told["detail"]
            assert (await http.get("/channels")).status_code == 200
            assert (await http.get("/health/live")).status_code == 200
            disk.free()
            await until(is_ready, within=60)
            await until(is_taken, within=60)
    finally:
        process.terminate()
        _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, errors.decode()
    assert b"Traceback" not in errors, errors.decode()
