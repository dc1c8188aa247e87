"""A console on either server, what it shows, and a browser to look with."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import peers
from browser import _function_scoped_runner, _opened, _shown, chromium, page
from console_world import ATTACK, SUBJECT_ATTACK, World, bury, fill, kill_a_job, tell_a_pipeline
from headrace.client import JetStream, connect
from headrace.console import ConsoleServer, Settings
from headrace.groups import PartitioningFilter, elastic
from headrace.jobs.http import create_app
from headrace.jobs.models import Options
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.store import open_database
from portions import play_one_way

__all__ = ["_function_scoped_runner", "_opened", "_shown", "chromium", "page"]


SERVERS = ("headrace", pytest.param("nats-server", marks=pytest.mark.peer))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What servers answer is compared in ``tests/conformance``; what the console makes
    of it, half of the tests try on either, and ``make test-all`` all on both."""
    play_one_way(metafunc, "server", SERVERS)


@pytest.fixture(scope="session")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[peers.ServerProcess]:
    start = peers.start_headrace if request.param == "headrace" else peers.start_nats_server
    port = peers.free_port()
    process = start(tmp_path_factory.mktemp(request.param), flags=("-m", str(port)))
    process.monitoring_port = port
    yield process
    process.stop()


@pytest.fixture
async def js(server: peers.ServerProcess) -> AsyncIterator[JetStream]:
    """A connection to an empty server."""
    async with connect(server.url) as connection:
        js = connection.jetstream()
        async for name in js.stream_names():
            await js.delete_stream(name)
        yield js


@pytest.fixture
async def make_world(
    server: peers.ServerProcess, js: JetStream
) -> AsyncIterator[Callable[..., Any]]:
    """Starts consoles with these settings."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(http: Any = None, **settings: Any) -> World:
            connection = await stack.enter_async_context(connect(server.url, name="console"))
            told = Settings(**{"port": 0, "interval_s": 0.5, **settings})
            console = await stack.enter_async_context(ConsoleServer(told, connection, http=http))
            # Nothing here is encrypted, and to read the certificates of the world takes 25 ms each time.
            client = httpx2.AsyncClient(base_url=console.url, verify=False)
            await stack.enter_async_context(client)
            return World(connection, js, console, client)

        yield make


@pytest.fixture
async def world(make_world: Callable[..., Any]) -> World:
    made: World = await make_world()
    return made


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    """What a job service is made of."""
    database = open_database(f"sqlite:///{tmp_path / 'jobs.db'}", threads=2)
    made = Runtime(database, Options(), admin_token="admin")
    await made.start()
    yield made
    await made.close()


@pytest.fixture
async def service(runtime: Runtime) -> AsyncIterator[httpx2.AsyncClient]:
    """A job service with a queue that has a dead job."""
    transport = httpx2.ASGITransport(app=create_app(runtime))
    async with httpx2.AsyncClient(transport=transport, base_url="http://jobs") as client:
        admin = {"Authorization": "Bearer admin"}
        for path, form in (
            ("/producer/p", {"token": "pt"}),
            ("/channel/c", {"token": "ct"}),
            ("/channel/c/consumer/k", {"type": "pull", "token": "kt"}),
        ):
            assert (await client.put(path, data=form, headers=admin)).status_code == 200
        yield client


@pytest.fixture
def static() -> Path:
    """Where the pages' files are."""
    import headrace.console

    return Path(str(headrace.console.__file__)).parent / "static"


@pytest.fixture
async def shown(
    make_world: Callable[..., Any], service: httpx2.AsyncClient, server: Any, page: Any
) -> AsyncIterator[World]:
    """A console that has something on every page, open in the browser."""
    url = f"http://127.0.0.1:{server.monitoring_port}"
    others = httpx2.AsyncClient(verify=False)
    world: World = await make_world(
        http=_Both(service, others), jobs="http://jobs", jobs_token="admin", monitoring=url
    )
    await fill(world.js)
    await kill_a_job(service, reason=ATTACK)
    await elastic.create(
        world.js,
        "ORDERS",
        "g",
        max_members=3,
        partitioning_filters=[PartitioningFilter("orders.*", (1,))],
    )
    await elastic.add_members(world.js, "ORDERS", "g", ["a", "b"])
    stream = await world.js.stream("ORDERS")
    await stream.create_consumer(
        durable_name="query", metadata={"headrace.role": "spark-progress"}, description=ATTACK
    )
    await tell_a_pipeline(world.js)
    await world.js.create_stream(name="DEAD", subjects=("dead.>",), allow_direct=True)
    await world.js.publish("dead.letters", b"no letter")
    await bury(world.js, ("orders.0", "orders.1", "orders.1"))
    await bury(world.js, (SUBJECT_ATTACK,), ATTACK)
    await world.console.sources.watcher.refresh()
    await page.goto(world.console.url)
    yield world
    await others.aclose()


class _Both:
    """Asks the job service in this process, and everybody else over the network."""

    def __init__(self, service: httpx2.AsyncClient, others: httpx2.AsyncClient) -> None:
        self._service, self._others = service, others

    async def request(self, method: str, url: str, **keywords: Any) -> httpx2.Response:
        asked = self._service if url.startswith("http://jobs") else self._others
        return await asked.request(method, url, **keywords)
