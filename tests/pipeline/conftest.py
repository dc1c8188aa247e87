"""A server with a stream, and files of pipelines."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import peers
from headrace import sync

_numbers = itertools.count(1)

ORDERS = """
[pipeline]
name = "orders"
checkpoint = "checkpoint"

[sources.orders]
options = { stream = "ORDERS" }

[sinks.out]
from = "orders"
format = "parquet"
options = { path = "out" }
"""


@pytest.fixture(scope="session")
def url_of_headrace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = peers.start_headrace(tmp_path_factory.mktemp("broker"), flags=["--sync", "os"])
    yield server.url
    server.stop()


@pytest.fixture(scope="session")
def url_of_nats_server(reference_server: peers.ServerProcess) -> str:
    return reference_server.url


@pytest.fixture(params=[pytest.param("nats-server", marks=pytest.mark.peer), "headrace"])
def either_url(request: pytest.FixtureRequest) -> str:
    """Either server, for files that are about what a server keeps: their ``url`` is this one."""
    if request.param == "headrace":
        return str(request.getfixturevalue("url_of_headrace"))
    server: peers.ServerProcess = request.getfixturevalue("reference_server")
    return server.url


@pytest.fixture(scope="session", params=peers.PLAYED_ON)
def url(request: pytest.FixtureRequest) -> str:
    """Our broker in a process of its own; nats-server as well, where all is played on both."""
    name = "url_of_headrace" if request.param == "headrace" else "url_of_nats_server"
    return str(request.getfixturevalue(name))


@pytest.fixture
def stream(url: str) -> Iterator[str]:
    """A stream with messages 1 to 10."""
    name = f"ORDERS{next(_numbers)}"
    with sync.connect(url) as connection:
        js = connection.jetstream()
        js.create_stream(name=name, subjects=[f"{name}.>"])
        for number in range(1, 11):
            js.publish(f"{name}.{number % 2}", b"%d" % number)
        yield name
        js.delete_stream(name)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """``write(text)``: a pipeline's file of this text."""

    def make(text: str, name: str = "orders.toml") -> Path:
        file = tmp_path / name
        file.write_text(text)
        return file

    return make


@pytest.fixture
def pipeline_file(write: Callable[..., Path], url: str, stream: str) -> Path:
    """A pipeline over the stream, with two queries."""
    return write(
        f"""
[pipeline]
name = "orders"
checkpoint = "checkpoint"
trigger = "available now"

[sources.orders]
options = {{ stream = "{stream}", servers = "{url}", durable = "shown" }}

[sinks.out]
from = "orders"
format = "parquet"
options = {{ path = "out" }}

[sinks.seen]
from = "orders"
format = "noop"
"""
    )
