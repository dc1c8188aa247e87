"""A server with streams to read, and one Spark session for all tests."""

from __future__ import annotations

import gc
import itertools
import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import peers
import prefork
from headrace.api.times import parse_time
from headrace.message import StoredMessage
from headrace.pipeline.session.quick_path import FOLDER as QUICK_PATH
from headrace.pipeline.session.session import DAEMON, FAST_LOCAL_CHECKPOINT
from headrace.schemas.registry import SchemaRegistry
from headrace.spark.links.control import Control
from headrace.spark.links.link import Link
from headrace.spark.links.pool import POOL
from headrace.spark.options import Connection
from headrace.spark.reading.gets import MessageGets
from portions import play_one_way
from registry_server import RegistryServer

from .losses import Losses

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count(1)
TIMEOUT_S = 600
CREATIONS = 100
NO_STORE = "error creating store for stream"  # nats-server's words; our broker has no such excuse


class Feed:
    """A stream of a server, to fill and to look at. Each has a name of its own."""

    def __init__(self, url: str, **config: Any) -> None:
        self.url = url
        self.name = f"SPARK{next(_numbers)}"
        self.link = Link.open(Connection(servers=(url,)))
        self.control = Control(self.link, self.name)
        self._inbox, self._sid = self.link.subscribe()
        self.create(**config)

    def create(self, **config: Any) -> None:
        config = {"name": self.name, "subjects": [f"{self.name}.>"], **config}
        for _ in range(CREATIONS):
            answer = self.call(f"STREAM.CREATE.{self.name}", config)
            # nats-server may still be removing the files of a stream of this name.
            if answer.get("error", {}).get("description") != NO_STORE:
                break
        assert "error" not in answer, answer

    def call(self, what: str, body: object = None) -> dict[str, Any]:
        payload = json.dumps(body).encode() if body is not None else b""
        answer: dict[str, Any] = json.loads(self.link.request(f"$JS.API.{what}", payload).payload)
        return answer

    def publish(self, subjects: list[str], payload: Callable[[int], bytes] | None = None) -> None:
        """Publish one message per subject (below the stream's name) and wait for every PubAck."""
        for chunk_start in range(0, len(subjects), 2000):
            chunk = subjects[chunk_start : chunk_start + 2000]
            lines = []
            for index, subject in enumerate(chunk, chunk_start):
                body = payload(index) if payload else b"m%d" % index
                lines.append(
                    b"PUB %s.%s %b %d\r\n%b\r\n"
                    % (self.name.encode(), subject.encode(), self._inbox, len(body), body)
                )
            self.link.send(b"".join(lines))
            waiting = len(chunk)
            while waiting:
                acks = self.link.poll(5.0)
                assert acks, "no PubAck came"
                assert all(b'"error"' not in ack[5] for ack in acks), acks
                waiting -= len(acks)

    def publish_numbers(self, first: int, last: int, subject: str = "n") -> None:
        self.publish([subject] * (last - first + 1), lambda index: b"m%d" % (first + index))

    def stored(self, sequences: range) -> list[StoredMessage]:
        """Those of these messages that exist."""
        gets = MessageGets(self.link, self.name, 5.0)
        gets.ask(sequences)
        rows = gets.take()
        gets.close()
        times = [parse_time(time.decode()) for time in rows.times]
        columns = (rows.sequences, rows.subjects, rows.headers, rows.payloads, times)
        return [StoredMessage(*row) for row in zip(*columns, strict=True)]

    def connect(self) -> Link:
        return Link.open(Connection(servers=(self.url,)))

    def consumers(self) -> int:
        return self.control.stream_info().state.consumer_count

    def close(self) -> None:
        self.call(f"STREAM.DELETE.{self.name}")
        self.link.close()


@pytest.fixture(scope="session")
def headrace_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[peers.ServerProcess]:
    """Our broker in a process of its own, for the whole session."""
    flags = ["--sync", "os"]  # as nats-server does
    server = peers.start_headrace(tmp_path_factory.mktemp("headrace"), flags=flags)
    yield server
    server.stop()


