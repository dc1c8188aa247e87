"""The blocking client where its calls are made: on any thread, in a loop, in a forked child, interrupted."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2
import pytest

from headrace.jobs.client import BlockingWorker, JobsClient, RunningJob
from jobs_world import World

pytestmark = pytest.mark.one_database
TOKENS = {"channel_token": "ct", "consumer_token": "kt"}


class Connections(BaseHTTPRequestHandler):
    """Answers by which connection it was asked."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        content = b'{"port": %d}' % self.client_address[1]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@pytest.fixture
def connections() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Connections) as server:
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        serving.join()


async def said(
    program: str, address: str, ask: Callable[[asyncio.subprocess.Process], object]
) -> str:
    """What a program says, which is started with the address, and then asked for something."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, address),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(60):
            assert process.stdout is not None
            assert await process.stdout.readline() == b"begins\n"
            ask(process)
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, err.decode()
    return out.decode()


FORKED = """
import os, sys
from headrace.jobs.client import JobsClient, JobsError

def ask():
    return client.status()["port"]

client = JobsClient(sys.argv[1])
closed = JobsClient(sys.argv[1])
closed.close()
first = ask()
assert ask() == first
print("begins", flush=True)
if (child := os.fork()) == 0:
    own = ask()
    assert own != first and ask() == own, (first, own)
    try:
        closed.status()
    except JobsError as error:
        assert error.code == "client_closed"
    print("child", flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert ask() == first
client.close()
print("parent")
"""


async def test_a_forked_child_has_connections_of_its_own(connections: str) -> None:
    """On those of its parent each of both could get the other's answer."""
    assert await said(FORKED, connections, lambda _: None) == "child\nparent\n"


INTERRUPTED = """
import sys, threading
from headrace.jobs.client import JobsClient

with JobsClient(sys.argv[1]) as client:
    queue = client.queue("c", "k", channel_token="ct", consumer_token="kt")
    try:
        print("begins", flush=True)
        queue.claim(wait_s=50)
    except KeyboardInterrupt:
        print("interrupted", len(queue.claim()), threading.active_count())
"""


async def test_an_interrupt_ends_a_call_at_once_and_the_client_goes_on(
    world: World, address: str
) -> None:
    asked = lambda process: process.send_signal(signal.SIGINT)  # noqa: E731
    assert await said(INTERRUPTED, address, asked) == "interrupted 0 1\n"


async def test_a_blocking_call_may_be_made_where_a_loop_runs(connections: str) -> None:
    with JobsClient(connections) as client:
        assert client.status()["port"] > 0


async def test_several_threads_share_a_client(connections: str) -> None:
    with JobsClient(connections, connections=4) as client:
        ports = await asyncio.gather(*(asyncio.to_thread(client.status) for _ in range(20)))
    assert len({each["port"] for each in ports}) <= 4


async def test_a_worker_sends_by_the_transport_of_its_client(world: World, address: str) -> None:
    sent: list[str] = []

    class Noted(httpx2.HTTPTransport):
        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            sent.append(request.url.path.rpartition("/")[2])
            assert request.url.host == "jobs"
            request.url = httpx2.URL(address).join(request.url.raw_path.decode())
            return super().handle_request(request)

    await world.broadcast("1")
    with JobsClient("http://jobs", transport=Noted()) as client:

        def work(job: RunningJob) -> None:
            made.stop()

        made = BlockingWorker(client.queue("c", "k", **TOKENS), work, wait_s=1)
        try:
            await asyncio.wait_for(asyncio.to_thread(made.run), 20)
        finally:
            made.stop()
        assert made.completed == 1
        # Where the machine stands still, the lease is extended while the answer is on its way.
        told = [each for each in sent if each != "heartbeat"]
        assert (told[0], told[-1]) == ("claim", "complete")
        await asyncio.to_thread(
            client.channel, "c"
        )  # the worker has not closed what is not its own
