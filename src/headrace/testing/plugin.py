"""The pytest plugin: a broker and connections to it as fixtures. Installed with Headrace.

One broker runs per session (with pytest-xdist: per worker), in memory, on a thread of its own. Each test
finds it empty. Nothing is imported before a test asks for it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, suppress
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace import BrokerSettings, Connection, ConnectOptions, sync
    from headrace.clock import Clock

    from .pipelines import TestedPipeline
    from .recorded import Published

__all__ = [
    "headrace_broker",
    "headrace_clock",
    "headrace_pipeline",
    "headrace_published",
    "headrace_session_broker",
    "headrace_settings",
    "headrace_spark",
    "headrace_sync_connection",
]


def pytest_configure(config: pytest.Config) -> None:
    """Offer ``headrace_connection``: what makes asyncio fixtures is known only now."""
    kind = "pytest_asyncio" if config.pluginmanager.hasplugin("asyncio") else "pytest"
    offered = ModuleType("headrace_connection")
    vars(offered)["headrace_connection"] = importlib.import_module(kind).fixture(
        headrace_connection
    )
    config.pluginmanager.register(offered, "headrace-connection")


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Show what was recorded beside what should have been, line by line."""
    room = sys.modules.get("headrace.testing.recorded")
    if room is None or op != "==":
        return None
    recorded, expected = (left, right) if isinstance(left, room.Recorded) else (right, left)
    if not isinstance(recorded, room.Recorded) or not isinstance(expected, list):
        return None
    kind = type(recorded).__name__
    return [f"{kind.lower()} are not the messages expected", *recorded.difference(expected)]


def login_of(settings: BrokerSettings, name: str = "test") -> ConnectOptions:
    """The options of a client: its name, and what lets it in, if the settings name one user or a token."""
    login: ConnectOptions = {"name": name}
    if user := settings.get("user"):
        login["user"], login["password"] = user, settings.get("password") or ""
    if token := settings.get("token"):
        login["token"] = token
    return login


async def headrace_connection(
    headrace_broker: sync.Broker, headrace_settings: BrokerSettings
) -> AsyncIterator[Connection]:
    """An asyncio connection to ``headrace_broker``, in the test's event loop, with the settings' login."""
    from headrace import connect

    login = login_of(headrace_settings)
    async with connect(headrace_broker.client_url, **login) as connection:
        yield connection


@pytest.fixture(scope="session")
def headrace_settings() -> BrokerSettings:
    """The settings of the broker, for a ``conftest.py`` to override: in memory, on any free port."""
    return {"sync": "os"}


@pytest.fixture(scope="session")
def headrace_clock() -> Clock | None:
    """The broker's clock, for a ``conftest.py`` to override with a ``ManualClock``; None: the machine's."""
    return None


@pytest.fixture(scope="session")
def headrace_session_broker(
    headrace_settings: BrokerSettings, headrace_clock: Clock | None
) -> Iterator[sync.Broker]:
    """The broker of the session, which is not emptied; for fixtures that live as long."""
    from headrace import sync

    with sync.Broker(clock=headrace_clock, **headrace_settings) as broker:
        yield broker


@pytest.fixture
def headrace_broker(
    headrace_session_broker: sync.Broker, headrace_settings: BrokerSettings
) -> Iterator[sync.Broker]:
    """A broker without streams: ``client_url`` is for clients, ``connect()`` for blocking calls.

    The broker is the session's. What streams, buckets and consumers a test leaves are deleted after it.
    """
    from headrace import StreamNotFoundError

    yield headrace_session_broker
    login = login_of(headrace_settings, "headrace.testing")
    with headrace_session_broker.connect(**login) as connection:
        js = connection.jetstream()
        for name in list(js.stream_names()):
            with suppress(StreamNotFoundError):  # what the test left running deletes, too
                js.delete_stream(name)


@pytest.fixture
def headrace_sync_connection(
    headrace_broker: sync.Broker, headrace_settings: BrokerSettings
) -> Iterator[sync.Connection]:
    """A blocking connection to ``headrace_broker``, with the login of the settings."""
    with headrace_broker.connect(**login_of(headrace_settings)) as connection:
        yield connection


@pytest.fixture
def headrace_published(
    headrace_broker: sync.Broker, headrace_settings: BrokerSettings
) -> Iterator[Callable[..., Published]]:
    """``headrace_published(subject=">")`` records what is published from then on, to be compared."""
    from .recorded import published

    login = login_of(headrace_settings, "headrace.testing")
    with headrace_broker.connect(**login) as connection, ExitStack() as open_ones:
        yield lambda subject=">": open_ones.enter_context(published(connection, subject))


@pytest.fixture(scope="session")
def headrace_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of Spark in which pipelines are tried: yours if there is one, else a small one."""
    from pyspark.sql import SparkSession

    from headrace.pipeline.testing.trial import start_small_session

    if (running := SparkSession.getActiveSession()) is not None:
        yield running
        return
    log = tmp_path_factory.mktemp("headrace-spark") / "spark.log"
    spark = start_small_session("headrace.testing", log)
    yield spark
    spark.stop()


@pytest.fixture
def headrace_pipeline(headrace_spark: SparkSession) -> Callable[..., TestedPipeline]:
    """``headrace_pipeline(file, profile="")``: a pipeline whose sources are given rows, without a server."""
    from functools import partial

    from .pipelines import TestedPipeline

    return partial(TestedPipeline, headrace_spark)
