"""Push, connections and the database share the open files of a process, and none takes those of another."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from children import end_with_us
from headrace.jobs import limits
from jobs_endpoint import Call, Endpoint
from waiting import until

pytestmark = pytest.mark.one_database

FILES = 256
SERVICE = """
import asyncio, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))
from headrace.jobs.config import load_config
from headrace.jobs.server import serve
flags = {{"database": sys.argv[1], "port": 0, "allow_networks": ["127.0.0.0/8"]}}
asyncio.run(serve(load_config(None, flags), lambda address: print(address, flush=True)))
"""


@asynccontextmanager
async def serving(database: str) -> AsyncIterator[tuple[httpx2.AsyncClient, int]]:
    """A service that may open ``FILES`` files, and the number of its process."""
    program = SERVICE.format(limit=FILES)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, database),
        stdout=asyncio.subprocess.PIPE,
        preexec_fn=end_with_us,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            url = (await process.stdout.readline()).decode().strip()
        async with httpx2.AsyncClient(base_url=url, timeout=60) as http:
            yield http, process.pid
    finally:
        process.kill()
        await process.wait()


class Silent(Endpoint):
    """Reads each call and answers none."""

    async def _handle(self, call: Call, writer: asyncio.StreamWriter) -> None:
        self.running += 1
        async with self._arrived:
            self.calls.append(call)
            self._arrived.notify_all()
        await asyncio.Event().wait()


async def define(http: httpx2.AsyncClient, channel: str, consumers: int, url: str) -> None:
    await http.put("/producer/p", data={"token": "pt"})
    await http.put(f"/channel/{channel}", data={"token": "ct"})
    for number in range(consumers):
        name = f"k{number}"
        made = await http.put(
            f"/channel/{channel}/consumer/{name}",
            data={"token": "kt", "type": "push", "callbackUrl": url},
        )
        assert made.status_code == 200, made.text
        settings = {"concurrency": limits.PUSH_CONCURRENCY_MAX, "timeout_s": 300}
        changed = await http.patch(
            f"/v2/channel/{channel}/consumer/{name}", json={"settings": settings}
        )
        assert changed.status_code == 200, changed.text


async def publish(http: httpx2.AsyncClient, channel: str, messages: int) -> None:
    headers = {
        "X-Broker-Channel-Token": "ct",
        "X-Broker-Producer-ID": "p",
        "X-Broker-Producer-Token": "pt",
    }
    for _ in range(messages):
        answer = await http.post(f"/channel/{channel}/broadcast", content=b"x", headers=headers)
        assert answer.status_code == 201, answer.text


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@pytest.mark.skipif(sys.platform != "linux", reason="counts open files in /proc")
async def test_endpoints_that_never_answer_leave_files_for_neighbours_clients_and_the_database(
    tmp_path: Path,
) -> None:
    async with AsyncExitStack() as stack:
        silent = await stack.enter_async_context(Silent())
        good = await stack.enter_async_context(Endpoint())
        http, pid = await stack.enter_async_context(serving(f"sqlite:///{tmp_path}/jobs.db"))
        await define(http, "silent", 5, silent.url)
        await define(http, "good", 1, good.url)
        await publish(http, "silent", 30)
        names = {f"k{number}" for number in range(5)}
        await until(
            lambda: {call.headers["x-broker-consumer-id"] for call in silent.calls} == names,
            "each consumer is called",
        )
        # As many connections as may be, each with a request that never ends.
        port = http.base_url.port
        assert port is not None
        for _ in range(FILES):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            writer.write(b"GET / HTTP/1.1\r\n")
        await publish(http, "good", 30)
        await good.wait_for(30, 60)
        health = await http.get("/health/ready")
        assert health.status_code == 200, health.text
        assert "calls of push" not in health.text
        # Half of the files are the reserve, of the rest push has 47 calls, the channel half of those.
        assert len(silent.calls) <= 24
        assert open_files(pid) <= FILES * 3 // 4
