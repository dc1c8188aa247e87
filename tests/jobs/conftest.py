"""One service per test, on SQLite and on PostgreSQL, with a clock that only moves when told to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import httpx2
import pytest
import uvicorn

import postgres_server
from headrace.clock import ManualClock
from headrace.jobs.http import create_app
from headrace.jobs.models import Options
from headrace.jobs.runtime.runtime import Runtime
from headrace.jobs.store import Database, open_database
from jobs_world import World, http_of
from portions import one_way

# Those that refer to others come first.
TABLES = ["attempt", "job", "unique_keys", "message", "schedule", "consumer", "channel", "producer"]
TABLES += [
    "counter",
    "event",
    "outcome",
    "leader",
    "meta",
    "removed_jobs",
    "api_key",
    "audit",
    "push_node",
    "push_calls",
    "feed",
]


@pytest.fixture(scope="session")
def postgres() -> Iterator[postgres_server.PostgresServer]:
    """One server for the session, with a database that has the schema."""
    import psycopg
    from psycopg.rows import dict_row

    from headrace.jobs.store.postgres import migrate

    server = postgres_server.PostgresServer()
    try:
        server.start()
        with psycopg.connect(server.create("jobs"), autocommit=True, row_factory=dict_row) as made:
            migrate(made)
        yield server
    finally:
        server.remove()


@pytest.fixture
def postgres_url(postgres: postgres_server.PostgresServer) -> str:
    """A database with the schema and nothing in it. Emptying one is much quicker than making one."""
    import psycopg

    url = postgres.url("jobs")
    with psycopg.connect(url) as connection:
        connection.execute(";".join(f"DELETE FROM {table}" for table in TABLES).encode())
    return url


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "one_database: says nothing about the database, so SQLite will do"
    )


BROKERS = ("headrace", "nats-server")
_EVERY_PAIR = pytest.mark.slow("tests/jobs/streams")
PAIRS = [
    pytest.param("postgres", "headrace"),
    pytest.param("sqlite", "nats-server"),
    pytest.param("postgres", "nats-server", marks=_EVERY_PAIR),
    pytest.param("sqlite", "headrace", marks=_EVERY_PAIR),
]
ON_EACH = ("store", "service")
"""Rooms whose tests say what each database does; the others are above them."""
_OTHER_DATABASE = pytest.mark.slow("tests/jobs/service")


def one_of_each(test: str) -> list[Any]:
    """Both databases, one of them played slowly: this test's on one, that one's on the other."""
    kinds = ("sqlite", "postgres")
    played = kinds[crc32(test.encode()) % 2]
    return [pytest.param(each, marks=[_OTHER_DATABASE] * (each != played)) for each in kinds]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests that use a database run on each kind, unless it makes no difference to them; above the rooms that
    say what a database does, half of the tests on the one and half on the other. Where a broker is used, too,
    each kind of either is played once, and all pairs of them slowly. Of those that say nothing about the
    database half are played on either broker: what servers answer is compared in ``tests/conformance``."""
    kinds: tuple[str, ...] = ("sqlite", "postgres")
    if metafunc.definition.get_closest_marker("one_database") is not None:
        kinds = ("sqlite",)
    of_database = "database_url" in metafunc.fixturenames
    if "broker_url" not in metafunc.fixturenames:
        room = metafunc.definition.path.relative_to(Path(__file__).parent).parts[0]
        if of_database and len(kinds) > 1 and room not in ON_EACH:
            test = metafunc.definition.originalname
            metafunc.parametrize("database_url", one_of_each(test), indirect=True)
        elif of_database:
            metafunc.parametrize("database_url", kinds, indirect=True)
    elif not of_database:
        brokers = one_way(BROKERS, metafunc.function.__name__)
        metafunc.parametrize("broker_url", brokers, indirect=True)
    elif len(kinds) == 1:
        brokers = one_way(BROKERS, metafunc.function.__name__)
        pairs = [(*kinds, broker) for broker in brokers]
        metafunc.parametrize(("database_url", "broker_url"), pairs, indirect=True)
    else:
        metafunc.parametrize(("database_url", "broker_url"), PAIRS, indirect=True)


@pytest.fixture
def database_url(request: pytest.FixtureRequest, quick_path: Path) -> str:
    """The address of an empty database, once of each kind; neither waits for a disk."""
    if request.param == "sqlite":
        return f"sqlite:///{quick_path / 'jobs.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = open_database(database_url, threads=4)
    await opened.start()
    yield opened
    await opened.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def options() -> Options:
    """What most tests want; a test module overrides the fixture for others."""
    return Options(
        schedule_min_delay_s=120.0,
        allow_networks=("127.0.0.0/8",),
        max_retries=5,
        retry_delays_s=(5.0, 30.0, 60.0),
    )


@pytest.fixture
async def runtime(
    database_url: str, clock: ManualClock, options: Options
) -> AsyncIterator[Runtime]:
    made = Runtime(
        open_database(database_url, threads=4, clock=clock),
        options,
        clock=clock,
        random=lambda: 0.5,
    )
    await made.start()
    yield made
    await made.close()


@pytest.fixture
async def http(runtime: Runtime) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the service; every answer is checked against what the routes declare."""
    async with http_of(runtime) as client:
        yield client


@pytest.fixture
async def world(http: httpx2.AsyncClient, runtime: Runtime, clock: ManualClock) -> World:
    """A producer ``p``, a channel ``c`` and a pull consumer ``k``, with tokens ``pt``, ``ct``, ``kt``."""
    made = World(http, runtime, clock)
    await made.define()
    return made


@pytest.fixture
async def address(world: World) -> AsyncIterator[str]:
    """The service on a socket."""
    config = uvicorn.Config(
        create_app(world.runtime), lifespan="off", log_config=None, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        await serving


@pytest.fixture
def service_on(database_url: str) -> Callable[..., Any]:
    """Make further runtimes on the same database, as other processes would."""

    def make(**settings: Any) -> Runtime:
        database = open_database(database_url, threads=2, clock=settings.get("clock"))
        return Runtime(database, **settings)

    return make


@pytest.fixture
def broker_url(request: pytest.FixtureRequest) -> str:
    """Our broker, and nats-server."""
    if request.param == "headrace":
        url: str = request.getfixturevalue("broker").client_url
    else:
        url = request.getfixturevalue("nats_server")().url
    return url