SERVERS = [pytest.param("nats-server", marks=pytest.mark.peer), "headrace"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Half of the tests are played on either server, and ``make test-all`` plays all on both."""
    play_one_way(metafunc, "server_url", SERVERS)


@pytest.fixture
def server_url(request: pytest.FixtureRequest) -> str:
    name = "reference_server" if request.param == "nats-server" else "headrace_process"
    server: peers.ServerProcess = request.getfixturevalue(name)
    return server.url


ON_OURS = pytest.mark.parametrize("server_url", peers.PLAYED_ON, indirect=True)
"""For what Spark or the pipeline decides, whatever the server: played on one of them."""
ON_BOTH = pytest.mark.parametrize("server_url", SERVERS, indirect=True)
"""For what depends on what a server does: positions, subjects that it writes, losses."""


@pytest.fixture
def make_feed(server_url: str) -> Iterator[Callable[..., Feed]]:
    """``make_feed(retention=…)``: a stream of its own, on each of the servers."""
    made: list[Feed] = []

    def make(**config: Any) -> Feed:
        feed = Feed(server_url, **config)
        made.append(feed)
        return feed

    yield make
    for feed in made:
        feed.close()


@pytest.fixture
def feed(make_feed: Callable[..., Feed]) -> Feed:
    return make_feed()


@pytest.fixture
def links_end() -> Iterator[None]:
    """The connections a worker keeps end with the worker; here they end with the test."""
    yield
    POOL.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A call of Java that is broken off by the clock takes all tests with it that come after."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "spark" in fixtures and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


def require_java() -> None:
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        peers.missing_peer("Java", "install a Java runtime, 17 or newer")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One small, quiet local session; it takes seconds to start, so it is shared."""
    require_java()
    home = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with (
        ExitStack() as stack,
        warnings.catch_warnings(),
        pytest.MonkeyPatch.context() as environment,
    ):
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        # As the demo and the pipelines do; Connect and Declarative Pipelines have Spark's own way.
        builder = SparkSession.builder
        # Java's workers find PySpark compiled, as those of a pipeline do: each of them would compile it anew.
        environment.setenv("PYTHONPATH", prefork.FOLDER, prepend=os.pathsep)
        environment.setenv("PYTHONPATH", QUICK_PATH, prepend=os.pathsep)
        environment.setenv(prefork.PLACE, stack.enter_context(prefork.serving(os.environ)))
        for key, value in FAST_LOCAL_CHECKPOINT.items():
            builder = builder.config(key, value)
        session = (
            builder.master("local[2]")
            .appName("headrace tests")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(home / "warehouse"))
            .config("spark.log.level", "OFF")
            # Each worker finds what it would import in the process that it is forked off, as in a pipeline.
            .config("spark.python.daemon.module", DAEMON)
            .getOrCreate()
        )
        environment.undo()
        yield session
        session.stop()


@pytest.fixture(scope="module", autouse=True)
def collect_what_py4j_leaves() -> Iterator[None]:
    """Its connections to the JVM belong to threads and are not closed when those end: collected in a later
    test, which has nothing to do with them, they would fail it. No other connection is forgiven."""
    yield
    pyspark = sys.modules.get("pyspark")
    gateway = pyspark.SparkContext._gateway if pyspark is not None else None
    if gateway is not None:
        port = gateway.gateway_parameters.port
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", rf".*raddr=\('127.0.0.1', {port}\)", ResourceWarning)
            gc.collect()


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


@pytest.fixture
def losses(monkeypatch: pytest.MonkeyPatch) -> Losses:
    """Loses connections of the code under test, one at each step."""
    return Losses(monkeypatch)


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    """A schema registry, of which this process knows nothing yet."""
    SchemaRegistry._kept.clear()
    server = RegistryServer()
    yield server
    server.stop()
